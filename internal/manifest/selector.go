package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selector reads a label selector. An absent or empty one matches everything, as
// in OpenShift. One that does not parse is nil.
func selector(o object) labels.Selector {
	before := len(*o.errs)
	parsed := metav1.LabelSelector{MatchLabels: o.labels("matchLabels")}
	if n := len(parsed.MatchLabels); n > maxEntries {
		o.fail(o.at("matchLabels"), "has %d entries, more than %d", n, maxEntries)
	}
	for _, e := range o.shortList("matchExpressions") {
		parsed.MatchExpressions = append(parsed.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.text("key"), Operator: metav1.LabelSelectorOperator(e.text("operator")), Values: e.texts("values"),
		})
	}
	s, err := metav1.LabelSelectorAsSelector(&parsed)
	if err != nil {
		o.fail(o.path, "%s", err)
	}
	if len(*o.errs) > before {
		return nil
	}
	return s
}
