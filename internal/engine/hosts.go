package engine

import (
	"context"
	"iter"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// Inventory lists every host of every cluster, for the health check of BMCs.
func (e *Engine) Inventory(ctx context.Context) iter.Seq[hosts.Subject] {
	return e.hosts.Inventory(ctx)
}

// SubjectOf returns the host of one Node. An error is a *reason.Refusal: the Node is not
// known, or it has no host. Subject.Err says why a host cannot be used.
func (e *Engine) SubjectOf(ctx context.Context, cluster, node string) (hosts.Subject, error) {
	return inCluster(e, cluster, func(c *clusterParts) (hosts.Subject, error) { return c.hosts.SubjectOf(ctx, node) })
}

// Identify compares the identity that one device reports with that of the subject.
func (e *Engine) Identify(ctx context.Context, s hosts.Subject, level, device int, r bmc.Reading) guard.IdentityVerdict {
	return e.hosts.IdentifyDevice(ctx, s, level, device, r)
}

// Forbidden lists why a subject must not be powered off, whatever the state of its Node.
func (e *Engine) Forbidden(ctx context.Context, s hosts.Subject) []reason.Refusal {
	return e.hosts.Forbidden(ctx, s)
}

// Checked records the result of a BMC health check.
func (e *Engine) Checked(ctx context.Context, k hosts.Checked) { e.hosts.Checked(ctx, k) }

// Enroll stores a person's confirmation that the devices of a Node's host, as they are
// configured now, switch that machine. A refusal is a *reason.Refusal. // I8, I10
func (e *Engine) Enroll(ctx context.Context, o wire.Order) (hosts.Enrollment, error) {
	return inCluster(e, o.Cluster, func(c *clusterParts) (hosts.Enrollment, error) { return c.hosts.Enroll(ctx, o) })
}

// Unfreeze ends the freeze of a Node's host, by order of a person who knows why its BMC
// falsely read Off. Outcome.Still says what else still forbids to power the host off. // I5
func (e *Engine) Unfreeze(ctx context.Context, o wire.Order) (order.Outcome, error) {
	return inCluster(e, o.Cluster, func(c *clusterParts) (order.Outcome, error) { return c.hosts.Unfreeze(ctx, o) })
}
