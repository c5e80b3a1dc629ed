package k8swatch

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// host reads whether our power lock is set, and what else is requested of the
// host.
func (l *looker) host(ctx context.Context) error {
	key := l.run.Target.BareMetalHost
	if key == "" {
		l.look.Seen.PowerLock = remediate.No
		return nil
	}
	h, err := bareMetalHost(ctx, l.manage, key)
	if _, name, _ := strings.Cut(key, "/"); client.IsGone(err, name) {
		l.look.Seen.PowerLock, l.look.Seen.PowerForbidden = remediate.No, "BareMetalHost "+key+" does not exist any more"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	_, held := h.Annotations[policy.PowerLockAnnotation]
	l.look.Seen.PowerLock, l.look.Seen.BareMetalHostUID = remediate.Ask(held), h.UID
	l.owned = &h
	if why := h.Contender(); why != "" {
		l.look.Seen.OtherPowerLock = h.OtherPowerLock()
		l.setContested(remediate.Yes, why)
	}
	l.look.Seen.OwnerWantsOff = !h.Online
	l.external = h.ExternallyProvisioned
	return nil
}

// powerOwner determines whether the owner of the host's power lets us switch it off.
func (l *looker) powerOwner() {
	if l.owned == nil {
		return
	}
	why := wrongHostReason(*l.owned, l.run.Target, l.c.manage != l.c.work)
	t := l.run.Target
	l.look.Seen.PowerForbidden = cmp.Or(why, l.owned.PowerForbidden(t.MachineKey(), l.consumer, t.Node != "", t.ByHardware))
}

// wrongHostReason returns why a host of the name that a Machine gives cannot be
// the Machine's, or "". The Cluster API keeps both in one namespace, and a
// separate management API has no hosts of OpenShift Machines. // I8
func wrongHostReason(h policy.Host, t remediate.Target, apart bool) string {
	switch ofCluster := client.GroupOf(t.MachineAPI) == client.ClusterGroup; {
	case t.Machine == "":
		return ""
	case ofCluster && h.Namespace != t.Namespace:
		return "BareMetalHost " + h.Key() + " is in another namespace than Machine " + t.Namespace + "/" + t.Machine
	case !ofCluster && apart:
		return "BareMetalHost " + h.Key() + " is on the management API, and Machine " + t.Namespace + "/" + t.Machine + " is not"
	}
	return ""
}

func bareMetalHost(ctx context.Context, cl *client.Conn, key string) (policy.Host, error) {
	ns, name, _ := strings.Cut(key, "/")
	u, err := client.ReadCustom(ctx, cl.Dynamic.Resource(client.HostGVR).Namespace(ns), client.HostGroup, ns, name)
	if err != nil {
		return policy.Host{}, err
	}
	return manifest.BareMetalHost(u.Object)
}
