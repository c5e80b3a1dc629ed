package k8swatch

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

func (c *Cluster) served(resource string) schema.GroupVersionResource {
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup && s.Plural == resource {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.gvr
		}
	}
	return client.ClusterGVR(resource)
}

func (l *looker) machine(ctx context.Context) error {
	t := l.run.Target
	if t.Machine == "" {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	u, err := l.c.servers.Machine(ctx, t)
	if client.IsGone(err, t.Machine) {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	var m policy.Machine
	if err == nil {
		m, err = manifest.Machine(u.Object)
	}
	if err != nil {
		return fmt.Errorf("read Machine %s/%s: %w", t.Namespace, t.Machine, err)
	}
	l.look.FreshMachine, l.consumer = &m, m.Consumer()
	l.look.Seen.Machine = remediate.Machine{Exists: remediate.Yes, UID: m.UID, Deleting: m.Deleting,
		Requested: m.ExternalRemediationRequested,
		Marked:    m.Group() == client.ClusterGroup && write.IsMarked(u) && m.ControllerOwner != policy.Owner{}} // without an owner nobody has it
	return nil
}

// replaceable determines whether a controller will replace the Machine if it is
// deleted, or handed to its owner. // I14
func (l *looker) replaceable() {
	m, s := l.look.FreshMachine, &l.look.Seen.Machine
	if m == nil {
		return
	}
	switch {
	case m.Suspended != "":
		s.Why = m.Suspended
	case l.external:
		s.Why = "its BareMetalHost is externally provisioned"
	case isControlPlane(l.run, m, l.look.FreshNode) && !l.c.cfg.mayReplaceControlPlane(m):
		s.Why = "it is a control-plane Machine"
	case m.ControllerOwner == policy.Owner{}:
		s.Why = "no controller owns it, so nothing would replace it"
	}
	s.Replaceable = remediate.Ask(s.Why == "")
	if l.run.Target.BareMetalHost != "" && l.look.Seen.PowerLock == remediate.CannotTell {
		s.Replaceable = remediate.CannotTell
	}
}

// isControlPlane: the run, its Machine or the Node is of the control plane.
func isControlPlane(r remediate.Run, m *policy.Machine, n *policy.Node) bool {
	return r.ControlPlane || m.ControlPlane || n != nil && n.ControlPlane
}

// mayReplaceControlPlane: a KubeadmControlPlane protects its own quorum; every
// other way to replace a member needs the administrator's permission.
func (c Config) mayReplaceControlPlane(m *policy.Machine) bool {
	switch m.ControllerOwner.Kind {
	case "KubeadmControlPlane":
		return m.Group() == client.ClusterGroup || c.DeleteControlPlaneMachines
	case "ControlPlaneMachineSet":
		return c.DeleteControlPlaneMachines
	}
	return false
}

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
