package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/test/must"
)

// scrape reads the metrics as Prometheus does: the value of each series.
func scrape(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	series := map[string]float64{}
	for line := range strings.Lines(answer.Body.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "fenced_") {
			at := strings.LastIndex(line, " ")
			series[line[:at]] = must.Do(strconv.ParseFloat(line[at+1:], 64))(t)
		}
	}
	return series
}

// metricsOf has the gauges of these clusters, all of which are followed.
func metricsOf(clusters []engine.ClusterStatus, devices map[sweep.Group]int) *metrics {
	m := newMetrics("1")
	for _, c := range clusters {
		m.follow(c.Name)
	}
	m.registry.MustRegister(newGauges(func() []engine.ClusterStatus { return clusters }, func() (map[sweep.Group]int, map[string]int) { return devices, nil }))
	return m
}

// constants are the values of a type of strings, as its file declares them.
func constants(t *testing.T, file, typ string) (list []string) {
	t.Helper()
	f := must.Do(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typ {
			for _, v := range spec.Values {
				list = append(list, must.Do(strconv.Unquote(v.(*ast.BasicLit).Value))(t))
			}
		}
		return true
	})
	require.NotEmpty(t, list, file)
	return list
}

// increase() does not see a series begin, so each one that can be listed is there before anything happens.
func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	now := scrape(t, metricsOf([]engine.ClusterStatus{{Name: "prod"}}, map[sweep.Group]int{{Cluster: "prod", Driver: bmc.DriverIPMI, State: sweep.StateOK}: 0}).registry)
	var want []string
	add := func(format string, args ...any) { want = append(want, fmt.Sprintf(format, args...)) }
	for _, name := range []string{"remediation_begins_total", "remediations_waiting", "remediations_held", "paused"} {
		add(`fenced_%s{cluster="prod"}`, name)
	}
	for _, step := range constants(t, "../../internal/remediate/run.go", "Step") {
		switch s := remediate.Step(step); {
		case s.Ended():
			add(`fenced_remediations_total{cluster="prod",result=%q}`, step)
			add(`fenced_remediation_duration_seconds_count{cluster="prod",result=%q}`, step)
			add(`fenced_remediation_duration_seconds_bucket{cluster="prod",result=%q,le="3600"}`, step)
		case !s.Idle():
			add(`fenced_remediation_step_duration_seconds_count{step=%q}`, step)
			add(`fenced_remediations_in_flight{cluster="prod",step=%q}`, step)
		}
	}
	for _, class := range append(constants(t, "../../internal/reason/class.go", "Class"), noClass) {
		for _, name := range []string{"remediation_waiting_begins_total", "remediation_held_begins_total", "refusals_total", "failures_total"} {
			add(`fenced_%s{class=%q,cluster="prod"}`, name, class)
		}
		add(`fenced_failures_total{class=%q,cluster=""}`, class)
	}
	for _, state := range constants(t, "../../internal/policy/decide.go", "State") {
		add(`fenced_checks{cluster="prod",state=%q}`, state)
	}
	for _, state := range constants(t, "../../internal/sweep/result.go", "State") {
		add(`fenced_bmc_devices{cluster="prod",driver="ipmi",state=%q}`, state)
	}
	for _, d := range bmc.Drivers() {
		add(`fenced_bmc_read_seconds_count{driver=%q}`, d.Name)
	}
	for _, series := range want {
		value, there := now[series]
		assert.True(t, there, series)
		assert.Zero(t, value, series)
	}
}

