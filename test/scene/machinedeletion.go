package scene

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/test/rig"
)

// MachineDeletionUser is the user of the stand-in for medik8s' MachineDeletionRemediation.
const MachineDeletionUser = "stand-in-machine-deletion"

// RunMachineDeletions runs a stand-in for medik8s' MachineDeletionRemediation (34285c7) until the scene ends.
// It deletes the Machine of the Node that a request names, if a controller owns the Machine.
func (s *Scene) RunMachineDeletions() error {
	return s.runStandIn(MachineDeletionUser, nil, func(ctx context.Context, c standIn) {
		requests, _ := c.list(ctx, rig.MachineDeletionResource, labels.Everything())
		machines, _ := c.list(ctx, rig.MachineResource, labels.Everything())
		for _, r := range requests {
			for _, m := range machines {
				node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
				if node == r.GetAnnotations()[ofNode] && metav1.GetControllerOf(&m) != nil {
					_ = c.dynamic.Resource(rig.MachineResource).Namespace(rig.Namespace).Delete(ctx, m.GetName(), metav1.DeleteOptions{})
				}
			}
		}
	})
}
