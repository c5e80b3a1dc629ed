package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/port"
)

// A monitor that reads no metrics asks two questions: does the daemon decide, and could it
// fence now.
func TestHealthAndReadiness(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	d := &fenced{metrics: newMetrics("1")}
	d.engine = must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}}))(t)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		d.pages().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		code, text := ask(path)
		assert.Equal(t, http.StatusServiceUnavailable, code, path)
		assert.Equal(t, "the daemon is starting", text)
	}
	d.health.beat()
	for _, path := range []string{"/healthz", "/readyz"} {
		code, text := ask(path)
		assert.Equal(t, http.StatusOK, code, path)
		assert.Equal(t, "ok", text)
	}
	hourAgo := time.Now().Add(-time.Hour)
	d.health.last.Store(&hourAgo)
	code, text := ask("/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, text, "the daemon hangs")
	code, _ = ask("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
}

// A clock that is set back, as at a boot with a wrong one, must not keep systemd's watchdog waiting: it would kill the daemon. Nor may it hide that
// the daemon hangs. The monotonic times of the beats are compared.
func TestBeatsDoNotDependOnTheClock(t *testing.T) {
	var h health
	n := notifier{log: zap.NewNop(), every: time.Hour}
	h.beat()
	n.beat()
	for name, last := range map[string]*time.Time{"health": h.last.Load(), "watchdog": n.lastBeat.Load()} {
		assert.NotEqual(t, last.Round(0).String(), last.String(), "%s: it has no monotonic time", name)
	}
	first := n.lastBeat.Load()
	n.beat()
	assert.Same(t, first, n.lastBeat.Load(), "a ping is not due yet")
}

func TestNotReadyNamesEachCluster(t *testing.T) {
	assert.Empty(t, notReady([]engine.ClusterStatus{{Name: "a"}}))
	assert.Equal(t, "a: the view of the cluster is not good; fencectl status says why\nb: no instance may act here; fencectl status says why\nd: nothing begins here, because a file has an error; fencectl status says why",
		notReady([]engine.ClusterStatus{{Name: "a", ViewBad: "secret.example: refused"}, {Name: "b", Idle: "nobody owns it"}, {Name: "c"}, {Name: "d", FilesRefused: "secret.yaml:1"}}))
}

// What an API server answers is text of STATUS alone: systemd reads each line of a notification as a variable.
func TestStatusIsOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd := must.Do(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	(&notifier{log: zap.NewNop()}).status([]engine.ClusterStatus{{Name: "prod", ViewBad: "watch Node: no\nWATCHDOG=trigger"}})
	got := make([]byte, 4096)
	require.NoError(t, systemd.SetReadDeadline(time.Now().Add(10*time.Second)))
	n := must.Do(systemd.Read(got))(t)
	assert.Equal(t, `STATUS=0 nodes watched, 0 runs in flight, 0 waiting, 0 held; prod: watch Node: no\nWATCHDOG=trigger`, string(got[:n]))
}

// TestStatusWordsTellOfEachCluster: one that is fine, or that is meant to be observed, does not hide another that is not seen.
func TestStatusWordsTellOfEachCluster(t *testing.T) {
	assert.Equal(t, "0 nodes watched, 0 runs in flight, 0 waiting, 0 held; prod: the API does not answer; lab only observes",
		statusWords([]engine.ClusterStatus{{Name: "prod", ViewBad: "the API does not answer", Owner: true, Armed: true}, {Name: "lab", Owner: true}, {Name: "x", Owner: true, Armed: true}}))
	all := []engine.ClusterStatus{{Name: "prod", Paused: "everything is paused"}, {Name: "lab", Paused: "everything is paused"}}
	assert.Equal(t, 1, strings.Count(statusWords(all), "everything is paused"))
}

// TestWatchdogInAContainer: there NOTIFY_SOCKET and WATCHDOG_USEC are set, and WATCHDOG_PID, which is of another process, is
// not (packaging/image/fenced.container). The daemon sends its pings.
func TestWatchdogInAContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	systemd := must.Do(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = systemd.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000000")
	t.Setenv("WATCHDOG_PID", "")

	newNotifier(zap.NewNop()).beat()

	said := make([]byte, 64)
	n := must.Do(systemd.Read(said))(t)
	require.Equal(t, "WATCHDOG=1", string(said[:n]))
}

func TestPassedSocketIsTheControlSocketOrAnError(t *testing.T) {
	path := must.Do(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	defer path.Close()
	port := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer port.Close()

	ln := must.Do(passedSocket(nil))(t)
	assert.Nil(t, ln, "without socket activation there is none")
	ln = must.Do(passedSocket(map[string][]net.Listener{"control": {path}}))(t)
	assert.Equal(t, path, net.Listener(ln))

	for want, all := range map[string]map[string][]net.Listener{
		"2 sockets named":   {"control": {path, path}},
		`named "other"`:     {"other": {path}},
		"a socket of tcp":   {"control": {port}},
		`1 sockets named "`: {"control": {path}, "": {path}},
	} {
		_, err := passedSocket(all)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "fenced.socket", "it says where to look")
	}
}

func TestOthersInTheDaemonsGroup(t *testing.T) {
	etc := fstest.MapFS{
		"group": {Data: []byte("root:x:0:\nfenced:x:990:otto,fenced,anna\nfenced-view:x:991:vera,fenced\nodd\n\n")},
		"passwd": {Data: []byte("root:x:0:0::/root:/bin/sh\nfenced:x:990:990::/:/bin/false\nanna:x:1000:1000::/:/bin/sh\n" +
			"bert:x:1001:990::/:/bin/sh\nodd:x\n")},
	}
	assert.Equal(t, []string{"anna", "bert", "otto"}, othersIn(etc, "990"))
	assert.Equal(t, []string{"fenced", "vera"}, othersIn(etc, "991"))
	assert.Empty(t, othersIn(etc, "0"))
	assert.Empty(t, othersIn(fstest.MapFS{}, "990"), "nothing is known")
}

// TestMain lets the scripts run this very program as a process. Files are made with the
// modes that the tests expect, whatever the umask of who runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	testscript.Main(m, map[string]func(){
		"fenced": func() { os.Exit(runDaemon(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=10") // the race detector would let each fenced sleep for 1 s at its end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": exitStatus,
		},
	})
}

