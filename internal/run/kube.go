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
	// Look takes the Nodes saved for this run; nil = they could not be read.
	Look(ctx context.Context, r remediate.Run, backups [][]byte) Fresh
	Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error)
	Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error
}
