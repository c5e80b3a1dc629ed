package fake

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// LockDuration is how long medik8s' Lease on a Node is valid.
const LockDuration = 5 * time.Minute

// NodeLock is medik8s' Lease on a Node.
type NodeLock struct {
	Holder  string
	Run     string // of fenced
	Renewed time.Time
}

// Expired reports whether nobody respects the Lease any more.
func (l NodeLock) Expired() bool { return time.Since(l.Renewed) > LockDuration }

// foreignLock returns who else than an installation of fenced holds the Lease on a
// Node.
func (s *State) foreignLock(node string) string {
	if l, ok := s.NodeLocks[node]; s.Medik8s && ok && l.Holder != s.LocksAs && !l.Expired() {
		return l.Holder + " holds the Lease node-" + node
	}
	return ""
}

// LockNode takes or renews the Lease on the Node of a run, as the API server would
// let fenced do it.
func (s *State) LockNode(r remediate.Run) (binds time.Duration, foreign string) {
	node := r.Target.Node
	held, ok := s.NodeLocks[node]
	switch foreign := s.foreignLock(node); {
	case !s.Medik8s:
		return 0, ""
	case foreign != "":
		return 0, foreign
	case !r.Step.Destructive() && (!ok || held.Holder != s.LocksAs):
		return 0, ""
	}
	s.NodeLocks[node] = NodeLock{s.LocksAs, r.ID, time.Now()}
	return LockDuration, ""
}

// UnlockNode gives back what LockNode took for a run.
func (s *State) UnlockNode(r remediate.Run) {
	if l := s.NodeLocks[r.Target.Node]; l.Holder == s.LocksAs && l.Run == r.ID {
		delete(s.NodeLocks, r.Target.Node)
	}
}

// LockNode implements engine.Kube.
func (c *Cluster) LockNode(_ context.Context, r remediate.Run) (binds time.Duration, foreign string, err error) {
	err = c.exchange(func(s *State) error { binds, foreign = s.LockNode(r); return nil })
	return binds, foreign, err
}

// UnlockNode implements engine.Kube.
func (c *Cluster) UnlockNode(_ context.Context, r remediate.Run) error {
	return c.exchange(func(s *State) error { s.UnlockNode(r); return nil })
}
