package k8swatch

import (
	"context"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// ControllerAlive reports whether the controller of checks of this kind is alive in the
// cluster. While it is, only that controller writes their status. The status of a
// kind without a controller is not written at all.
func (c *Cluster) ControllerAlive(ctx context.Context, id policy.CheckID) (remediate.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	who, err := "", error(nil)
	switch client.GroupOf(id.APIVersion) {
	case client.MachineGroup:
		who, err = c.leaders.at(ctx, c.work.API(), machineAPINamespace, checkLeader)
	case client.ClusterGroup:
		who, err = c.leaders.in(ctx, c.manage.API(), clusterAPILeader)
	case client.Medik8sGroup:
		who, err = c.leaders.in(ctx, c.work.API(), nodeCheckLeader)
	default:
		return remediate.Yes, nil
	}
	if err != nil {
		return remediate.CannotTell, err
	}
	return remediate.Ask(who != ""), nil
}
