package k8swatch

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// mayIsolate asks the API server whether this user may isolate the Node of a run that waits because
// it could not: the next try powers the host off again, which is in vain without the right. An
// error is one of kind Forbidden if not.
func (l *looker) mayIsolate(ctx context.Context) error {
	r := l.run
	if !r.WaitsToIsolate() {
		return nil
	}
	verb := "delete"
	if r.Isolation == remediate.IsolateTaint {
		verb = "patch"
	}
	return l.work.Allows(ctx, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Name: r.Target.Node})
}

// mayLockNode asks the same about medik8s' Lease on the Node of a run that has not begun, where
// medik8s is installed: without the right the run would wait in vain for its interlock. It names
// nobody. // I22
func (l *looker) mayLockNode(ctx context.Context) (string, error) {
	if l.run.Intervened || l.run.Target.Node == "" {
		return "", nil
	}
	exists, err := l.medik8sLeases()
	return "", l.c.MayLock(ctx, l.work, l.run.Target.Node, exists, err)
}
