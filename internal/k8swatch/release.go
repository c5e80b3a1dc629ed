package k8swatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
)

// Bounds of one release.
const (
	releaseAtMost = 200 // pods, and as many VolumeAttachments; the next look asks for the rest
	releaseAtOnce = 8   // requests
)

// releasePods deletes the pods and the VolumeAttachments of the isolated Node, so
// that others take their place without waiting for controllers. A pod is forced
// out: the host that ran it is proven off. Each object is deleted by its UID. The
// Node is read after the lists: if it is still as the isolation left it, each pod
// in them was bound to it before, and none to a Node that registered since.
// // I2, I7
func releasePods(ctx context.Context, cl *client.Conn, run remediate.Run) error {
	node := run.Target.Node
	if run.Isolated.IsZero() {
		return fmt.Errorf("release the pods of Node %s: its isolation is not on the record", node)
	}
	reading, cancel := client.WithReadTimeout(ctx)
	defer cancel()
	pods, _, err := cl.PodsOf(reading, node)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != node || !isReleasable(&p, run.Isolation) })
	attachments, attachmentsErr := cl.AttachmentsOf(reading, node)
	if err := stillIsolated(reading, cl, run); err != nil {
		return errors.Join(fmt.Errorf("release the pods of Node %s: %w", node, err), attachmentsErr)
	}
	writing, cancel := client.WithWriteTimeout(ctx)
	defer cancel()
	podsErr := releaseEach(pods, func(p *corev1.Pod) error { return releasePod(writing, cl, p) })
	return errors.Join(podsErr, attachmentsErr,
		releaseEach(attachments, func(a *storagev1.VolumeAttachment) error { return releaseAttachment(writing, cl, a) }))
}

// releaseEach releases the first of the objects, some at once. It returns one of
// the errors.
func releaseEach[T any](list []T, release func(*T) error) (first error) {
	var g sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, releaseAtOnce)
	for i := range list[:min(len(list), releaseAtMost)] {
		places <- struct{}{}
		g.Go(func() {
			defer func() { <-places }()
			err := release(&list[i])
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
		})
	}
	g.Wait()
	return first
}

// isReleasable reports whether a pod is to be forced out. One that tolerates the
// taint is left where the Node stays: its controller would only put it there
// again. One that was forced out already waits for its finalizers.
func isReleasable(p *corev1.Pod, isolation remediate.Isolation) bool {
	forced := p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	return !forced && !(isolation == remediate.IsolateTaint && toleratesOutOfService(p))
}

// stillIsolated returns an error unless the Node is as the isolation left it.
func stillIsolated(ctx context.Context, cl *client.Conn, run remediate.Run) error {
	n, err := cl.Node(ctx, run.Target.Node)
	seen := remediate.Node{Exists: remediate.No}
	switch {
	case client.IsGone(err, run.Target.Node):
	case err != nil:
		return err
	default:
		seen = client.ObservedNode(n)
	}
	switch {
	case remediate.StillIsolated(run, seen):
		return nil
	case run.Isolation != remediate.IsolateTaint:
		return errors.New("a Node of this name exists again")
	}
	return errors.New("the tainted Node is gone or is being deleted, it is another one, or it has booted since")
}

// releasePod forces a pod out.
func releasePod(ctx context.Context, cl *client.Conn, p *corev1.Pod) error {
	now := int64(0)
	err := cl.Typed.Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if err != nil && !client.IsGone(err, p.Name) {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func toleratesOutOfService(p *corev1.Pod) bool {
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		key := t.Key == client.OutOfService.Key || t.Key == "" && t.Operator == corev1.TolerationOpExists
		effect := t.Effect == "" || t.Effect == client.OutOfService.Effect
		value := t.Operator == corev1.TolerationOpExists || t.Value == client.OutOfService.Value
		if key && effect && value {
			return true
		}
	}
	return false
}

func releaseAttachment(ctx context.Context, cl *client.Conn, a *storagev1.VolumeAttachment) error {
	err := cl.Typed.VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
	if err != nil && !client.IsGone(err, a.Name) {
		return fmt.Errorf("delete VolumeAttachment %s: %w", a.Name, err)
	}
	return nil
}

// isReleasing reports whether the run deletes the pods of its Node in this step.
func isReleasing(r *remediate.Run) bool {
	return r.Limits.ReleasePods && r.Step == remediate.PowerOn && r.Abandon == "" && r.Target.Node != ""
}

// volumes reads whether VolumeAttachments of the Node are left, for a run that
// releases them. A right that is missing is no outage of the API, so an error only
// leaves the answer open; the release itself says what failed.
func (l *looker) volumes(ctx context.Context) error {
	if !isReleasing(&l.run) {
		return nil
	}
	if left, err := l.work.AttachmentsOf(ctx, l.run.Target.Node); err == nil {
		l.look.Seen.VolumesReleased = remediate.Ask(len(left) == 0)
	}
	return nil
}
