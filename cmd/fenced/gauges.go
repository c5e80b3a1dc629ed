package main

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

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
