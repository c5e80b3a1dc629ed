package k8swatch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// podsPage is more pods than a kubelet runs.
const podsPage = 500

// Pods lists the pods that are bound to a Node, as namespace/name, with an uncached read. more
// says that there are others.
func (c *Cluster) Pods(ctx context.Context, node string) (names []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods, more, err := c.work.api().podsOf(ctx, node)
	for i := range pods {
		names = append(names, pods[i].Namespace+"/"+pods[i].Name)
	}
	return names, more, err
}

// podsOf lists the pods that are bound to a Node, other than Succeeded and Failed
// ones and mirrors of static pods, which go with the kubelet. more: there are more
// than one page of them.
func (cl *clients) podsOf(ctx context.Context, node string) (bound []corev1.Pod, more bool, err error) {
	list, err := cl.pods(ctx, metav1.NamespaceAll, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector("spec.nodeName", node),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String(),
		Limit: podsPage,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the pods of Node %s: %w", node, err)
	}
	for i := range list.Items {
		if _, mirror := list.Items[i].Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
			bound = append(bound, list.Items[i])
		}
	}
	return bound, list.Continue != "", nil
}
