package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// metrics are all metrics of the daemon: what is counted as it happens is here, what each scrape
// reads from the state is in gauges. No label names a Node: clusters are large. Every series that is
// counted is there with 0 before anything happens: increase() of Prometheus does not see a series
// begin, and what happens once a week would never show.
type metrics struct {
	registry *prometheus.Registry

	begins   *prometheus.CounterVec
	ends     *prometheus.CounterVec
	waiting  *prometheus.CounterVec
	held     *prometheus.CounterVec
	refusals *prometheus.CounterVec
	failures *prometheus.CounterVec
	runTime  *prometheus.HistogramVec
	stepTime *prometheus.HistogramVec
	reads    *prometheus.HistogramVec

	mu       sync.Mutex
	followed map[string]bool // the clusters that are counted
}

// noClass is the label of what has no reason code, or one that stops nothing. An empty label would be none.
const noClass = "none"

// runBuckets and stepBuckets are upper bounds in seconds: BMCs answer within seconds, hosts boot for minutes.
var (
	runBuckets  = []float64{15, 30, 60, 120, 300, 600, 900, 1800, 3600}
	stepBuckets = []float64{1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600}
)

func newMetrics(version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), followed: map[string]bool{}}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	measure := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.begins = count("fenced_remediation_begins_total", "Runs that began.", "cluster")
	m.ends = count("fenced_remediations_total", "Runs that ended, by result.", "cluster", "result")
	m.waiting = count("fenced_remediation_waiting_begins_total", "Times a run began to wait, by the class of the reason.", "cluster", "class")
	m.held = count("fenced_remediation_held_begins_total", "Times a run became Held, by the class of the reason.", "cluster", "class")
	m.refusals = count("fenced_refusals_total", "Times something began to refuse a target, by the class of the reason.", "cluster", "class")
	m.failures = count("fenced_failures_total", "Actions and saves that failed and are tried again, by the class of the reason.", "cluster", "class")
	m.runTime = measure("fenced_remediation_duration_seconds", "Time from the begin of a run to its end, waits included.", runBuckets, "cluster", "result")
	m.stepTime = measure("fenced_remediation_step_duration_seconds", "Time that a run stayed in a step.", stepBuckets, "step")
	m.reads = measure("fenced_bmc_read_seconds", "Time of a power reading by the health check, session set-up included.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "driver")
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fenced_build_info", Help: "1, with the version, the revision of the source and the version of Go as labels.",
		ConstLabels: prometheus.Labels{"version": version, "revision": sourceRevision(), "goversion": runtime.Version()}})
	info.Set(1)
	m.registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, step := range remediate.Steps {
		m.stepTime.WithLabelValues(string(step))
	}
	for _, d := range bmc.Drivers() {
		m.reads.WithLabelValues(string(d.Name))
	}
	for _, class := range classLabels() {
		m.failures.WithLabelValues("", class) // of the daemon itself
	}
	return m
}

// classLabels are all values of the label class.
func classLabels() []string {
	all := []string{noClass}
	for _, class := range reason.Classes {
		all = append(all, string(class))
	}
	return all
}

func classLabel(code reason.Code) string {
	if class := reason.ClassOf(code); class != "" {
		return string(class)
	}
	return noClass
}

// follow begins to count for a cluster: all its series are there with 0.
func (m *metrics) follow(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed[cluster] = true
	m.begins.WithLabelValues(cluster)
	for _, end := range remediate.Ends {
		m.ends.WithLabelValues(cluster, string(end))
		m.runTime.WithLabelValues(cluster, string(end))
	}
	for _, class := range classLabels() {
		for _, counter := range []*prometheus.CounterVec{m.waiting, m.held, m.refusals, m.failures} {
			counter.WithLabelValues(cluster, class)
		}
	}
}

// forget drops what was counted of a cluster that is no longer configured.
func (m *metrics) forget(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.followed, cluster)
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.begins, m.ends, m.waiting, m.held, m.refusals, m.failures, m.runTime} {
		vec.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	}
}

// observe counts an event. A late event of a cluster that is no longer configured does not count: nobody would
// drop its series any more.
func (m *metrics) observe(e event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := classLabel(e.Reason)
	switch {
	case e.Type == event.Failed && e.Cluster == "":
		m.failures.WithLabelValues("", class).Inc()
	case !m.followed[e.Cluster]:
	case e.Type == event.Started:
		m.begins.WithLabelValues(e.Cluster).Inc()
	case e.Type == event.Stepped:
		m.observeStep(e, class)
	case e.Type == event.Refused:
		m.refusals.WithLabelValues(e.Cluster, class).Inc()
	case e.Type == event.Failed:
		m.failures.WithLabelValues(e.Cluster, class).Inc()
	}
}

// observeStep counts that a run left a step, and that it began to wait, became Held or ended.
func (m *metrics) observeStep(e event.Event, class string) {
	if left := e.Left; left.Step != "" && !left.Step.Idle() {
		m.stepTime.WithLabelValues(string(left.Step)).Observe(between(left.Started, left.Ended))
	}
	switch {
	case e.Step == remediate.Waiting:
		m.waiting.WithLabelValues(e.Cluster, class).Inc()
	case e.Step == remediate.Held:
		m.held.WithLabelValues(e.Cluster, class).Inc()
	case e.Step.Ended():
		m.ends.WithLabelValues(e.Cluster, string(e.Step)).Inc()
		m.runTime.WithLabelValues(e.Cluster, string(e.Step)).Observe(between(e.Began, e.Left.Ended))
	}
}

// between is the time from a to b in seconds. It is 0 if the clock was set back between them: the times come from
// records.
func between(a, b time.Time) float64 { return max(0, b.Sub(a).Seconds()) }

// measured counts the time of a good look at a device.
func (m *metrics) measured(d bmc.Driver, took time.Duration) {
	m.reads.WithLabelValues(string(d)).Observe(took.Seconds())
}

// measureState adds what each scrape reads from the engine and from the BMC health check.
func (m *metrics) measureState(e *engine.Engine, s *sweep.Sweep) {
	m.registry.MustRegister(newGauges(e.Status, s.Tally))
}

// measureLog adds what the log lost.
func (m *metrics) measureLog(lost func() int) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fenced_log_lost_total",
		Help: "Log lines dropped because the journal, or whatever reads stderr, did not accept them."}, func() float64 { return float64(lost()) }))
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
