package k8swatch

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// groupOf is the API group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// machines is where the Machine of a target lives. Records of older runs do not
// say; they are of OpenShift.
func (c *Cluster) machines(t remediate.Target) dynamic.ResourceInterface {
	if groupOf(t.MachineAPI) == clusterGroup {
		return c.clusterResource("machines", t.Namespace)
	}
	return c.work.api().dynamic.Resource(machineGVR).Namespace(t.Namespace)
}

// machine reads the Machine of a target past every cache.
func (c *Cluster) machine(ctx context.Context, t remediate.Target) (*unstructured.Unstructured, error) {
	group := machineGroup
	if groupOf(t.MachineAPI) == clusterGroup {
		group = clusterGroup
	}
	return readCustom(ctx, c.machines(t), group, t.Namespace, t.Machine)
}

// clusterResource is a resource of the Cluster API at the version that is
// served now: a run may have begun at another.
func (c *Cluster) clusterResource(resource, namespace string) dynamic.ResourceInterface {
	return c.manage.api().dynamic.Resource(c.served(resource)).Namespace(namespace)
}

func (c *Cluster) served(resource string) schema.GroupVersionResource {
	for _, s := range c.manage.watched() {
		if s.group == clusterGroup && s.resource == resource {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.gvr
		}
	}
	return clusterGVR(resource)
}

func (l *looker) machine(ctx context.Context) error {
	t := l.run.Target
	if t.Machine == "" {
		l.look.Seen.Machine.Exists = remediate.No
		return nil
	}
	u, err := l.c.machine(ctx, t)
	if gone(err, t.Machine) {
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
	l.look.FreshMachine, l.consumer = &m, consumerOf(u)
	l.look.Seen.Machine = remediate.Machine{Exists: remediate.Yes, UID: m.UID, Deleting: m.Deleting,
		Requested: m.ExternalRemediationRequested, Marked: m.Group() == clusterGroup && marked(u)}
	return nil
}

// replaceable says whether deleting the Machine, or handing it to its owner,
// makes a controller replace it. // I14
func (l *looker) replaceable() {
	m, s := l.look.FreshMachine, &l.look.Seen.Machine
	if m == nil {
		return
	}
	switch {
	case l.external:
		s.Why = "its BareMetalHost is externally provisioned"
	case l.controlPlane(m) && !l.mayReplaceControlPlane(m):
		s.Why = "it is a control-plane Machine"
	case m.ControllerOwner == policy.Owner{} && !l.onlyMarked(m):
		s.Why = "no controller owns it, so nothing would replace it"
	}
	s.Replaceable = remediate.Ask(s.Why == "")
	if l.run.Target.BareMetalHost != "" && l.look.Seen.PowerLock == remediate.CannotTell {
		s.Replaceable = remediate.CannotTell
	}
}

func (l *looker) controlPlane(m *policy.Machine) bool {
	return m.ControlPlane || l.look.FreshNode != nil && l.look.FreshNode.ControlPlane
}

// mayReplaceControlPlane: a KubeadmControlPlane guards its own quorum; every
// other way to replace a member needs the administrator's word.
func (l *looker) mayReplaceControlPlane(m *policy.Machine) bool {
	switch m.ControllerOwner.Kind {
	case "KubeadmControlPlane":
		return m.Group() == clusterGroup || l.c.cfg.DeleteControlPlaneMachines
	case "ControlPlaneMachineSet":
		return l.c.cfg.DeleteControlPlaneMachines
	}
	return false
}

// onlyMarked: all that the check asks for is that the Machine is marked, as the
// Cluster API does also to a Machine without an owner.
func (l *looker) onlyMarked(m *policy.Machine) bool {
	return m.Group() == clusterGroup && l.run.Strategy == remediate.DeleteMachine
}

// cluster reads the Cluster that the Machine is of.
func (l *looker) cluster(ctx context.Context) error {
	m := l.look.FreshMachine
	if m == nil || m.Group() != clusterGroup || m.ClusterName == "" {
		return nil
	}
	u, err := readCustom(ctx, l.c.clusterResource("clusters", m.Namespace), clusterGroup, m.Namespace, m.ClusterName)
	if gone(err, m.ClusterName) {
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
