package k8swatch

import (
	"context"
	"fmt"

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

// cluster reads the Cluster of the Machine.
func (l *looker) cluster(ctx context.Context) error {
	m := l.look.FreshMachine
	if m == nil || m.Group() != client.ClusterGroup || m.ClusterName == "" {
		return nil
	}
	u, err := client.ReadCustom(ctx, l.c.servers.ClusterResource("clusters", m.Namespace), client.ClusterGroup, m.Namespace, m.ClusterName)
	if client.IsGone(err, m.ClusterName) {
		return nil
	}
	var found policy.Cluster
	if err == nil {
		found, err = manifest.Cluster(u.Object)
	}
	if err != nil {
		return fmt.Errorf("read Cluster %s/%s: %w", m.Namespace, m.ClusterName, err)
	}
	l.look.Cluster = &found
	return nil
}
