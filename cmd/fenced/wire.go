package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/failpoint"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/logging"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/report"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/sweep"
)

// fenced is the wired daemon: a list of tasks in one errgroup.
type fenced struct {
	cfg      config.Config
	log      *zap.Logger
	store    state.Store
	audit    *auditor
	notes    *notes
	events   *event.Stream
	engine   *engine.Engine
	sweep    *sweep.Sweep
	report   *report.Report
	clusters []*k8swatch.Cluster
	metrics  *metrics
	notify   *notifier
	health   health
	own      ownBMC
	control  net.Listener
}

// build makes every part from the configuration. It takes the state file's
// lock and the socket, and talks to nobody yet. The warnings are those of the check
// of the configuration.
func build(ctx context.Context, file string, set, warnings []string) (_ *fenced, err error) {
	cfg, err := config.Load(file, set...)
	if err != nil {
		return nil, err
	}
	log, lines, err := logging.New(cfg.Log.Level)
	if err != nil {
		return nil, err
	}
	// What libraries log by themselves goes the same way: stderr may have no reader.
	zap.RedirectStdLog(log.Named("library"))
	k8swatch.LogTo(zap.NewStdLog(log.Named("client-go")).Writer())
	d := &fenced{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			_ = log.Sync() // it never fails
		}
	}()
	for _, w := range warnings {
		d.log.Warn(w)
	}
	entries, err := config.LoadHosts(cfg)
	if err != nil {
		return nil, err
	}
	policies, err := loadPolicies(cfg)
	if err != nil {
		return nil, err
	}
	if d.store, err = openWhole(ctx, cfg.State); err != nil {
		return nil, err
	}
	d.metrics, d.notify = newMetrics(version), newNotifier(d.log)
	d.metrics.measureLog(lines.Lost)
	if err := d.openAudit(ctx); err != nil {
		return nil, errors.Join(err, d.store.Close())
	}
	d.notes = recalledNotes(cfg.AuditPath(), d.log)
	d.events = event.NewStream(logEvents(d.log), d.metrics.observe, d.audit.observe, d.notes.observe)
	if err := d.buildEngine(ctx, entries, policies); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.listen(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.log.Info("configured", zap.String("version", version), zap.String("config", file),
		zap.Strings("clusters", cfg.ClusterNames()), zap.String("hosts", describeHosts(entries)))
	return d, nil
}

func (d *fenced) buildEngine(ctx context.Context, entries []config.HostEntry, policies manifest.Policies) error {
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
	if opt.StoreID, err = state.ID(ctx, d.store); err != nil {
		return err
	}
	opt.Instance = instance
	if opt.Owners, err = d.owners(instance); err != nil {
		return err
	}
	g := d.cfg.Guards
	for _, c := range d.cfg.Clusters {
		checks := checksOf(policies.Checks, c.Name, len(d.cfg.Clusters))
		k, err := k8swatch.New(k8swatch.Config{
			Name: c.Name, StoreID: opt.StoreID, Kubeconfig: c.Kubeconfig, Guard: config.CheckGuarded, Namespaces: c.Namespaces, FreshEvery: g.ViewMaxAge / 6,
			Management:                 k8swatch.ManagementConfig(c.Management),
			DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, Checks: checks, Metal3Remediations: c.Metal3Remediations,
			RemediateReadyNodes: c.RemediateReadyNodes,
		}, d.log)
		if err != nil {
			return configError{fmt.Errorf("cluster %s: %w", c.Name, err)}
		}
		d.clusters = append(d.clusters, k)
		opt.Clusters = append(opt.Clusters, engine.ClusterOptions{
			Name: c.Name, Mode: c.Mode, Reprovision: c.Reprovision, Isolation: remediate.Isolation(d.cfg.Isolation),
			IdentityMode: g.Identity, Watch: watch{k}, Kube: kube{k}, Pods: kube{k}.Pods, Checks: k, Requests: k.Requests(), Handovers: handovers{k8swatch.NewHandovers(k)}, RequestScope: c.RequestScope(), FileChecks: checks,
			FileBudgets: budgetsOf(policies.Budgets, c.Name, len(d.cfg.Clusters)),
			Rules: policy.Rules{
				ControlPlaneNever: g.ControlPlane == config.ControlPlaneNever, ExternalEtcd: g.ExternalEtcd,
				DeleteControlPlaneMachines: g.DeleteControlPlaneMachines, Instance: instance, ZoneKey: g.ZoneKey,
				MachineFailureReason: g.MachineFailureReason, WaitForUpgrade: g.WaitForUpgrade,
				RequestNamespaces: c.RequestNamespaces, ManagementApart: c.Management.Kubeconfig != "",
			},
			ControlPlaneIsolation: controlPlaneIsolation(d.cfg.ControlPlaneIsolation),
		})
	}
	opt.LastChecks = func(cluster, host string) []hosts.LastCheck { return d.sweep.LastChecks(cluster, host) } // nobody asks before run
	e, err := engine.New(ctx, failpoint.Wrap(opt))
	if err != nil {
		return err
	}
	d.sweep = sweep.New(sweep.Options{
		Engine: e, Open: actors.Patient(), Urgent: actors.Urgent(), Every: d.cfg.Sweep.Interval, ReadTimeout: p.ReadTimeout,
		Concurrency: sweep.DefaultConcurrency, OnEvent: d.events.Emit, OnLatency: d.metrics.measured,
	})
	d.engine, d.metrics.engine, d.metrics.sweep = e, e, d.sweep
	d.buildReport(instance)
	d.metrics.registry.MustRegister(newRefusedGauge(e.Status))
	return nil
}

