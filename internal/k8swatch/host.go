package k8swatch

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	l.look.Seen.PowerForbidden = forbidden(h, l.run.Target)
	for k := range h.Annotations {
		// Whatever its mode, the bare-metal operator keeps the host off for it.
		if k == rebootKey || strings.HasPrefix(k, rebootKey+"/") && k != holdKey {
			l.answer(remediate.Yes, "BareMetalHost "+key+" carries the power request "+k)
		}
	}
	l.external = h.ExternallyProvisioned
	return nil
}

// forbidden is why the owner of the host's power does not want us to switch it
// off, or "".
func forbidden(h policy.Host, t remediate.Target) string {
	machine := t.Namespace + "/" + t.Machine
	switch {
	case h.DisablePowerOff:
		return "BareMetalHost " + h.Key() + " has disablePowerOff: true"
	case !h.Online:
		return "BareMetalHost " + h.Key() + " has online: false; its owner wants it off"
	case h.ConsumerRef != "" && t.Machine != "" && h.ConsumerRef != machine: // I8
		return "BareMetalHost " + h.Key() + " belongs to Machine " + h.ConsumerRef + ", not to " + machine
	}
	return ""
}

func (cl *clients) bareMetalHost(ctx context.Context, key string) (policy.Host, error) {
	ns, name, _ := strings.Cut(key, "/")
	u, err := cl.dynamic.Resource(hostGVR).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return policy.Host{}, err
	}
	return manifest.BareMetalHost(u.Object)
}
