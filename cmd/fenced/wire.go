package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/failpoint"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/logging"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/report"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/etcdstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
)

// fenced is the wired daemon: a list of tasks in one errgroup.
type fenced struct {
	cfg      config.Config
	log      *zap.Logger
	level    zap.AtomicLevel
	store    state.Store
	storeID  string // tells whether two daemons share a store
	audit    *auditor
	notes    *timeline.Notes
	events   *event.Stream
	engine   *engine.Engine
	sweep    *sweep.Sweep
	report   *report.Report
	clusters *clusters
	metrics  *metrics
	notify   *notifier
	health   health
	own      ownBMC
	control  net.Listener
	reloader *reloader
}

// build makes every part from the configuration. It takes the state file's
// lock and the socket, and talks to nobody yet.
func build(ctx context.Context, file string, set []string, checked config.Checked) (_ *fenced, err error) {
	cfg, entries, level := checked.Config, checked.Hosts, zap.NewAtomicLevel()
	if err := setLevel(level, cfg.Log.Level); err != nil {
		return nil, err
	}
	log, lines := logging.New(level)
	// What libraries log by themselves goes the same way: stderr may have no reader.
	zap.RedirectStdLog(log.Named("library"))
	k8swatch.LogTo(zap.NewStdLog(log.Named("client-go")).Writer())
	d := &fenced{cfg: cfg, log: log, level: level}
	defer func() {
		if err != nil {
			_ = log.Sync() // it never fails
		}
	}()
	for _, w := range checked.Warnings {
		d.log.Warn(w)
	}
	for _, why := range refusedEntries(entries.Entries) {
		d.log.Error("a host is not fenced, because something is wrong in its entry of hosts.d: " + why + ": " + wire.CorrectFiles)
	}
	for _, err := range config.CheckCredentials(entries.Entries) {
		d.log.Error("a host is not fenced, because it has no credential, which only a restart brings", zap.Error(err))
	}
	policies, refused := readPolicies(cfg)
	if err := d.useStore(ctx); err != nil {
		return nil, err
	}
	d.metrics, d.notify = newMetrics(version), newNotifier(d.log)
	d.metrics.measureLog(lines.Lost)
	if err := d.openAudit(); err != nil {
		return nil, errors.Join(err, d.store.Close())
	}
	d.notes = recalledNotes(cfg.AuditPath(), d.log)
	d.events = event.NewStream(logEvents(d.log), d.metrics.observe, d.audit.observe, d.notes.Observe, d.pollAfterRun)
	if err := d.buildEngine(ctx, entries, policies, refused); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.listen(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.reloader = &reloader{d: d, file: file, set: set, running: cfg, hosts: entries, policies: policies, orders: make(chan reloadOrder)}
	for _, c := range cfg.Clusters {
		d.reloader.recordBuilt(c.Name)
	}
	d.log.Info("configured", zap.String("version", version), zap.String("config", file),
		zap.Strings("clusters", cfg.ClusterNames()), zap.String("hosts", fmt.Sprintf("%d hosts in hosts.d", len(entries.Entries))))
	return d, nil
}

func (d *fenced) buildEngine(ctx context.Context, entries config.Hosts, policies manifest.Policies, refused []*policyFile) error {
	p := d.cfg.Power
	actors := power.NewActors(opener(p.ReadTimeout))
	w := d.cfg.Watchdog
	d.own = ownBMC{BMC: openOwnBMC(w.Device, d.log), cfg: w, pulse: new(pulse), log: d.log}
	opt := d.engineOptions()
	opt.Hosts, opt.Own, opt.Open = newInventory(entries), ownHost(ctx, d.own.BMC, d.log), actors.Urgent()
	opt.Metal = metalRules(d.cfg, opt.Own.Addrs)
	instance, err := instanceName(d.cfg)
	if err != nil {
		return err
	}
	opt.StoreID, opt.Instance = d.storeID, instance
	if opt.Owners, err = d.owners(instance); err != nil {
		return err
	}
	d.clusters = &clusters{storeID: opt.StoreID, instance: instance, log: d.log}
	var built []builtCluster
	for _, c := range d.cfg.Clusters {
		d.metrics.follow(c.Name)
		why := filesRefused(d.cfg, c.Name, refused, entries)
		if why != "" {
			d.log.Error("nothing begins in a cluster, because of its files", zap.String("cluster", c.Name), zap.String("why", why+": "+wire.CorrectFiles))
		}
		b, err := d.clusters.build(d.cfg, c, policies, why)
		if err != nil {
			return err
		}
		built, opt.Clusters = append(built, b), append(opt.Clusters, b.options)
	}
	opt.Escalation = d.escalation()
	opt.LastChecks = func(cluster, host string) []hosts.LastCheck { return d.sweep.LastChecks(cluster, host) } // nobody asks before run
	e, err := engine.New(ctx, failpoint.Wrap(opt))
	if err != nil {
		return err
	}
	d.sweep = sweep.New(sweep.Options{
		Engine: swept{e}, Open: actors.Patient(), Urgent: actors.Urgent(), LockOut: e.LockOut, Every: d.cfg.Sweep.Interval, ReadTimeout: p.ReadTimeout,
		Concurrency: sweep.DefaultConcurrency, OnEvent: d.events.Emit, OnLatency: d.metrics.measured,
	})
	d.engine = e
	d.metrics.measureState(e, d.sweep)
	d.buildReport(instance)
	for _, b := range built {
		d.clusters.attach(b)
	}
	return nil
}

// pollAfterRun has the BMCs of a host read anew when a run of it has ended: the run knows more than the last poll.
func (d *fenced) pollAfterRun(e event.Event) {
	if d.sweep != nil && e.Type == event.Stepped && e.Step.Ended() {
		d.sweep.PollSoon(e.Cluster, cmp.Or(e.Node, e.Machine))
	}
}

// engineOptions are those of the engine that the configuration alone gives.
func (d *fenced) engineOptions() engine.Options {
	g, p := d.cfg.Guards, d.cfg.Power
	return engine.Options{
		Store: d.store, Events: d.events, PauseFile: d.cfg.Control.PauseFile, Record: d.audit.record, AuditTrouble: d.audit.problem,
		Power:  power.ReadTiming{ReadTimeout: p.ReadTimeout, OffReadSpacing: p.OffReadSpacing},
		Guards: guardLimits(g), Run: runLimits(d.cfg),
	}
}

// instanceName is this daemon's name in the annotation fenced.io/evaluator. It is
// never empty: that would take any name for ours.
func instanceName(c config.Config) (string, error) {
	if c.Instance != "" {
		return c.Instance, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host's name; set instance instead: %w", err)
	}
	return name, nil
}

// run starts every task and tells systemd that the daemon is ready. It returns
// when all have stopped: after a signal each run stops at its next save point.
func (d *fenced) run(ctx context.Context, reloads <-chan os.Signal) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.clusters.tasks.Run(ctx) })
	g.Go(func() error { return d.engine.Run(ctx, d.beat) })
	g.Go(func() error { return d.own.keep(ctx, d.engine.Status) })
	g.Go(func() error { return d.sweep.Run(ctx) })
	g.Go(func() error { return d.report.Run(ctx) })
	people := control{engine: d.engine, sweep: d.sweep, events: d.events, store: d.store, audit: d.audit, notes: d.notes, level: d.level, reloader: d.reloader, clusters: d.clusters, surveys: newSurveys(), version: version}
	server := api.NewServer(people, api.Roles(d.cfg.Control.Roles), zap.NewStdLog(d.log.Named("control")), twoPersons(d.cfg)...)
	g.Go(func() error { return server.Serve(ctx, d.control) })
	if addr := d.cfg.Metrics.Listen; addr != "" {
		door := openMetrics(addr, d.log.Named("metrics"))
		g.Go(func() error { return door.keep(ctx, d.pages()) })
	}
	g.Go(func() error { return d.audit.keep(ctx) })
	g.Go(func() error { return d.tell(ctx) })
	g.Go(func() error { return d.reloader.keep(ctx, reloads) })
	d.notify.send(daemon.SdNotifyReady)
	err := g.Wait()
	err = errors.Join(err, d.close())
	return errors.Join(err, d.log.Sync())
}

