package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// metrics are all metrics of the daemon: what is counted as it happens is here, what each scrape
// reads from the state is in gauges. No label names a node: clusters are large.
type metrics struct {
	registry *prometheus.Registry
	results  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	failures *prometheus.CounterVec
	reads    *prometheus.HistogramVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenced_remediations_total", Help: "Runs that ended, began to wait or were held, by result and reason."}, []string{"cluster", "result", "reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenced_refusals_total", Help: "Targets that a gate began to refuse, by reason."}, []string{"cluster", "reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenced_failures_total", Help: "Actions and saves that failed and are tried again."}, []string{"cluster", "reason"}),
		reads: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fenced_bmc_read_seconds", Help: "Time of a power reading by the health check, session set-up included.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"driver"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fenced_build_info", Help: "1, with the version as a label.",
		ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(m.results, m.refusals, m.failures, m.reads, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// measureState adds what each scrape reads from the engine and from the BMC health check.
func (m *metrics) measureState(e *engine.Engine, s *sweep.Sweep) {
	m.registry.MustRegister(newGauges(e.Status, s.Tally))
}

// measureLog adds what the log lost.
func (m *metrics) measureLog(lost func() int) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fenced_log_lost_total",
		Help: "Log lines dropped because the journal, or who reads stderr, did not take them."}, func() float64 { return float64(lost()) }))
}

// measureReport adds the Kubernetes Events that were not written.
func (m *metrics) measureReport(dropped func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fenced_kubernetes_events_dropped_total",
		Help: "Kubernetes Events that were not written: the API server did not answer or refused them, or there were too many."}, dropped))
}

// measureAudit adds the state of the audit log.
func (m *metrics) measureAudit(a *auditor) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fenced_audit_seq",
			Help: "Number of the newest durable entry of the audit log; 0 while it cannot be opened."}, a.seq),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fenced_audit_failures_total",
			Help: "Entries that the audit log lacks because it could not be written."}, a.failures),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fenced_audit_writable",
			Help: "0 while the audit log cannot be written: nothing destructive is done."}, func() float64 { _, err := a.trouble(); return boolGauge(err == nil) }),
	)
}

// observe counts an event.
func (m *metrics) observe(e event.Event) {
	switch {
	case e.Type == event.Stepped && (e.Step.Ended() || e.Step.Idle()):
		m.results.WithLabelValues(e.Cluster, string(e.Step), string(e.Reason)).Inc()
	case e.Type == event.Refused:
		m.refusals.WithLabelValues(e.Cluster, string(e.Reason)).Inc()
	case e.Type == event.Failed:
		m.failures.WithLabelValues(e.Cluster, string(e.Reason)).Inc()
	}
}

// forget drops what was counted of a cluster that is no longer configured.
func (m *metrics) forget(cluster string) {
	for _, counted := range []*prometheus.CounterVec{m.results, m.refusals, m.failures} {
		counted.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	}
}

// measured counts the time of a good look at a device.
func (m *metrics) measured(d bmc.Driver, took time.Duration) {
	m.reads.WithLabelValues(string(d)).Observe(took.Seconds())
}

// gauges are the metrics that each scrape reads from the status of the engine and from the BMC
// health check, so that they cannot differ from what fencectl shows.
type gauges struct {
	status func() []engine.ClusterStatus
	tally  func() (devices map[sweep.Group]int, notDependable map[string]int)

	armed    *prometheus.Desc
	paused   *prometheus.Desc
	owner    *prometheus.Desc
	epoch    *prometheus.Desc
	viewAge  *prometheus.Desc
	refused  *prometheus.Desc
	inFlight *prometheus.Desc
	waiting  *prometheus.Desc
	held     *prometheus.Desc
	deleting *prometheus.Desc
	expected *prometheus.Desc
	healthy  *prometheus.Desc
	allowed  *prometheus.Desc
	devices  *prometheus.Desc
	doubtful *prometheus.Desc

	all []*prometheus.Desc
}

// checkLabels tell checks apart; a scrape in which two are the same is refused whole.
var checkLabels = []string{"cluster", "kind", "api_version", "namespace", "name", "source"}