// Ends count once, with the time of the run. To wait and to be held count by themselves, and are no end.
func TestRunsAreCounted(t *testing.T) {
	m := newMetrics("1")
	m.follow("prod")
	began := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	stepped := func(to remediate.Step, why reason.Code, left remediate.Step, from, until int) {
		m.observe(event.Event{Type: event.Stepped, Cluster: "prod", Step: to, Reason: why, Began: began,
			Left: remediate.Visit{Step: left, Started: at(from), Ended: at(until)}})
	}
	m.observe(event.Event{Type: event.Started, Cluster: "prod"})
	stepped(remediate.Waiting, "BMCUnreachable", remediate.PowerOff, 0, 45)
	stepped(remediate.PowerOff, "", remediate.Waiting, 45, 400)
	stepped(remediate.Held, reason.FalseOff, remediate.PowerOff, 400, 399) // the clock was set back
	stepped(remediate.RestoreNode, "", remediate.Held, 399, 500)
	stepped(remediate.Done, "", remediate.RestoreNode, 500, 510)
	m.observe(event.Event{Type: event.Refused, Cluster: "prod", Reason: reason.Paused})
	m.observe(event.Event{Type: event.Failed, Cluster: "prod"})
	m.observe(event.Event{Type: event.Failed, Message: "no cluster is concerned"})

	got := map[string]float64{}
	for series, value := range scrape(t, m.registry) {
		if value != 0 && !strings.Contains(series, "_build_info") && !strings.Contains(series, "_bucket") {
			got[series] = value
		}
	}
	assert.Equal(t, map[string]float64{
		`fenced_remediation_begins_total{cluster="prod"}`:                                 1,
		`fenced_remediation_waiting_begins_total{class="transient",cluster="prod"}`:       1,
		`fenced_remediation_held_begins_total{class="person",cluster="prod"}`:             1,
		`fenced_remediations_total{cluster="prod",result="Done"}`:                         1,
		`fenced_remediation_duration_seconds_count{cluster="prod",result="Done"}`:         1,
		`fenced_remediation_duration_seconds_sum{cluster="prod",result="Done"}`:           510,
		`fenced_remediation_step_duration_seconds_count{step="PowerOff"}`:                 2,
		`fenced_remediation_step_duration_seconds_sum{step="PowerOff"}`:                   45,
		`fenced_remediation_step_duration_seconds_count{step="RestoreNode"}`:              1,
		`fenced_remediation_step_duration_seconds_sum{step="RestoreNode"}`:                10,
		`fenced_refusals_total{class="` + classLabel(reason.Paused) + `",cluster="prod"}`: 1,
		`fenced_failures_total{class="none",cluster="prod"}`:                              1,
		`fenced_failures_total{class="none",cluster=""}`:                                  1,
	}, got)

	m.forget("prod")
	m.observe(event.Event{Type: event.Failed, Cluster: "prod", Message: "late"})
	m.observe(event.Event{Type: event.Stepped, Cluster: "prod", Step: remediate.Done})
	for series := range scrape(t, m.registry) {
		assert.NotContains(t, series, "prod", "a cluster that is no longer configured")
	}
}

// The age is that of the view at the moment of the scrape; a view that never was has no time.
func TestViewHasATimestamp(t *testing.T) {
	before := time.Now()
	now := scrape(t, metricsOf([]engine.ClusterStatus{{Name: "prod", View: admit.View{Synced: true, Age: time.Hour}}, {Name: "new", View: admit.View{Age: time.Hour}}}, nil).registry)
	assert.GreaterOrEqual(t, now[`fenced_view_timestamp_seconds{cluster="prod"}`], float64(before.Add(-time.Hour).Unix()))
	assert.LessOrEqual(t, now[`fenced_view_timestamp_seconds{cluster="prod"}`], float64(time.Now().Add(-time.Hour).Unix()+1))
	assert.Zero(t, now[`fenced_view_timestamp_seconds{cluster="new"}`])
}

// manyClusters have 20 runs and 3 checks each.
func manyClusters(n int) (all []engine.ClusterStatus) {
	for i := range n {
		c := engine.ClusterStatus{Name: "cluster-" + strconv.Itoa(i), Runs: make([]remediate.Run, 20)}
		for j := range c.Runs {
			c.Runs[j].Step = remediate.Steps[j%len(remediate.Steps)]
		}
		for j := range 3 {
			c.Checks = append(c.Checks, policy.CheckReport{Kind: "MachineHealthCheck", APIVersion: "cluster.x-k8s.io/v1beta1",
				Namespace: "fleet", Name: "workers-" + strconv.Itoa(j), State: policy.StateActive})
		}
		all = append(all, c)
	}
	return all
}