// exitStatus runs a program and wants the exit status named first:
// `status 78 fenced -t --config f.yaml`.
func exitStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = err.Error()
		if len(got) > len("exit status ") {
			got = got[len("exit status "):]
		}
	}
	if got != args[0] {
		ts.Fatalf("%v: exit status %s, want %s", args[1:], got, args[0])
	}
}

// oneHost is an inventory of one host whose BMC refuses the account.
type oneHost struct{}

func (oneHost) subject() hosts.Subject {
	return hosts.Subject{Cluster: "prod", Node: "n-1", Host: bmc.Host{Name: "prod/n-1", Levels: []bmc.Level{
		{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "bmc", Port: 623}}}}}}}
}

func (o oneHost) Inventory(context.Context) iter.Seq[hosts.Subject] {
	return slices.Values([]hosts.Subject{o.subject()})
}

func (o oneHost) SubjectOf(context.Context, string, string) (hosts.Subject, error) {
	return o.subject(), nil
}

func (oneHost) Identify(context.Context, hosts.Subject, int, int, bmc.Reading) guard.IdentityVerdict {
	return guard.IdentityUnproven
}

func (oneHost) Forbidden(context.Context, hosts.Subject) []reason.Refusal { return nil }

func (oneHost) Checked(context.Context, hosts.Checked) {}

