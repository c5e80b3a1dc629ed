package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubelets is how many goroutines post for all Nodes.
const kubelets = 8

// load posts Node status updates at a steady rate, one Node after the other:
// half of them heartbeats, half turn a condition that no check lists. Nobody
// else writes these Nodes, so each update starts from the answer to the last.
type load struct {
	client kubernetes.Interface
	nodes  []*corev1.Node
	rate   int // per second
	done   counter
}

// run posts until ctx ends. A cluster that answers too slowly lowers the rate,
// which is why the rate is measured.
func (l *load) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range kubelets {
		g.Go(func() error { return l.post(ctx, k) })
	}
	return g.Wait()
}

// post updates every kubelets-th Node, beginning with the first-th.
func (l *load) post(ctx context.Context, first int) error {
	interval := kubelets * time.Second / time.Duration(l.rate)
	if !sleep(ctx, interval*time.Duration(first)/kubelets) { // spreads the kubelets over the interval
		return nil
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i, round := first, 0; ; i += kubelets {
		if i >= len(l.nodes) {
			i, round = first, round+1
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		change := heartbeat
		if (i/kubelets+round)%2 == 1 {
			change = turn
		}
		change(l.nodes[i], time.Now())
		updated, err := l.client.CoreV1().Nodes().UpdateStatus(ctx, l.nodes[i], metav1.UpdateOptions{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("update the status of a Node: %w", err)
		}
		l.nodes[i] = updated
		l.done.Add(1)
	}
}
