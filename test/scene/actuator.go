package scene

import (
	"context"
	"encoding/json"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/test/rig"
)

// ActuatorUser is the user of the stand-in for OpenShift's bare-metal actuator.
const ActuatorUser = "stand-in-actuator"

// Requested is the annotation on a Machine with which OpenShift's MachineHealthCheck asks for a
// power cycle.
const Requested = "host.metal3.io/external-remediation"

// What the actuator writes on a Machine, and on its BareMetalHost.
const (
	poweredOff        = "remediation.metal3.io/powered-off-for-remediation"
	annotationsBackup = "remediation.metal3.io/node-annotations-backup"
	labelsBackup      = "remediation.metal3.io/node-labels-backup"
	requestsPowerOff  = "reboot.metal3.io/capbm-requested-power-off"
)

// RunActuator runs a stand-in for OpenShift's bare-metal actuator (cluster-api-provider-baremetal f2b0db1) until the scene ends. It holds
// the actuator's leader Lease, and carries out the annotation Requested in the actuator's steps:
// it asks the bare-metal operator to switch the host off, saves and deletes the Node, lets the
// host go on, and restores labels and annotations. It has no deadlines. It needs RunMetal3.
func (s *Scene) RunActuator(ctx context.Context) error {
	if err := s.leads(ctx, "controller-leader-election-capbm", ActuatorUser); err != nil {
		return err
	}
	return s.runStandIn(ActuatorUser, nil, func(ctx context.Context, c standIn) {
		machines, _ := c.list(ctx, rig.MachineResource, labels.Everything())
		for _, m := range machines {
			if _, requested := m.GetAnnotations()[Requested]; requested && m.GetAnnotations()["metal3.io/BareMetalHost"] != "" {
				_ = c.powerCycle(ctx, m) // at the next tick again
			}
		}
	})
}

// powerCycle does the next step for a Machine. What was done stands in the annotations.
func (c standIn) powerCycle(ctx context.Context, m unstructured.Unstructured) error {
	name, done := m.GetName(), m.GetAnnotations()
	host, err := c.dynamic.Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes := c.typed.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	gone := err != nil
	on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
	_, asked := host.GetAnnotations()[requestsPowerOff]
	_, wasOff := done[poweredOff]
	_, saved := done[annotationsBackup]
	switch {
	case !wasOff && !asked:
		return annotate(ctx, c.dynamic, rig.HostResource, name, map[string]any{requestsPowerOff: `{"mode":"hard"}`})
	case !wasOff && on:
		return nil // waits
	case !wasOff && !gone && !saved:
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{annotationsBackup: encoded(node.Annotations), labelsBackup: encoded(node.Labels)})
	case !wasOff && !gone:
		return nodes.Delete(ctx, name, metav1.DeleteOptions{})
	case !wasOff:
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{poweredOff: ""})
	case asked:
		return annotate(ctx, c.dynamic, rig.HostResource, name, map[string]any{requestsPowerOff: nil})
	case gone:
		return nil // waits
	case saved:
		node.Annotations = merged(done[annotationsBackup], node.Annotations)
		node.Labels = merged(done[labelsBackup], node.Labels)
		if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{annotationsBackup: nil, labelsBackup: nil})
	}
	return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{poweredOff: nil, Requested: nil})
}

func encoded(m map[string]string) string {
	b, _ := json.Marshal(m) // a map of strings can be encoded
	return string(b)
}

// merged is what was saved, with what the Node has by now before it.
func merged(saved string, now map[string]string) map[string]string {
	all := map[string]string{}
	_ = json.Unmarshal([]byte(saved), &all) // encoded made it
	maps.Copy(all, now)
	return all
}
