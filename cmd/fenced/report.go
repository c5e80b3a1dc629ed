package main

import (
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/report"
)

// buildReport makes what tells the clusters of the runs, when they are attached.
func (d *fenced) buildReport(instance string) {
	look := engine.NewLookup(d.engine)
	state := func(cluster string) report.State {
		now, _ := look.Status(cluster)
		return reportState(now)
	}
	d.report = report.New(report.Options{
		Events: d.events, State: state, Instance: instance,
		Run: look.Run, Target: look.Target, Present: look.Present, OffReadSpacing: d.cfg.Power.OffReadSpacing,
	})
	d.clusters.report = d.report
	d.metrics.measureReport(d.eventsDropped)
}

// reportState is the state of a cluster for internal/report.
func reportState(c engine.ClusterStatus) report.State {
	s := report.State{Acts: c.Owner && c.Idle == "", Armed: c.Armed, Runs: c.Runs}
	for i := range c.Checks {
		if k := &c.Checks[i]; k.UID != "" { // a check from a file has none
			s.Checks = append(s.Checks, event.Check{APIVersion: k.APIVersion, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, UID: k.UID})
		}
	}
	return s
}

// eventsDropped counts what the clusters were not told.
func (d *fenced) eventsDropped() float64 {
	return float64(d.report.Lost() + d.clusters.eventsDropped())
}
