package k8swatch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// markOn returns the mark on an object; nil if there is none. Other objects than Nodes and
// Machines carry none.
func markOn(id policy.ObjectID, m metav1.Object) *event.RunMark {
	if id.Kind != "Node" && id.Kind != "Machine" {
		return nil
	}
	all := m.GetAnnotations()
	found := false
	for _, key := range client.MarkKeys {
		_, has := all[key]
		found = found || has
	}
	if !found {
		return nil
	}
	value := func(key string) string { return bmc.Printable(all[key], client.MaxMarkValue) }
	return &event.RunMark{
		APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, UID: string(m.GetUID()),
		Run: value(client.RunAnnotation), Step: value(client.StepAnnotation), Instance: value(client.InstanceAnnotation),
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