func TestMetricsOfBMCs(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	m := newMetrics("1")
	e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}}))(t)
	refuse := func(bmc.Device) (bmc.Power, error) { return nil, &bmc.Error{Kind: bmc.KindAuth, Err: assert.AnError} }
	s := sweep.New(sweep.Options{Engine: oneHost{}, Open: refuse, Urgent: refuse, LockOut: e.LockOut, ReadTimeout: time.Second, Concurrency: 1,
		OnEvent: func(event.Event) {}, OnLatency: m.measured})
	must.Do(s.Test(t.Context(), "prod", "n-1"))(t)
	m.measureState(e, s)
	m.measured(bmc.DriverIPMI, 30*time.Millisecond)

	answer := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body)
	assert.Contains(t, answer.Body.String(), `fenced_bmc_devices{cluster="prod",driver="ipmi",state="failed"} 1`)
	assert.Contains(t, answer.Body.String(), `fenced_bmc_read_seconds_bucket{driver="ipmi",le="0.05"} 1`)
}

// The gauge counts targets: one that two checks refuse for one reason counts once.
func TestGaugeOfRefusedTargets(t *testing.T) {
	registry := prometheus.NewRegistry()
	status := func() []engine.ClusterStatus { return []engine.ClusterStatus{refusedStatus(), {Name: "dev"}} }
	tally := func() (map[sweep.Group]int, map[string]int) { return nil, nil }
	registry.MustRegister(newGauges(status, tally))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "fenced_targets_refused") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{
		`fenced_targets_refused{cluster="prod",reason="Hold"} 1`,
		`fenced_targets_refused{cluster="prod",reason="ShortCircuit"} 2`,
	}, lines)
}

// TestConnectionsOfScrapesAreBounded: any user of the host can connect, and the descriptors of the daemon are for BMCs and the API server.
func TestConnectionsOfScrapesAreBounded(t *testing.T) {
	ln := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serveScrapes(ctx, ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	}()
	ask := func() net.Conn {
		c := must.Do(net.Dial("tcp", ln.Addr().String()))(t)
		must.Do(io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"))(t)
		return c
	}
	first := make([]byte, 1)
	var open []net.Conn
	for range maxScrapes {
		c := ask()
		defer c.Close()
		must.Do(c.Read(first))(t)
		open = append(open, c)
	}
	more := ask()
	defer more.Close()
	require.NoError(t, more.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err := more.Read(first)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, open[0].Close())
	require.NoError(t, more.SetReadDeadline(time.Now().Add(30*time.Second)))
	must.Do(more.Read(first))(t)
	cancel()
	require.ErrorIs(t, <-done, http.ErrServerClosed)
}

// Any user of the host can take the port of the metrics. The daemon goes on without them,
// says so once, and serves them as soon as it can.
func TestBusyMetricsPortStopsNothing(t *testing.T) {
	addr := must.Do(port.Free("tcp", "127.0.0.1"))(t)
	other := must.Do(net.Listen("tcp", addr))(t)
	core, logs := observer.New(zap.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	d := &fenced{metrics: newMetrics("1")}
	door := openMetrics(addr, zap.New(core))
	ended := make(chan error, 1)
	go func() { ended <- door.keep(ctx, d.pages()) }()
	time.Sleep(scrapeRetry + scrapeRetry/2) // one try more
	require.Equal(t, 1, logs.FilterLevelExact(zap.WarnLevel).Len(), "it is told once")

	require.NoError(t, other.Close())
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, 1, logs.FilterMessage("metrics are served again").Len())
	stop()
	require.NoError(t, <-ended)
}

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

// TestMetricsTellOfFilesWithAnError: such a cluster is armed, owned and seen, and nothing begins there.
func TestMetricsTellOfFilesWithAnError(t *testing.T) {
	now := scrape(t, metricsOf([]engine.ClusterStatus{{Name: "prod", Armed: true, FilesRefused: "policies.d/a.yaml:1: no YAML"}, {Name: "lab"}}, nil).registry)
	assert.InDelta(t, 1, now[`fenced_files_refused{cluster="prod"}`], 0)
	assert.Contains(t, now, `fenced_files_refused{cluster="lab"}`)
	assert.Zero(t, now[`fenced_files_refused{cluster="lab"}`])
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
