package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The test has longer times, for a machine that others keep busy.
var (
	// Half a second apart, because conditions begin at whole seconds: so two
	// decisions of one round do not meet.
	metalTimeout = 3 * time.Second
	cloudTimeout = 3500 * time.Millisecond
	// patience is how long after its deadline a target may be waited for.
	patience = 20 * time.Second
)

const (
	// warning is how long before its deadline a failure must be in the cluster.
	warning = 500 * time.Millisecond
	// stride is from one failure to the next.
	stride = 2 * time.Second
)

// failure is a target that was made to fail.
type failure struct {
	name     string
	deadline time.Time // when its check's timeout was over
}

// latencies fails one host and one cloud Machine after the other, and measures
// from their deadlines to what fenced did.
func (b *bench) latencies(ctx context.Context) error {
	var hosts, machines []failure
	next := time.Now().Truncate(time.Second).Add(stride)
	for i := range b.Samples {
		if !sleep(ctx, time.Until(next)) {
			return ctx.Err()
		}
		host, err := b.fail(ctx, b.fleet.metal[i], metalTimeout)
		if err != nil {
			return err
		}
		machine, err := b.fail(ctx, b.fleet.cloud[i], cloudTimeout)
		if err != nil {
			return err
		}
		hosts, machines = append(hosts, host), append(machines, machine)
		next = next.Add(stride)
	}
	for i, f := range hosts {
		d, err := b.firstByte(ctx, b.metal.targets[i], f)
		if err != nil {
			return err
		}
		b.result.Metal = append(b.result.Metal, d)
	}
	for _, f := range machines {
		d, err := b.deletion(ctx, f)
		if err != nil {
			return err
		}
		b.result.Cloud = append(b.result.Cloud, d)
	}
	return nil
}

// fail makes a Node's Ready Unknown since the second that runs.
func (b *bench) fail(ctx context.Context, n *corev1.Node, timeout time.Duration) (failure, error) {
	since := time.Now().Truncate(time.Second) // a condition has no fractions of a second
	fail(n, since)
	if _, err := b.fleet.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		return failure{}, fmt.Errorf("make Node %s fail: %w", n.Name, err)
	}
	if late := time.Since(since); late > timeout-warning {
		return failure{}, fmt.Errorf("make Node %s fail: that took until %s after its second began, too near to its deadline", n.Name, late)
	}
	return failure{name: n.Name, deadline: since.Add(timeout)}, nil
}

// firstByte is from the deadline to the first datagram at the host's BMC.
func (b *bench) firstByte(ctx context.Context, t *target, f failure) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, later(f.deadline, time.Now()).Add(patience))
	defer cancel()
	select {
	case at := <-t.asked:
		return at.Sub(f.deadline), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait until the BMC of %s is asked: %w", f.name, ctx.Err())
	}
}

// deletion is from the deadline to the arrival of the Machine's DELETE, by the
// API server's own audit log.
func (b *bench) deletion(ctx context.Context, f failure) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, later(f.deadline, time.Now()).Add(patience))
	defer cancel()
	for {
		found, err := b.cluster.Deletions("machines", f.name)
		if err != nil {
			return 0, err
		}
		if len(found) > 0 {
			return found[0].Received.Sub(f.deadline), nil
		}
		if !sleep(ctx, stride/4) {
			return 0, fmt.Errorf("wait for the deletion of Machine %s: %w", f.name, ctx.Err())
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// quantile is the smallest sample that the share q of all does not exceed.
func quantile(samples []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(0, rank-1)]
}
