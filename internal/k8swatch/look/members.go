package look

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/policy"
)

// A kubelet can make any number of Pods on its own Node that look like members of etcd, and must not keep those of
// others from being seen with a few.
const memberPages, membersOnPage = 20, 500

// members reads the members of etcd and their Nodes. // I12
func (l *looker) members(ctx context.Context) error {
	if !l.run.ControlPlane {
		return nil // only needed for a control-plane target
	}
	found, err := memberNodes(ctx, l.work)
	if err != nil {
		return err
	}
	errs := make([]error, len(found))
	var g sync.WaitGroup
	for i := range found {
		g.Go(func() { found[i], errs[i] = memberOn(ctx, l.work, found[i]) })
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

// memberNodes lists the Nodes with Pods of members. A member is healthy so far if all its Pods are Ready.
func memberNodes(ctx context.Context, api *client.Conn) (found []policy.Member, err error) {
	at := map[string]int{}
	for _, s := range policy.PodSpaces {
		if s.Etcd == "" {
			continue
		}
		page := metav1.ListOptions{LabelSelector: s.Label + "=" + s.Etcd, Limit: membersOnPage}
		for range memberPages {
			list, err := api.Pods(ctx, s.Namespace, page)
			if err != nil {
				return nil, fmt.Errorf("list the etcd Pods of %s: %w", s.Namespace, err)
			}
			for i := range list.Items {
				p := view.PolicyPod(&list.Items[i])
				if first, seen := at[p.Node]; seen {
					found[first].Healthy = found[first].Healthy && p.Ready
					continue
				}
				at[p.Node] = len(found)
				found = append(found, policy.Member{Node: p.Node, Healthy: p.Ready})
			}
			if page.Continue = list.Continue; page.Continue == "" {
				break
			}
		}
		if page.Continue != "" {
			return nil, fmt.Errorf("list the etcd Pods of %s: there are more than %d", s.Namespace, memberPages*membersOnPage)
		}
	}
	return found, nil
}

// memberOn reads the Node of a member, which is healthy if its Pods are Ready on a Ready Node.
func memberOn(ctx context.Context, api *client.Conn, m policy.Member) (policy.Member, error) {
	ready := m.Healthy && m.Node != ""
	m.Healthy = false
	if !ready {
		return m, nil
	}
	n, err := api.Node(ctx, m.Node)
	if client.IsGone(err, m.Node) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read Node %s of an etcd member: %w", m.Node, err)
	}
	m.Healthy = view.PolicyNode(n).Ready()
	return m, nil
}