// engineOptions are those of the engine that the configuration alone gives.
func (d *fenced) engineOptions() engine.Options {
	g, p := d.cfg.Guards, d.cfg.Power
	return engine.Options{
		Store: d.store, Events: d.events, PauseFile: d.cfg.Control.PauseFile, Record: d.audit.record,
		Power: power.ReadTiming{ReadTimeout: p.ReadTimeout, OffReadSpacing: p.OffReadSpacing},
		Guards: guard.Limits{
			QuietPeriod: g.QuietPeriod, ViewMaxAge: g.ViewMaxAge, ClockSkewMax: g.ClockSkewMax, MinPowerInterval: g.MinPowerInterval,
			MaxInFlight: g.MaxInFlight, MaxInFlightPercent: g.MaxInFlightPercent, MaxInFlightPerZone: g.MaxInFlightPerZone,
			ZoneBreakerPercent: g.ZoneBreakerPercent, ZoneBreakerMin: g.ZoneBreakerMin, MaxFencesPerDay: g.MaxFencesPerDay, ZoneKey: g.ZoneKey,
			MaxInFlightTotal: g.MaxInFlightTotal, StartsPerHour: g.StartsPerHour,
			MaxDeletions: g.MaxDeletions, DeletionsPerHour: g.DeletionsPerHour, DeletionTimeout: g.DeletionTimeout,
		},
		Run: remediate.Limits{
			OffDeadline: p.OffDeadline, APITimeout: p.APITimeout, PodsGoneTimeout: p.PodsGoneTimeout, OnDeadline: p.OnDeadline,
			ReadyTimeout: p.NodeReadyTimeout, RestoreTimeout: p.RestoreTimeout, RunTimeout: p.RunTimeout, RetryInterval: p.RetryInterval,
			SessionTimeout:   p.SessionTimeout,
			MinPowerInterval: g.MinPowerInterval, MaxAttempts: g.MaxAttempts, PowerOnFoundOff: g.PowerOnFoundOff, ReleasePods: d.cfg.ReleasePods,
		},
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

// controlPlaneIsolation is the configured one; auto is the engine's choice.
func controlPlaneIsolation(text string) remediate.Isolation {
	if text == config.IsolationAuto {
		return ""
	}
	return remediate.Isolation(text)
}

// configError is a problem that another start cannot cure: exit status 78.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// listen opens the control socket.
func (d *fenced) listen() (err error) {
	c := d.cfg.Control
	if d.control, err = openControl(c, d.log); err == nil {
		giveSocket(c.Socket, c.Group, d.log)
	}
	return err
}

// run starts every task and tells systemd that the daemon is ready. It returns
// when all have stopped: after a signal each run stops at its next save point.
func (d *fenced) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range d.clusters {
		g.Go(func() error { return c.Run(ctx) })
	}
	g.Go(func() error { return d.engine.Run(ctx, d.beat) })
	g.Go(func() error { return d.own.keep(ctx, d.engine.Status) })
	g.Go(func() error { return d.sweep.Run(ctx) })
	g.Go(func() error { return d.report.Run(ctx) })
	people := control{engine: d.engine, sweep: d.sweep, events: d.events, store: d.store, audit: d.audit, notes: d.notes, version: version}
	server := api.NewServer(people, apiRoles(d.cfg), zap.NewStdLog(d.log.Named("control")), twoPersons(d.cfg)...)
	g.Go(func() error { return server.Serve(ctx, d.control) })
	if addr := d.cfg.Metrics.Listen; addr != "" {
		door := openMetrics(addr, d.log.Named("metrics"))
		g.Go(func() error { return door.keep(ctx, d.pages()) })
	}
	g.Go(func() error { return d.audit.keep(ctx) })
	g.Go(func() error { return d.tell(ctx) })
	d.notify.send(daemon.SdNotifyReady)
	err := g.Wait()
	err = errors.Join(err, d.close())
	return errors.Join(err, d.log.Sync())
}

// openAudit opens the audit log, which names the store that it tells of.
func (d *fenced) openAudit(ctx context.Context) error {
	id, err := state.ID(ctx, d.store)
	if err != nil {
		return err
	}
	if d.audit, err = newAuditor(d.cfg.AuditPath(), id, d.log); err != nil {
		return err
	}
	d.audit.measure(d.metrics.registry)
	return nil
}

// close ends what is durable, when all tasks have ended.
func (d *fenced) close() error { return errors.Join(d.audit.close(), d.store.Close()) }

// beat is called by the loops that decide, at least every second.
func (d *fenced) beat() {
	d.notify.beat()
	d.own.pulse.beat()
	d.health.beat()
}

// tell keeps systemd's STATUS line true.
func (d *fenced) tell(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		d.notify.status(d.engine.Status())
		select {
		case <-ctx.Done():
			d.notify.send(daemon.SdNotifyStopping)
			return nil
		case <-tick.C:
		}
	}
}

// twoPersons are the verbs that two users must order.
func twoPersons(c config.Config) []api.Verb {
	var verbs []api.Verb
	for _, word := range c.Control.TwoPersons {
		verbs = append(verbs, api.Verb(strings.Replace(word, "bmc-", "bmc/", 1)))
	}
	return verbs
}

func apiRoles(c config.Config) api.Roles {
	r := c.Control.Roles
	return api.Roles{Viewer: r.Viewer, Operator: r.Operator, Admin: r.Admin}
}