// A cluster adds as many series as the page says, however many Nodes and runs it has.
func TestSeriesOfAClusterAreBounded(t *testing.T) {
	page := must.Do(os.ReadFile("../../docs/alerts.md"))(t)
	said := regexp.MustCompile(`A cluster has (\d+)`).FindSubmatch(page)
	require.NotNil(t, said)
	without, with := manyClusters(10), manyClusters(11)
	more := len(scrape(t, metricsOf(with, nil).registry)) - len(scrape(t, metricsOf(without, nil).registry))
	assert.Equal(t, must.Do(strconv.Atoi(string(said[1])))(t)+3*3, more)
}

// Whoever may write checks cannot fill the memory of Prometheus, nor take the series of another namespace's checks away.
func TestSeriesOfChecksAreBounded(t *testing.T) { // I18
	c := engine.ClusterStatus{Name: "prod"}
	for i := range 5000 {
		c.Checks = append(c.Checks, policy.CheckReport{Namespace: "attacker", Name: strconv.Itoa(i), State: policy.StateInvalid})
	}
	c.Checks = append(c.Checks, policy.CheckReport{Namespace: "well", Name: "a", State: policy.StateActive, Source: "policies.d/\xff.yaml:1"})
	now := scrape(t, metricsOf([]engine.ClusterStatus{c}, nil).registry)
	shown := 0
	for series := range now {
		if strings.HasPrefix(series, "fenced_check_targets{") {
			shown++
		}
	}
	assert.Equal(t, maxNamespaceChecks+1, shown)
	assert.Contains(t, now, `fenced_check_targets{api_version="",cluster="prod",kind="",name="a",namespace="well",source="policies.d/?.yaml:1"}`)
	assert.EqualValues(t, 5000, now[`fenced_checks{cluster="prod",state="Invalid"}`])

	for i := range 50 {
		for j := range 60 {
			c.Checks = append(c.Checks, policy.CheckReport{Namespace: "attacker-" + strconv.Itoa(i), Name: strconv.Itoa(j)})
		}
	}
	for i := range maxNamespaceChecks + 1 { // first, as in a report
		c.Checks = slices.Insert(c.Checks, i, policy.CheckReport{Kind: policy.NodeHealthCheckKind, Name: "mine-" + strconv.Itoa(i)})
	}
	now = scrape(t, metricsOf([]engine.ClusterStatus{c}, nil).registry)
	assert.LessOrEqual(t, len(now), 3*maxClusterChecks+300)
	for i := range maxNamespaceChecks + 1 {
		assert.Contains(t, now, `fenced_check_allowed{api_version="",cluster="prod",kind="NodeHealthCheck",name="mine-`+strconv.Itoa(i)+`",namespace="",source=""}`, "nobody who may write in namespaces takes its place")
	}
}

// The revision is in the program, or it is said that it is not.
func TestBuildInfo(t *testing.T) {
	defer func(was string) { revision = was }(revision)
	revision = "0123abc"
	for series, value := range scrape(t, newMetrics("1.2.3").registry) {
		if strings.HasPrefix(series, "fenced_build_info{") {
			assert.Regexp(t, `^fenced_build_info\{goversion="go1[^"]+",revision="0123abc",version="1\.2\.3"\}$`, series)
			assert.EqualValues(t, 1, value)
		}
	}
	revision = ""
	assert.Regexp(t, `^([0-9a-f]{40}(-modified)?|unknown)$`, sourceRevision())
}

// BenchmarkScrape is one scrape of a daemon with 200 clusters, with the time of a core that it took.
func BenchmarkScrape(b *testing.B) {
	registry := metricsOf(manyClusters(200), map[sweep.Group]int{{Cluster: "cluster-0", Driver: bmc.DriverIPMI, State: sweep.StateOK}: 5000}).registry
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	for b.Loop() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		b.ReportMetric(float64(answer.Body.Len()), "bytes")
	}
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	took := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "cpu-ms/op")
}
