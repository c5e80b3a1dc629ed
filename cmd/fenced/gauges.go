package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
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
	unread   *prometheus.Desc
	owner    *prometheus.Desc
	epoch    *prometheus.Desc
	viewAt   *prometheus.Desc
	refused  *prometheus.Desc
	inFlight *prometheus.Desc
	waiting  *prometheus.Desc
	held     *prometheus.Desc
	deleting *prometheus.Desc
	checks   *prometheus.Desc
	expected *prometheus.Desc
	healthy  *prometheus.Desc
	allowed  *prometheus.Desc
	devices  *prometheus.Desc
	doubtful *prometheus.Desc

	all []*prometheus.Desc
}

// Whoever may write checks adds series: in an instance for years, and in the memory of Prometheus. Checks without a namespace,
// which administrators write and which come first, and the first of each namespace have series of their own. fenced_checks counts all.
const (
	maxNamespaceChecks = 100
	maxClusterChecks   = 1000
)

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
	g.unread = describe("fenced_files_refused", "1 while nothing begins in the cluster, because a file of policies.d or hosts.d has an error.", "cluster")
	g.owner = describe("fenced_owner", "1 while this instance may act on the cluster.", "cluster")
	g.epoch = describe("fenced_epoch", "Grows each time the cluster changes hands; 0 = nobody owns it.", "cluster")
	g.viewAt = describe("fenced_view_timestamp_seconds", "Unix time at which the view of the cluster was last proven to be as new as the API; 0 = never since the start.", "cluster")
	g.refused = describe("fenced_targets_refused", "Targets that a check wants remediated, and Waiting runs, that something refuses now, by reason.", "cluster", "reason")
	g.inFlight = describe("fenced_remediations_in_flight", "Open runs by step.", "cluster", "step")
	g.waiting = describe("fenced_remediations_waiting", "Runs that stopped for a reason that may heal, and go on by themselves.", "cluster")
	g.held = describe("fenced_remediations_held", "Runs that need a human.", "cluster")
	g.deleting = describe("fenced_machine_deletions", "Machines deleted by fenced that still exist, or whose Nodes do, by state.", "cluster", "state")
	g.checks = describe("fenced_checks", "Checks that fenced evaluates, by state.", "cluster", "state")
	g.expected = describe("fenced_check_targets", "Targets that a check counts.", checkLabels...)
	g.healthy = describe("fenced_check_healthy", "Healthy targets of a check.", checkLabels...)
	g.allowed = describe("fenced_check_allowed", "1 while a check's own limit allows remediation.", checkLabels...)
	g.devices = describe("fenced_bmc_devices", "BMCs and outlets by the result of the newest reading.", "cluster", "driver", "state")
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
	for driver, states := range byDriver(devices) {
		for state, n := range states {
			ch <- prometheus.MustNewConstMetric(g.devices, prometheus.GaugeValue, float64(n), driver.cluster, string(driver.name), string(state))
		}
	}
	now := time.Now()
	for _, c := range g.status() {
		set := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.Name}, labels...)...)
		}
		set(g.armed, boolGauge(c.Armed))
		set(g.paused, boolGauge(c.Paused != ""))
		set(g.unread, boolGauge(c.FilesRefused != ""))
		set(g.owner, boolGauge(c.Owner && c.Idle == ""))
		set(g.epoch, float64(c.Epoch))
		set(g.viewAt, viewTimestamp(c.View, now))
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

// viewTimestamp is when the view was last good, in Unix seconds; 0 if it never was.
func viewTimestamp(v admit.View, now time.Time) float64 {
	if !v.Synced {
		return 0
	}
	return float64(now.Add(-v.Age).UnixMilli()) / 1000
}

// driverOf is a driver in a cluster that uses it.
type driverOf struct {
	cluster string
	name    bmc.Driver
}

// byDriver counts devices by driver and state, with every state of each driver that a cluster uses.
func byDriver(devices map[sweep.Group]int) map[driverOf]map[sweep.State]int {
	all := map[driverOf]map[sweep.State]int{}
	for k, n := range devices {
		driver := driverOf{k.Cluster, k.Driver}
		if all[driver] == nil {
			all[driver] = zeros(sweep.States)
		}
		all[driver][k.State] = n
	}
	return all
}

// zeros counts none of each.
func zeros[K comparable](list []K) map[K]int {
	counts := map[K]int{}
	for _, k := range list {
		counts[k] = 0
	}
	return counts
}

// collectRuns counts the open runs by step; those that stopped have metrics of their own.
func (g *gauges) collectRuns(runs []remediate.Run, set func(d *prometheus.Desc, v float64, labels ...string)) {
	steps := zeros(remediate.Steps)
	for i := range runs {
		steps[runs[i].Step]++
	}
	set(g.waiting, float64(steps[remediate.Waiting]))
	set(g.held, float64(steps[remediate.Held]))
	delete(steps, remediate.Waiting)
	delete(steps, remediate.Held)
	for step, n := range steps {
		set(g.inFlight, float64(n), string(step))
	}
}

// collectChecks counts the checks by state, and gives the first ones series of their own.
func (g *gauges) collectChecks(checks []policy.CheckReport, set func(d *prometheus.Desc, v float64, labels ...string)) {
	states, of, shown := zeros(policy.States), map[string]int{}, 0
	for i := range checks {
		k := &checks[i]
		states[k.State]++
		if of[k.Namespace]++; k.Namespace != "" && of[k.Namespace] > maxNamespaceChecks || shown == maxClusterChecks {
			continue
		}
		shown++
		labels := []string{k.Kind, k.APIVersion, k.Namespace, k.Name, strings.ToValidUTF8(k.Source, "?")}
		set(g.expected, float64(k.Expected), labels...)
		set(g.healthy, float64(k.Healthy), labels...)
		set(g.allowed, boolGauge(k.Allowed), labels...)
	}
	for state, n := range states {
		set(g.checks, float64(n), string(state))
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
