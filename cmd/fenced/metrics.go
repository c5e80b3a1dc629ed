package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// metrics is the numbers as a subscriber of the engine's events, and, at each
// scrape, of its status. No label names a node: clusters are large.
type metrics struct {
	registry *prometheus.Registry
	results  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	failures *prometheus.CounterVec
	reads    *prometheus.HistogramVec
	engine   *engine.Engine // set before the first scrape
	sweep    *sweep.Sweep   // set before the first scrape
	armed    *prometheus.Desc
	paused   *prometheus.Desc
	owner    *prometheus.Desc
	epoch    *prometheus.Desc
	viewAge  *prometheus.Desc
	inFlight *prometheus.Desc
	waiting  *prometheus.Desc
	held     *prometheus.Desc
	expected *prometheus.Desc
	healthy  *prometheus.Desc
	allowed  *prometheus.Desc
	devices  *prometheus.Desc
	doubtful *prometheus.Desc
	deleting *prometheus.Desc
}

// checkLabels tell checks apart; a scrape in which two are the same is refused whole.
var checkLabels = []string{"cluster", "kind", "api_version", "namespace", "name", "source"}

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
		armed:    prometheus.NewDesc("fenced_armed", "1 when fenced acts without orders from people: on what checks find, or on requests.", []string{"cluster"}, nil),
		paused:   prometheus.NewDesc("fenced_paused", "1 while a person paused the cluster.", []string{"cluster"}, nil),
		owner:    prometheus.NewDesc("fenced_owner", "1 while this instance may act on the cluster.", []string{"cluster"}, nil),
		epoch:    prometheus.NewDesc("fenced_epoch", "Grows each time the cluster changes hands; 0 = nobody owns it.", []string{"cluster"}, nil),
		viewAge:  prometheus.NewDesc("fenced_view_age_seconds", "Age of the view of the cluster.", []string{"cluster"}, nil),
		inFlight: prometheus.NewDesc("fenced_remediations_in_flight", "Open runs by step.", []string{"cluster", "step"}, nil),
		waiting:  prometheus.NewDesc("fenced_remediations_waiting", "Runs that stopped for a reason that may heal, and go on by themselves.", []string{"cluster"}, nil),
		held:     prometheus.NewDesc("fenced_remediations_held", "Runs that need a human.", []string{"cluster"}, nil),
		expected: prometheus.NewDesc("fenced_check_targets", "Targets that a check counts.", checkLabels, nil),
		healthy:  prometheus.NewDesc("fenced_check_healthy", "Healthy targets of a check.", checkLabels, nil),
		allowed:  prometheus.NewDesc("fenced_check_allowed", "1 while a check's own limit allows remediation.", checkLabels, nil),
		devices:  prometheus.NewDesc("fenced_bmc_devices", "BMCs and outlets by what the newest look came to.", []string{"cluster", "driver", "state"}, nil),
		deleting: prometheus.NewDesc("fenced_machine_deletions", "Machines deleted by fenced that still exist, or whose Nodes do, by state.", []string{"cluster", "state"}, nil),
		doubtful: prometheus.NewDesc("fenced_bmc_not_dependable", "BMCs and outlets that a fence could not rely on.", []string{"cluster"}, nil),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fenced_build_info", Help: "1, with the version as a label.",
		ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(m.results, m.refusals, m.failures, m.reads, info, m,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// measureLog adds what the log lost.
func (m *metrics) measureLog(lost func() int) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fenced_log_lost_total",
		Help: "Log lines dropped because the journal, or who reads stderr, did not take them."}, func() float64 { return float64(lost()) }))
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

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.armed, m.paused, m.owner, m.epoch, m.viewAge, m.inFlight, m.waiting, m.held, m.expected, m.healthy, m.allowed, m.devices, m.doubtful} {
		ch <- d
	}
	ch <- m.deleting
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	devices, doubtful := m.sweep.Tally()
	for g, n := range devices {
		ch <- prometheus.MustNewConstMetric(m.devices, prometheus.GaugeValue, float64(n), g.Cluster, string(g.Driver), string(g.State))
	}
	for _, c := range m.engine.Status() {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.Name}, labels...)...)
		}
		gauge(m.deleting, float64(c.Deleting), "deleting")
		gauge(m.deleting, float64(c.Overdue), "overdue")
		gauge(m.armed, boolGauge(c.Armed))
		gauge(m.paused, boolGauge(c.Paused != ""))
		gauge(m.owner, boolGauge(c.Owner && c.Idle == ""))
		gauge(m.epoch, float64(c.Epoch))
		gauge(m.viewAge, c.View.Age.Seconds())
		gauge(m.doubtful, float64(doubtful[c.Name]))
		steps := map[remediate.Step]float64{}
		for _, r := range c.Runs {
			steps[r.Step]++
		}
		gauge(m.waiting, steps[remediate.Waiting])
		gauge(m.held, steps[remediate.Held])
		delete(steps, remediate.Waiting)
		delete(steps, remediate.Held)
		for step, n := range steps {
			gauge(m.inFlight, n, string(step))
		}
		for i := range c.Checks {
			k := &c.Checks[i]
			labels := []string{k.Kind, k.APIVersion, k.Namespace, k.Name, k.Source}
			gauge(m.expected, float64(k.Expected), labels...)
			gauge(m.healthy, float64(k.Healthy), labels...)
			gauge(m.allowed, boolGauge(k.Allowed), labels...)
		}
	}
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
