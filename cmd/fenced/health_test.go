package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
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
	d.health.last.Store(time.Now().Add(-time.Hour).UnixNano())
	code, text := ask("/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, text, "the daemon hangs")
	code, _ = ask("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
}

func TestNotReadyNamesEachCluster(t *testing.T) {
	assert.Empty(t, notReady([]engine.ClusterStatus{{Name: "a"}}))
	assert.Equal(t, "a: the view of the cluster is not good; fencectl status says why\nb: no instance may act here; fencectl status says why\nd: nothing begins here, because a file has an error; fencectl status says why",
		notReady([]engine.ClusterStatus{{Name: "a", ViewBad: "secret.example: refused"}, {Name: "b", Idle: "nobody owns it"}, {Name: "c"}, {Name: "d", FilesRefused: "secret.yaml:1"}}))
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

func (o oneHost) Inventory(context.Context) []hosts.Subject { return []hosts.Subject{o.subject()} }

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
