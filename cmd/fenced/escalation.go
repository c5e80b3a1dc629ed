package main

import (
	"context"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// escalation returns what asks other remediators. Without it, nobody is asked, and all else is as before.
func (d *fenced) escalation() *escalate.Escalation {
	return escalate.New(d.store, d.events.Emit, func(cluster string) escalate.Objects {
		if view := d.clusters.views.Get(cluster); view != nil {
			return requestObjects{k8swatch.NewHandovers(view)}
		}
		return nil
	})
}

// requestObjects implements escalate.Objects.
type requestObjects struct{ k8swatch.Handovers }

// Prepare implements escalate.Objects.
func (o requestObjects) Prepare(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, controlPlane bool) (escalate.Draft, error) {
	return o.Handovers.Prepare(ctx, check, t, from, controlPlane)
}