// close ends what is durable, when all tasks have ended.
func (d *fenced) close() error { return errors.Join(d.audit.close(), d.store.Close()) }

// useStore opens the store of the daemon and reads its ID.
func (d *fenced) useStore(ctx context.Context) (err error) {
	if d.store, err = openWhole(ctx, d.cfg.State); err != nil {
		return err
	}
	if d.storeID, err = state.ID(ctx, d.store); err != nil {
		return errors.Join(err, d.store.Close())
	}
	return nil
}

// openStore opens the state: a file for this daemon alone, or an etcd that several
// share.
func openStore(ctx context.Context, c config.State) (state.Store, error) {
	if c.Engine != config.EngineEtcd {
		return boltstore.Open(c.Path)
	}
	e := c.Etcd
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: e.Endpoints, CA: e.CA, Cert: e.Cert, Key: e.Key, Prefix: e.Prefix})
}

// openWhole opens the state, and refuses what an import left half done: only another
// import cures that.
func openWhole(ctx context.Context, c config.State) (state.Store, error) {
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := state.CheckComplete(ctx, s); err != nil {
		if errors.Is(err, state.ErrIncompleteImport) {
			err = configError{err}
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// owners says which clusters this daemon acts on among those that share its store; nil
// is all.
func (d *fenced) owners(instance string) (state.Owners, error) {
	if d.cfg.State.Engine != config.EngineEtcd {
		return nil, nil
	}
	return etcdstore.NewOwners(d.store, etcdstore.OwnersConfig{Instance: instance})
}

// watch and kube are a cluster as internal/admit and internal/run see it. The types of
// k8swatch are its own: it is the only importer of client-go and imports nothing that acts.
type watch struct{ *k8swatch.Cluster }

// View implements admit.Watch.
func (w watch) View() admit.View { return admit.View(w.Cluster.View()) }

// kube implements engine.Kube.
type kube struct{ *k8swatch.Cluster }

// Look implements run.Kube.
func (k kube) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	l := k.Cluster.Look(ctx, r, backups)
	return run.Fresh{Observation: l.Seen, Node: l.FreshNode, Machine: l.FreshMachine, Cluster: l.Cluster, NoNodeLocks: l.NoNodeLocks,
		Members: l.Members, MembersKnown: l.MembersKnown, Lease: l.Lease, Request: l.Request, RequestRead: l.RequestRead, PodsLeft: l.PodsLeft, Err: l.Err}
}

// Pods lists the pods on a Node, as engine.ClusterOptions wants it.
func (k kube) Pods(ctx context.Context, node string) (wire.Pods, error) {
	names, more, err := k.Cluster.Pods(ctx, node)
	return wire.PodsOf(names, more), err
}

// Announce implements lead.Announcer.
func (k kube) Announce(ctx context.Context, a lead.Announcement) (time.Duration, string, error) {
	return k.Cluster.Announce(ctx, k8swatch.Announcement(a))
}

// Holder implements lead.Announcer.
func (k kube) Holder(ctx context.Context, a lead.Announcement) (string, error) {
	return k.Cluster.Holder(ctx, k8swatch.Announcement(a))
}

// guardLimits are the guards of the configuration.
func guardLimits(g config.Guards) guard.Limits {
	return guard.Limits{
		QuietPeriod: g.QuietPeriod, ViewMaxAge: g.ViewMaxAge, ClockSkewMax: g.ClockSkewMax, MinPowerInterval: g.MinPowerInterval,
		MaxInFlight: g.MaxInFlight, MaxInFlightPercent: g.MaxInFlightPercent, MaxInFlightPerZone: g.MaxInFlightPerZone,
		ZoneBreakerPercent: g.ZoneBreakerPercent, ZoneBreakerMin: g.ZoneBreakerMin, MaxFencesPerDay: g.MaxFencesPerDay, ZoneKey: g.ZoneKey,
		MaxInFlightTotal: g.MaxInFlightTotal, StartsPerHour: g.StartsPerHour,
		MaxDeletions: g.MaxDeletions, DeletionsPerHour: g.DeletionsPerHour, DeletionTimeout: g.DeletionTimeout,
	}
}

// runLimits are the deadlines and limits of a run that starts with the configuration.
func runLimits(c config.Config) remediate.Limits {
	g, p := c.Guards, c.Power
	return remediate.Limits{
		OffDeadline: p.OffDeadline, APITimeout: p.APITimeout, PodsGoneTimeout: p.PodsGoneTimeout, OnDeadline: p.OnDeadline,
		ReadyTimeout: p.NodeReadyTimeout, RestoreTimeout: p.RestoreTimeout, RunTimeout: p.RunTimeout, RetryInterval: p.RetryInterval,
		SessionTimeout:   p.SessionTimeout,
		MinPowerInterval: g.MinPowerInterval, MaxAttempts: g.MaxAttempts, PowerOnFoundOff: g.PowerOnFoundOff, ReleasePods: c.ReleasePods,
	}
}

// controlPlaneIsolation is the configured one; auto is the engine's choice.
func controlPlaneIsolation(text string) remediate.Isolation {
	if text == config.IsolationAuto {
		return ""
	}
	return remediate.Isolation(text)
}

// buildReport makes what tells the clusters of the runs, when they are attached.
func (d *fenced) buildReport(instance string) {
	look := engine.NewLookup(d.engine)
	state := func(cluster string) report.State {
		now, _ := look.Status(cluster)
		return reportState(now)
	}
	d.report = report.New(report.Options{
		Events: d.events, State: state, Instance: instance,
		Run: look.Run, Target: look.Target, Present: look.Present, Course: d.notes.Between, OffReadSpacing: d.cfg.Power.OffReadSpacing,
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
