package k8swatch

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// upgradeKeys begin the annotations in which OpenShift says which configuration
// a Node has and which it shall have.
const upgradeKeys = "machineconfiguration.openshift.io/"

var _ cache.TransformingStore = (*store)(nil)

// Transformer implements cache.TransformingStore: it trims objects while a list
// is still streaming in, before any of them is converted.
func (s *store) Transformer() cache.TransformFunc { return trim }

// trim drops, in place, what no rule ever reads and what makes up most of an
// object's size.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		o.ManagedFields = nil
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool {
			return !strings.HasPrefix(key, medik8sGroup+"/") && !strings.HasPrefix(key, upgradeKeys)
		})
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec.Containers, o.Spec.Volumes = nil, nil
	case *unstructured.Unstructured:
		for _, path := range [][]string{
			{"metadata", "managedFields"},
			{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
			{"spec", "providerSpec"}, {"status", "providerStatus"}, // of Machines
			{"status", "hardware"}, {"status", "operationHistory"}, // of BareMetalHosts
			{"status", "history"}, {"status", "availableUpdates"}, // of ClusterVersions
		} {
			unstructured.RemoveNestedField(o.Object, path...)
		}
	}
	return object, nil
}

// streamed remembers the watch that a list is streaming in on.
func (s *store) streamed(w watch.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = w
}

// endStream ends, soon, the watch on which the list came in: it would go on as
// a long one, with a bookmark only every minute. A watch that ends before its
// first second is taken for an error by the reflector. s.mu is held.
func (s *store) endStream() {
	if w := s.stream; w != nil {
		s.stream = nil
		time.AfterFunc(watchBeyond, w.Stop)
	}
}
