package look

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

func (l *looker) machine(ctx context.Context) error {
	t := l.run.Target
	if t.Machine == "" {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	u, err := l.r.Servers.Machine(ctx, t)
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
		Marked:    m.Group() == client.ClusterGroup && l.r.IsMarked(u) && m.ControllerOwner != policy.Owner{}} // without an owner nobody has it
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
	case isControlPlane(l.run, m, l.look.FreshNode) && !mayReplaceControlPlane(m, l.r.DeleteControlPlaneMachines):
		s.Why = "it is a control-plane Machine"
	case m.ControllerOwner == policy.Owner{}:
		s.Why = "no controller owns it, so nothing would replace it"
	}
	s.Replaceable = remediate.AnswerOf(s.Why == "")
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
func mayReplaceControlPlane(m *policy.Machine, permitted bool) bool {
	switch m.ControllerOwner.Kind {
	case "KubeadmControlPlane":
		return m.Group() == client.ClusterGroup || permitted
	case "ControlPlaneMachineSet":
		return permitted
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
	if _, name, _ := strings.Cut(key, "/"); client.IsGone(err, name) || client.MayBeUnserved(err) && l.r.Servers.Manage.IsNotServed(ctx, hostKind) { // the latter: its CRD was deleted // L1
		l.look.Seen.PowerLock, l.look.Seen.PowerForbidden = remediate.No, "BareMetalHost "+key+" does not exist any more"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	_, held := h.Annotations[policy.PowerLockAnnotation]
	l.look.Seen.PowerLock, l.look.Seen.BareMetalHostUID = remediate.AnswerOf(held), h.UID
	l.owned = &h
	if why := h.Contender(); why != "" {
		l.look.Seen.OtherPowerLock = h.OtherPowerLock()
		l.setContested(remediate.Yes, why)
	}
	l.look.Seen.OwnerWantsOff = !h.Online
	l.external = h.ExternallyProvisioned
	return nil
}

// hostKind is that of BareMetalHosts.
var hostKind = client.Resource{Kind: "BareMetalHost", Group: client.HostGroup, Plural: client.HostGVR.Resource, Versions: []string{client.HostGVR.Version}}

// powerOwner determines whether the owner of the host's power lets us switch it off.
func (l *looker) powerOwner() {
	if l.owned == nil {
		return
	}
	why := wrongHostReason(*l.owned, l.run.Target, l.r.Servers.Manage != l.r.Servers.Work)
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

// MayClear reports whether the annotation that requests the remediation of a Machine may be removed: its Node is Ready
// without it, and no other remediator may have begun. Without the annotation that one would leave the host off. // I22
func (r *Reader) MayClear(ctx context.Context, t remediate.Target) (bool, error) {
	who, err := r.Leaders.at(ctx, r.Servers.Work.API(), machineAPINamespace, powerCycleLeader)
	if err != nil || who != "" {
		return false, err
	}
	u, err := r.Servers.Machine(ctx, t)
	switch {
	case client.IsGone(err, t.Machine), err == nil && string(u.GetUID()) != t.MachineUID:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
	}
	for key := range u.GetAnnotations() {
		if strings.HasPrefix(key, startedMarks) {
			return false, fmt.Errorf("clear the request of Machine %s: its annotation %s says that another remediator has begun; "+
				"let that one finish, or remove its annotations", t.MachineKey(), key)
		}
	}
	n, err := r.Servers.Work.API().Node(ctx, t.Node)
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	return view.PolicyNode(n).Ready(), nil
}

// startedMarks begins the annotations that OpenShift's bare-metal actuator leaves on a
// Machine whose host it has begun to switch.
const startedMarks = "remediation.metal3.io/"
