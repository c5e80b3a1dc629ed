package k8swatch

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// outOfService is the taint that tells Kubernetes that a Node is off: Kubernetes
// then deletes its pods and detaches its volumes at once.
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// saved is what the Node should have according to a run's backups.
type saved struct {
	labels, annotations map[string]string
	taints              []corev1.Taint
	unschedulable       bool
}

// mergeBackups merges the saved Nodes of one run, oldest first. A Node that was
// saved in a later attempt may not have been restored yet, so missing keys come
// from earlier backups. If both have a key, the newer value counts.
func mergeBackups(backups [][]byte) (saved, error) {
	s := saved{labels: map[string]string{}, annotations: map[string]string{}}
	for _, b := range backups {
		var n corev1.Node
		if err := json.Unmarshal(b, &n); err != nil {
			return saved{}, fmt.Errorf("read the backup of the Node: %w", err)
		}
		mergeKeys(s.labels, n.Labels, ownedLabel)
		mergeKeys(s.annotations, n.Annotations, ownedAnnotation)
		s.unschedulable = s.unschedulable || n.Spec.Unschedulable
		for _, t := range n.Spec.Taints {
			if ownedTaint(t) {
				continue
			}
			s.taints = slices.DeleteFunc(s.taints, func(older corev1.Taint) bool { return older.MatchTaint(&t) })
			s.taints = append(s.taints, t)
		}
	}
	return s, nil
}

func mergeKeys(into, from map[string]string, owned func(string) bool) {
	for k, v := range from {
		if !owned(k) {
			into[k] = v
		}
	}
}

func hasTaint(list []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(list, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
}

// change is what a live Node lacks of what was saved.
type change struct {
	labels, annotations map[string]string
	taints              []corev1.Taint // the whole new list; nil = unchanged
	cordon              bool
}

func (c change) empty() bool {
	return len(c.labels) == 0 && len(c.annotations) == 0 && c.taints == nil && !c.cordon
}

// parts returns the change in pieces that can be written independently.
func (c change) parts() []change {
	var list []change
	for _, part := range []change{{taints: c.taints, cordon: c.cordon}, {labels: c.labels}, {annotations: c.annotations}} {
		if !part.empty() {
			list = append(list, part)
		}
	}
	return list
}

// missing compares the live Node with what was saved. An existing value always
// takes precedence. In taint mode it also removes our own taint. An empty result
// means that the restore is complete. // I21
func missing(s saved, n *corev1.Node, isolation remediate.Isolation) change {
	c := change{labels: missingKeys(s.labels, n.Labels), annotations: missingKeys(s.annotations, n.Annotations)}
	c.cordon = s.unschedulable && !n.Spec.Unschedulable
	c.taints = missingTaints(s.taints, n.Spec.Taints, isolation)
	return c
}

// missingTaints returns the whole list of taints that the Node should have; nil
// if it has it.
func missingTaints(want, have []corev1.Taint, isolation remediate.Isolation) []corev1.Taint {
	list, changed := []corev1.Taint{}, false // not nil: an empty list may be a change
	for _, t := range have {
		if isolation == remediate.IsolateTaint && t.MatchTaint(&outOfService) {
			changed = true
			continue
		}
		list = append(list, t)
	}
	for _, t := range want {
		if !hasTaint(list, t) {
			list, changed = append(list, t), true
		}
	}
	if !changed {
		return nil
	}
	return list
}

func missingKeys(want, have map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range want {
		if _, ok := have[k]; !ok {
			out[k] = v
		}
	}
	return out
}

// patch is the change as a JSON merge patch, with the UID and resourceVersion of
// the Node as preconditions. // I2
func (c change) patch(n *corev1.Node) ([]byte, error) {
	meta := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	if len(c.labels) > 0 {
		meta["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		meta["annotations"] = c.annotations
	}
	spec := map[string]any{}
	if c.taints != nil {
		spec["taints"] = c.taints
	}
	if c.cordon {
		spec["unschedulable"] = true
	}
	return json.Marshal(map[string]any{"metadata": meta, "spec": spec})
}
