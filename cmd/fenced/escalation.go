package main

import (
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/k8swatch"
)

// escalation returns what asks other remediators. Without it, nobody is asked, and all else is as before.
func (d *fenced) escalation() *escalate.Escalation {
	return escalate.New(d.store, d.events.Emit, func(cluster string) escalate.Objects {
		if view := d.clusters.views.Get(cluster); view != nil {
			return k8swatch.NewHandovers(view)
		}
		return nil
	})
}
