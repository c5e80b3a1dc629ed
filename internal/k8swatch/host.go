package k8swatch

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// holdKey is our request that the power owner keeps the host off; it is itself
// a hard power-off.
const (
	rebootKey = "reboot.metal3.io"
	holdKey   = rebootKey + "/fenced"
	holdValue = `{"mode":"hard"}`
)

// host reads whether our hold stands, and what else is asked of the host.
func (l *looker) host(ctx context.Context) error {
	key := l.run.Target.BareMetalHost
	if key == "" {
		l.look.Seen.Hold = remediate.No
		return nil
	}
	h, err := l.manage.bareMetalHost(ctx, key)
	if _, name, _ := strings.Cut(key, "/"); gone(err, name) {
		l.look.Seen.Hold, l.look.Seen.PowerForbidden = remediate.No, "BareMetalHost "+key+" does not exist any more"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	_, held := h.Annotations[holdKey]
	l.look.Seen.Hold = remediate.Ask(held)
	l.owned = &h
	for k := range h.Annotations {
		// Whatever its mode, the bare-metal operator keeps the host off for it.
		if k == rebootKey || strings.HasPrefix(k, rebootKey+"/") && k != holdKey {
			l.answer(remediate.Yes, "BareMetalHost "+key+" carries the power request "+k)
		}
	}
	l.external = h.ExternallyProvisioned
	return nil
}

// powerOwner asks whether the owner of the host's power lets us switch it off.
func (l *looker) powerOwner() {
	if l.owned != nil {
		l.look.Seen.PowerForbidden = forbidden(*l.owned, l.run.Target, l.consumer)
	}
}

// forbidden is why the owner of the host's power does not want us to switch it
// off, or "". The consumer is what stands in the host's consumerRef when it is
// the target's.
func forbidden(h policy.Host, t remediate.Target, consumer string) string {
	switch {
	case h.DisablePowerOff:
		return "BareMetalHost " + h.Key() + " has disablePowerOff: true"
	case !h.Online:
		return "BareMetalHost " + h.Key() + " has online: false; its owner wants it off"
	case h.ConsumerRef != "" && t.Machine != "" && h.ConsumerRef != consumer: // I8
		return "BareMetalHost " + h.Key() + " belongs to " + h.ConsumerRef + ", not to " + consumer
	}
	return ""
}

// consumerOf is what the host of a Machine names as its consumer: OpenShift's
// the Machine, the Cluster API's its infrastructure Machine.
func consumerOf(u *unstructured.Unstructured) string {
	if groupOf(u.GetAPIVersion()) != clusterGroup {
		return u.GetNamespace() + "/" + u.GetName()
	}
	ref, _, _ := unstructured.NestedMap(u.Object, "spec", "infrastructureRef")
	name, _ := ref["name"].(string)
	namespace, _ := ref["namespace"].(string) // v1beta2 has none: it is the Machine's
	return cmp.Or(namespace, u.GetNamespace()) + "/" + name
}

func (cl *clients) bareMetalHost(ctx context.Context, key string) (policy.Host, error) {
	ns, name, _ := strings.Cut(key, "/")
	u, err := cl.dynamic.Resource(hostGVR).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return policy.Host{}, err
	}
	return manifest.BareMetalHost(u.Object)
}
