package k8swatch

import (
	"context"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Judged says whether the controller that judges checks of this kind in the
// cluster is alive: while it is, their status is its own. A kind without such a
// controller has a status that nobody here writes.
func (c *Cluster) Judged(ctx context.Context, id policy.CheckID) (remediate.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	who, err := "", error(nil)
	switch groupOf(id.APIVersion) {
	case machineGroup:
		who, err = holder(ctx, c.work.api(), machineAPINamespace, deletingLeader)
	case clusterGroup:
		who, err = clusterManager(ctx, c.manage.api())
	default:
		return remediate.Yes, nil
	}
	if err != nil {
		return remediate.CannotTell, err
	}
	return remediate.Ask(who != ""), nil
}
