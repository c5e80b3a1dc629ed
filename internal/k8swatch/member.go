package k8swatch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/policy"
)

// memberPages is how many pages of what looks like a member of etcd are read: a kubelet can make any number of such
// Pods on its own Node, and must not keep those of others from being seen with a few.
const memberPages, membersOnPage = 20, 500

// members reads the members of etcd and their Nodes. // I12
func (l *looker) members(ctx context.Context) error {
	if !l.run.ControlPlane {
		return nil // only needed for a control-plane target
	}
	var pods []corev1.Pod
	for _, s := range policy.PodSpaces {
		if s.Etcd == "" {
			continue
		}
		page := metav1.ListOptions{LabelSelector: s.Label + "=" + s.Etcd, Limit: membersOnPage}
		for range memberPages {
			list, err := l.work.pods(ctx, s.Namespace, page)
			if err != nil {
				return fmt.Errorf("list the etcd Pods of %s: %w", s.Namespace, err)
			}
			pods = append(pods, list.Items...)
			if page.Continue = list.Continue; page.Continue == "" {
				break
			}
		}
		if page.Continue != "" {
			return fmt.Errorf("list the etcd Pods of %s: there are more than %d", s.Namespace, memberPages*membersOnPage)
		}
	}
	var found []policy.Member // one for each Node, healthy so far if all its Pods are Ready
	at := map[string]int{}
	for i := range pods {
		p := policyPod(&pods[i])
		if first, seen := at[p.Node]; seen {
			found[first].Healthy = found[first].Healthy && p.Ready
			continue
		}
		at[p.Node] = len(found)
		found = append(found, policy.Member{Node: p.Node, Healthy: p.Ready})
	}
	errs := make([]error, len(found))
	var g sync.WaitGroup
	for i := range found {
		g.Go(func() { found[i], errs[i] = l.member(ctx, found[i]) })
	}
	g.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	l.look.Members, l.look.MembersKnown = found, true
	return nil
}

// member is healthy if its Pods are Ready on a Ready Node.
func (l *looker) member(ctx context.Context, m policy.Member) (policy.Member, error) {
	ready := m.Healthy && m.Node != ""
	m.Healthy = false
	if !ready {
		return m, nil
	}
	n, err := l.work.node(ctx, m.Node)
	if isGone(err, m.Node) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read Node %s of an etcd member: %w", m.Node, err)
	}
	m.Healthy = policyNode(n).Ready()
	return m, nil
}