func newGauges(status func() []engine.ClusterStatus, tally func() (map[sweep.Group]int, map[string]int)) *gauges {
	g := &gauges{status: status, tally: tally}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, labels, nil)
		g.all = append(g.all, d)
		return d
	}
	g.armed = describe("fenced_armed", "1 when fenced acts without orders from people: on what checks find, or on requests.", "cluster")
	g.paused = describe("fenced_paused", "1 while a person paused the cluster.", "cluster")
	g.owner = describe("fenced_owner", "1 while this instance may act on the cluster.", "cluster")
	g.epoch = describe("fenced_epoch", "Grows each time the cluster changes hands; 0 = nobody owns it.", "cluster")
	g.viewAge = describe("fenced_view_age_seconds", "Age of the view of the cluster.", "cluster")
	g.refused = describe("fenced_targets_refused", "Targets that a check wants remediated, and Waiting runs, that something refuses now, by reason.", "cluster", "reason")
	g.inFlight = describe("fenced_remediations_in_flight", "Open runs by step.", "cluster", "step")
	g.waiting = describe("fenced_remediations_waiting", "Runs that stopped for a reason that may heal, and go on by themselves.", "cluster")
	g.held = describe("fenced_remediations_held", "Runs that need a human.", "cluster")
	g.deleting = describe("fenced_machine_deletions", "Machines deleted by fenced that still exist, or whose Nodes do, by state.", "cluster", "state")
	g.expected = describe("fenced_check_targets", "Targets that a check counts.", checkLabels...)
	g.healthy = describe("fenced_check_healthy", "Healthy targets of a check.", checkLabels...)
	g.allowed = describe("fenced_check_allowed", "1 while a check's own limit allows remediation.", checkLabels...)
	g.devices = describe("fenced_bmc_devices", "BMCs and outlets by what the newest look came to.", "cluster", "driver", "state")
	g.doubtful = describe("fenced_bmc_not_dependable", "BMCs and outlets that a fence could not rely on.", "cluster")
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	devices, doubtful := g.tally()
	for k, n := range devices {
		ch <- prometheus.MustNewConstMetric(g.devices, prometheus.GaugeValue, float64(n), k.Cluster, string(k.Driver), string(k.State))
	}
	for _, c := range g.status() {
		set := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.Name}, labels...)...)
		}
		set(g.armed, boolGauge(c.Armed))
		set(g.paused, boolGauge(c.Paused != ""))
		set(g.owner, boolGauge(c.Owner && c.Idle == ""))
		set(g.epoch, float64(c.Epoch))
		set(g.viewAge, c.View.Age.Seconds())
		set(g.deleting, float64(c.Deleting), "deleting")
		set(g.deleting, float64(c.Overdue), "overdue")
		set(g.doubtful, float64(doubtful[c.Name]))
		for code, targets := range refusedTargets(c.Refused) {
			set(g.refused, float64(len(targets)), string(code))
		}
		g.collectRuns(c.Runs, set)
		g.collectChecks(c.Checks, set)
	}
}

// collectRuns counts the open runs by step; those that stopped have metrics of their own.
func (g *gauges) collectRuns(runs []remediate.Run, set func(d *prometheus.Desc, v float64, labels ...string)) {
	steps := map[remediate.Step]float64{}
	for _, r := range runs {
		steps[r.Step]++
	}
	set(g.waiting, steps[remediate.Waiting])
	set(g.held, steps[remediate.Held])
	delete(steps, remediate.Waiting)
	delete(steps, remediate.Held)
	for step, n := range steps {
		set(g.inFlight, n, string(step))
	}
}

func (g *gauges) collectChecks(checks []policy.CheckReport, set func(d *prometheus.Desc, v float64, labels ...string)) {
	for i := range checks {
		k := &checks[i]
		labels := []string{k.Kind, k.APIVersion, k.Namespace, k.Name, k.Source}
		set(g.expected, float64(k.Expected), labels...)
		set(g.healthy, float64(k.Healthy), labels...)
		set(g.allowed, boolGauge(k.Allowed), labels...)
	}
}

// refusedTargets are the names of the refused targets, by reason. Two checks that refuse a target
// for one reason count once.
func refusedTargets(list []admit.Refused) map[reason.Code]map[string]bool {
	targets := map[reason.Code]map[string]bool{}
	for i := range list {
		r := &list[i]
		if targets[r.Gate.Reason] == nil {
			targets[r.Gate.Reason] = map[string]bool{}
		}
		targets[r.Gate.Reason][cmp.Or(r.Node, r.Machine)] = true
	}
	return targets
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// scrapeRetry is the pause between two attempts to listen on an address that is in use.
const scrapeRetry = 2 * time.Second

// scrapeDoor serves the metrics. Any user of the host can take its port first: that is logged,
// and nothing else depends on it.
type scrapeDoor struct {
	addr string
	log  *zap.Logger
	ln   net.Listener // nil while somebody else listens there
	told bool
}

// openMetrics listens before the daemon is ready, so that the metrics can be read from then on.
func openMetrics(addr string, log *zap.Logger) *scrapeDoor {
	d := &scrapeDoor{addr: addr, log: log}
	d.open()
	return d
}

func (d *scrapeDoor) open() {
	ln, err := net.Listen("tcp", d.addr)
	switch {
	case err != nil:
		d.logOnce(err)
	case d.told:
		d.told = false
		d.log.Info("metrics are served again", zap.String("address", d.addr))
	}
	d.ln = ln
}

// logOnce logs that the metrics are not served, once until they are served again.
func (d *scrapeDoor) logOnce(err error) {
	if !d.told {
		d.log.Warn("metrics are not served, which is tried again; fencing does not depend on them", zap.String("address", d.addr), zap.Error(err))
	}
	d.told = true
}

// keep answers scrapes until ctx ends.
func (d *scrapeDoor) keep(ctx context.Context, pages http.Handler) error {
	for {
		if d.ln != nil {
			if err := serveScrapes(ctx, d.ln, pages); ctx.Err() == nil {
				d.logOnce(err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(scrapeRetry):
		}
		d.open()
	}
}

// serveScrapes answers scrapes until ctx ends, or until the listener fails.
func serveScrapes(ctx context.Context, ln net.Listener, pages http.Handler) error {
	s := &http.Server{Handler: pages, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // a scrape cut short is no loss
	defer stop()
	return s.Serve(ln)
}
