package k8swatch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// maxMembers is more members than etcd can have.
const maxMembers = 50

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
		list, err := l.work.Pods(ctx, s.Namespace, metav1.ListOptions{LabelSelector: s.Label + "=" + s.Etcd, Limit: maxMembers})
		if err != nil {
			return fmt.Errorf("list the etcd Pods of %s: %w", s.Namespace, err)
		}
		if list.Continue != "" {
			return fmt.Errorf("list the etcd Pods of %s: there are more than %d", s.Namespace, maxMembers)
		}
		pods = append(pods, list.Items...)
	}
	found := make([]policy.Member, len(pods))
	errs := make([]error, len(pods))
	var g sync.WaitGroup
	for i := range pods {
		g.Go(func() { found[i], errs[i] = l.member(ctx, policyPod(&pods[i])) })
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

// member is healthy if its Pod is Ready on a Ready Node.
func (l *looker) member(ctx context.Context, p *policy.Pod) (policy.Member, error) {
	m := policy.Member{Node: p.Node}
	if p.Node == "" || !p.Ready {
		return m, nil
	}
	n, err := l.work.Node(ctx, p.Node)
	if client.IsGone(err, p.Node) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read Node %s of an etcd member: %w", p.Node, err)
	}
	m.Healthy = policyNode(n).Ready()
	return m, nil
}
