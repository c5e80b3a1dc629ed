package engine

import (
	"context"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
)

// cluster joins the parts of one cluster. Each part has its own lock.
type cluster struct {
	e             *Engine
	opt           ClusterOptions
	book          *admit.Book
	view          *admit.Freshness
	lead          *lead.Lead
	hosts         *hosts.Cluster
	admit         *admit.Cluster
	checksChanged chan struct{} // signals that the status of checks may have changed
	// requestsChanged signals that the status of remediation requests may have changed.
	requestsChanged chan struct{}
	// handoversChanged signals that requests for other remediators may have to be made.
	handoversChanged chan struct{}
}

func newCluster(ctx context.Context, e *Engine, o ClusterOptions) *cluster {
	c := &cluster{e: e, opt: o, checksChanged: make(chan struct{}, 1), requestsChanged: make(chan struct{}, 1), handoversChanged: make(chan struct{}, 1)}
	c.view = admit.NewFreshness(admit.FreshnessOptions{
		Watch: o.Watch, ViewMaxAge: e.opt.Guards.ViewMaxAge, SkewMax: e.opt.Guards.ClockSkewMax,
		QuietPeriod: e.opt.Guards.QuietPeriod, Awake: e.stayAwake,
	})
	c.book = admit.NewBook(admit.BookOptions{
		Name: o.Name, Guards: e.opt.Guards, Rules: o.Rules, FileChecks: o.FileChecks, FileBudgets: o.FileBudgets, AnnotatedMachines: o.Mode == guard.ModeRespond,
		Draft: admit.Drafter{
			Isolation: o.Isolation, ControlPlaneIsolation: o.ControlPlaneIsolation, Reprovision: o.Reprovision, Limits: e.opt.Run,
		},
	}, e.started)
	c.lead = lead.New(lead.Options{
		Name: o.Name, Instance: e.opt.Instance, StoreID: e.opt.StoreID, Cluster: leadCluster{c}, Owners: e.opt.Owners, Store: e.opt.Store,
		Slots: e.slots, Announcer: o.Kube, Awake: e.stayAwake, Emit: e.opt.Events.Emit,
	})
	c.hosts = e.hosts.Attach(ctx, hosts.ClusterOptions{Name: o.Name, IdentityMode: o.IdentityMode, View: hostsView{c.book.Objects(), c}, Lead: c.lead, Secrets: o.Kube})
	c.admit = admit.New(admit.Options{
		Name: o.Name, Mode: o.Mode, Guards: e.opt.Guards, Files: o.FileChecks, RequestScope: o.RequestScope, Book: c.book, View: c.view, Kube: o.Kube, Requests: o.Requests, Hosts: c.hosts,
		StoreID: e.opt.StoreID, Lead: c.lead, Slots: e.slots, Stop: e.stop, LockOut: e.lockOut, Open: e.opt.Open, Timing: e.opt.Power, LastChecks: e.opt.LastChecks,
		Record: e.opt.Record, Pods: o.Pods, Emit: e.opt.Events.Emit, Beat: func() { e.beat() },
		Decided: func() { c.notifyStatusWriter(); c.notifyRequestWriter(); c.notifyHandoverWriter() },
	})
	return c
}

func (c *cluster) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.e.opt.Events.Emit(ev)
}
