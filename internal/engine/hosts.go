package engine

import (
	"context"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Inventory lists every host of every cluster, for the health check of BMCs.
func (e *Engine) Inventory(ctx context.Context) []hosts.Subject { return e.hosts.Inventory(ctx) }

// SubjectOf is the host of one Node. An error is a *reason.Refusal: nobody knows the
// Node, or it has no host; why a host cannot be used is in Subject.Err.
func (e *Engine) SubjectOf(ctx context.Context, cluster, node string) (hosts.Subject, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return hosts.Subject{}, err
	}
	return c.hosts.SubjectOf(ctx, node)
}

// Identify compares who answered at one device with whom the subject is said to be.
func (e *Engine) Identify(ctx context.Context, s hosts.Subject, level, device int, r bmc.Reading) guard.IdentityVerdict {
	return e.hosts.IdentifyDevice(ctx, s, level, device, r)
}

// Forbidden lists what forbids to switch a subject off whatever its Node does.
func (e *Engine) Forbidden(ctx context.Context, s hosts.Subject) []reason.Refusal {
	return e.hosts.Forbidden(ctx, s)
}

// Checked takes in what a health check found.
func (e *Engine) Checked(ctx context.Context, k hosts.Checked) { e.hosts.Checked(ctx, k) }

// Enroll stores a person's confirmation that the devices of a Node's host, as they are
// now, switch that very machine. A refusal is a *reason.Refusal. // I8, I10
func (e *Engine) Enroll(ctx context.Context, o order.Order) (hosts.Enrollment, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return hosts.Enrollment{}, err
	}
	return c.hosts.Enroll(ctx, o)
}

// Unfreeze ends the freeze of a Node's host, on the order of a person who knows why its BMC
// said Off falsely. Outcome.Still says why it must not be switched off all the same. // I5
func (e *Engine) Unfreeze(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return order.Outcome{}, err
	}
	return c.hosts.Unfreeze(ctx, o)
}

// viewed is the watched state of the cluster as hosts ask it.
type viewed struct {
	admit.Objects
	c *cluster
}

// Alive implements hosts.View.
func (v viewed) Alive(ctx context.Context, t remediate.Target, systemUUID string) (lease string, alive bool) {
	ctx, cancel := context.WithTimeout(ctx, run.LookTimeout)
	defer cancel()
	f := v.c.opt.Kube.Look(ctx, remediate.Run{Target: t}, nil)
	if f.Node == nil || !f.Node.Ready() || !f.Observation.Lease.Known || !bmc.UUIDsMatch(f.Node.SystemUUID, systemUUID) {
		return "", false
	}
	return f.Observation.Lease.ResourceVersion, true
}

// Wake implements hosts.View.
func (v viewed) Wake() { v.c.admit.Wake() }
