package run

import (
	"context"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Fresh is what one uncached look at the cluster found.
type Fresh struct {
	Observation remediate.Observation // its cluster half
	Node        *policy.Node
	Machine     *policy.Machine
	// Cluster is the Cluster API's, where the Machine has one.
	Cluster *policy.Cluster
	// Members are the etcd members, read for control-plane runs. Unless
	// MembersKnown, nothing is known about them. // I12
	Members      []policy.Member
	MembersKnown bool
	// Lease is the kubelet's, as policy wants it.
	Lease policy.Lease
	Err   error
}

// Kube is the uncached reads and the few writes of one cluster. Every write
// carries the UID it was decided on.
type Kube interface {
	// Look reads the objects of a run past every cache. backups are the Nodes saved for the
	// run; nil = they could not be read. What could not be read stays unknown in the answer,
	// and Fresh.Err says why; there is no other error.
	Look(ctx context.Context, r remediate.Run, backups [][]byte) Fresh
	// Backup reads the target's Node, as JSON, with its UID and resourceVersion. It writes
	// nothing. An error means that the Node could not be read, or is not the target's. // I21
	Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error)
	// Act does one write of a run: not SendOff, SendOn or BackupNode. Doing it again is
	// harmless: what is done already is no error. A write that finds another UID or, for
	// the isolation, another resourceVersion than b's changes nothing and is an error. After
	// an error the write may have been done: only the next Look tells. // I2
	Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error
}
