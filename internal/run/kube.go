package run

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Fresh is the result of one uncached look at the cluster.
type Fresh struct {
	Observation remediate.Observation // the fields that come from the cluster
	Node        *policy.Node
	Machine     *policy.Machine
	// Cluster is the Cluster API's Cluster of the Machine, if it has one.
	Cluster *policy.Cluster
	// Members are the etcd members. They are read for control-plane runs. If MembersKnown is
	// false, nothing is known about them. // I12
	Members      []policy.Member
	MembersKnown bool
	// Request is the remediation request of the run; nil if it is gone, or if there is none. It
	// counts only if RequestRead.
	Request     *policy.Request
	RequestRead bool
	// NoNodeLocks: the cluster has no Leases on Nodes, so there was nothing for LockNode to take.
	NoNodeLocks bool
	// Lease is the kubelet's.
	Lease policy.Lease
	// Err says what could not be read; nil if all was read.
	Err error
}

// Kube does the uncached reads and the few writes of one cluster. Every write carries the UID of
// the object that was decided on.
type Kube interface {
	// Look reads the objects of a run without any cache. backups are the Nodes saved for the
	// run; nil means that they could not be read. What could not be read stays unknown in the
	// result, and Fresh.Err says why. There is no other error.
	Look(ctx context.Context, r remediate.Run, backups [][]byte) Fresh
	// Backup returns the target's Node as JSON, with its UID and resourceVersion. It writes
	// nothing. An error means that the Node could not be read, or is not the target's. // I21
	Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error)
	// Restore gives the Node that has registered for a run what the backups have and it lacks, except
	// the keys that are in r.Restored for it. It returns the saved keys that an answer of the API server
	// showed on the Node, also beside an error. // I21
	Restore(ctx context.Context, r remediate.Run, backups [][]byte) (readBack []string, err error)
	// Act does one other write of a run, which is not SendOff, SendOn or BackupNode. It is
	// idempotent: what is done already is no error. If a write finds another UID or, for the
	// isolation, another resourceVersion than b's, it changes nothing and returns an error.
	// After an error the write may have been done: only the next Look shows it. // I2
	Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error
	// LockNode takes or renews the Lease with which other remediators keep away from the run's
	// Node. binds is for how long they do, from the start of the call; 0 if there is no such Lease
	// in this cluster. If somebody else holds it, LockNode writes nothing, and foreign says who
	// does. // I22
	LockNode(ctx context.Context, r remediate.Run) (binds time.Duration, foreign string, err error)
	// UnlockNode gives back what LockNode took for this run.
	UnlockNode(ctx context.Context, r remediate.Run) error
}
