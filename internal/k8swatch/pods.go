package k8swatch

import (
	"context"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

// Pods lists the pods that are bound to a Node, as namespace/name, with an uncached read. more
// says that there are others.
func (c *Cluster) Pods(ctx context.Context, node string) (names []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	pods, more, err := c.work.API().PodsOf(ctx, node)
	for i := range pods {
		names = append(names, pods[i].Namespace+"/"+pods[i].Name)
	}
	return names, more, err
}
