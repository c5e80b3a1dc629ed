package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/sweep"
)

// metrics are all metrics of the daemon: what is counted as it happens is here, what each scrape
// reads from the state is in gauges.go. No label names a node: clusters are large.
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
