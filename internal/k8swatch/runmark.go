package k8swatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// The annotations that say on a Node and a Machine that fenced remediates it.
const (
	runAnnotation      = "fenced.io/run"
	stepAnnotation     = "fenced.io/step"
	instanceAnnotation = "fenced.io/instance"
)

var markKeys = []string{runAnnotation, stepAnnotation, instanceAnnotation}

// markTimeout ends the writing of a mark, here and at the API server. A run starts to
// power off when its Node is marked. It saves the Node at the earliest when its host is
// proven off, and a mark that is written after that would make the isolation fail once.
const markTimeout = 2 * time.Second

// maxMarkValue limits what is kept of an annotation: anybody may have written it.
const maxMarkValue = 128

// markOn returns the mark on an object; nil if there is none. Other objects than Nodes and
// Machines carry none.
func markOn(id policy.ObjectID, m metav1.Object) *event.RunMark {
	if id.Kind != "Node" && id.Kind != "Machine" {
		return nil
	}
	all := m.GetAnnotations()
	found := false
	for _, key := range markKeys {
		_, has := all[key]
		found = found || has
	}
	if !found {
		return nil
	}
	value := func(key string) string { return bmc.Printable(all[key], maxMarkValue) }
	return &event.RunMark{
		APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, UID: string(m.GetUID()),
		Run: value(runAnnotation), Step: value(stepAnnotation), Instance: value(instanceAnnotation),
	}
}

// noteMark keeps the mark of an object; s.mu is held.
func (s *store) noteMark(name objectName, m *event.RunMark) {
	if m == nil {
		delete(s.marks, name)
		return
	}
	s.marks[name] = *m
}

// Marked lists the Nodes and Machines of the view that carry a mark, in no order.
func (c *Cluster) Marked() (list []event.RunMark) {
	for _, side := range c.sides() {
		for _, s := range side.watched() {
			s.mu.Lock()
			for _, m := range s.marks {
				list = append(list, m)
			}
			s.mu.Unlock()
		}
	}
	return list
}

// Mark writes a mark onto an object, or removes it if it names no run. It does nothing if
// another object has the name now. It takes at most two seconds, and the API server carries
// it out within these or not at all.
func (c *Cluster) Mark(ctx context.Context, m event.RunMark) error {
	ctx, cancel := context.WithTimeout(client.WithoutRetry(ctx), markTimeout)
	defer cancel()
	values := map[string]any{runAnnotation: m.Run, stepAnnotation: m.Step, instanceAnnotation: m.Instance}
	if m.Run == "" {
		values = map[string]any{runAnnotation: nil, stepAnnotation: nil, instanceAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID, "annotations": values}})
	if err != nil {
		return err
	}
	request := c.servers.Of(m.APIVersion).API().Typed.Core.Patch(types.MergePatchType)
	if group := client.GroupOf(m.APIVersion); m.Kind == "Machine" {
		gvr := client.MachineGVR
		if group == client.ClusterGroup {
			gvr = c.served(gvr.Resource)
		}
		request = request.AbsPath("apis", gvr.Group, gvr.Version).Namespace(m.Namespace).Resource(gvr.Resource)
	} else {
		request = request.Resource("nodes")
	}
	switch err := request.Name(m.Name).Timeout(markTimeout).Body(patch).Do(ctx).Error(); {
	case err == nil, client.IsGone(err, m.Name):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("annotate %s %s: %w: apply rbac.yaml, which has this right", m.Kind, m.Name, err)
	default:
		return fmt.Errorf("annotate %s %s: %w", m.Kind, m.Name, err)
	}
}
