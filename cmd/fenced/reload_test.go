package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// reloadKubeconfig leads to a cluster that is not there.
const reloadKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// reloadable is a daemon in this process, with the files that it was started from.
type reloadable struct {
	*fenced
	t       *testing.T
	dir     string
	signals chan os.Signal
	systemd chan string // what the daemon tells systemd
	seq     uint64      // of the last reload
}

// text is fenced.yaml of a reloadable; more follows it.
func (r *reloadable) text(more string) string {
	return "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\npolicies: policies.d\nstate: {path: state.db}\n" +
		"control: {socket: s.sock, pauseFile: \"\"}\nmetrics: {listen: \"\"}\n" + more
}

func (r *reloadable) write(name, text string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
}

// startReloadable starts a daemon over files that the test may change.
func startReloadable(t *testing.T) *reloadable {
	t.Helper()
	r := prepareReloadable(t)
	r.start()
	return r
}

// prepareReloadable writes the files of a daemon.
func prepareReloadable(t *testing.T) *reloadable {
	t.Helper()
	r := &reloadable{t: t, dir: t.TempDir(), signals: make(chan os.Signal, 1)}
	for _, d := range []string{"hosts.d", "policies.d"} {
		require.NoError(t, os.Mkdir(filepath.Join(r.dir, d), 0o755))
	}
	r.write("kc", reloadKubeconfig)
	r.write("fenced.yaml", r.text(""))
	return r
}

func (r *reloadable) start() {
	t := r.t
	t.Helper()
	notify := filepath.Join(r.dir, "notify")
	socket := must.Do(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = socket.Close() })
	r.systemd = make(chan string, 1000)
	go func() { // as systemd does: the kernel keeps no more than ten messages, and then whoever sends one waits
		for buf := make([]byte, 4096); ; {
			n, err := socket.Read(buf)
			if err != nil {
				return
			}
			r.systemd <- string(buf[:n])
		}
	}()
	t.Setenv("NOTIFY_SOCKET", notify)
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(r.dir, "fenced.yaml")
	checked, err := config.CheckAndRead(file, config.Hosts{}, checkPolicies)
	require.NoError(t, config.Whole(err))
	r.fenced = must.Do(build(ctx, file, nil, checked))(t)
	done := make(chan error, 1)
	go func() { done <- r.run(ctx, r.signals) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// reload gives the signal and returns what the daemon tells of the reload.
func (r *reloadable) reload() event.Event {
	r.t.Helper()
	r.signals <- syscall.SIGHUP
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for {
		list := must.Do(r.events.After(ctx, r.seq))(r.t)
		for _, e := range list {
			if r.seq = e.Seq; e.Type == event.Reloaded {
				return e
			}
		}
	}
}

// toldSystemd reads what the daemon told systemd, until that has a line.
func (r *reloadable) toldSystemd(line string) {
	r.t.Helper()
	for timeout := time.After(time.Minute); ; {
		select {
		case said := <-r.systemd:
			if strings.Contains(said, line) {
				return
			}
		case <-timeout:
			require.Fail(r.t, "systemd was not told: "+line)
		}
	}
}

// A reload takes in what it can and names what needs a restart, again at each reload until
// then. systemd hears when it begins and when it has ended.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	r := startReloadable(t)
	r.toldSystemd("READY=1")
	require.Equal(t, zapcore.InfoLevel, r.level.Level())
	assert.Equal(t, "reloaded: nothing has changed", r.reload().Message)
	r.toldSystemd("RELOADING=1\nMONOTONIC_USEC=")
	r.toldSystemd("READY=1")

	r.write("fenced.yaml", r.text("log: {level: debug}\nsweep: {interval: 1h}\ninstance: other\n"))
	e := r.reload()
	assert.Empty(t, e.Reason)
	assert.Equal(t, "reloaded: took in log.level; these need a restart, and stay as they were until then: instance, sweep.interval", e.Message)
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())
	assert.Equal(t, "reloaded: nothing has changed; these need a restart, and stay as they were until then: instance, sweep.interval", r.reload().Message)
}

// Files with an error change nothing: not even the key that is right is taken in. The
// daemon says what is wrong, and systemctl status shows that the reload was refused.
func TestBadFileKeepsTheConfiguration(t *testing.T) {
	r := startReloadable(t)
	r.write("fenced.yaml", r.text("log: {level: debug}\nguards: {maxInFlight: many}\n"))
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "fenced.yaml:8: guards.maxInFlight")
	assert.Equal(t, zapcore.ErrorLevel, levelOf(e))
	assert.Equal(t, zapcore.InfoLevel, r.level.Level())
	r.toldSystemd("the last reload was refused")

	r.write("fenced.yaml", r.text("log: {level: debug}\n"))
	assert.Empty(t, r.reload().Reason)
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())
}

// fencectl log-level changes the level at once and is on record; a reload sets it to that of
// the file.
func TestLogLevelLastsUntilAReload(t *testing.T) {
	r := startReloadable(t)
	client := api.New(filepath.Join(r.dir, "s.sock"))
	o := wire.Order{Verb: wire.LogLevel, Level: "debug", Reason: "a BMC drops sessions"}
	rep := must.Do(client.Do(t.Context(), o))(t)
	assert.Equal(t, "the log level was info and is debug, until fenced is reloaded or restarted", rep.Value.Message)
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())
	st := must.Do(client.Status(t.Context()))(t)
	assert.Equal(t, "debug", st.Value.LogLevel)
	rep = must.Do(client.Do(t.Context(), o))(t)
	assert.True(t, rep.Value.Unchanged)
	list := must.Do(r.events.After(t.Context(), 0))(t)
	recorded := 0
	for _, e := range list {
		if e.Type == event.Ordered && e.Why == o.Reason && e.Actor != "" {
			recorded++
		}
	}
	assert.Equal(t, 2, recorded, "also the one that changed nothing")
	o.Level = "loud"
	_, err := client.Do(t.Context(), o)
	assert.ErrorContains(t, err, `"loud" is no log level`)

	r.reload()
	assert.Equal(t, zapcore.InfoLevel, r.level.Level())
}

// hostsFile is a file of hosts.d with one entry for each Node.
func hostsFile(nodes map[string]string) string {
	text := "hosts:\n"
	for node, address := range nodes {
		text += "- {node: " + node + ", bmc: {address: \"ipmi://" + address + "\", username: fence, passwordFile: ../password}}\n"
	}
	return text
}

// A reload takes in hosts.d as a whole, and names the hosts. An entry with an error is taken in as one that is refused, and the
// reload says so. If a file does not tell whose entries it holds, no file is taken in.
func TestReloadTakesInHosts(t *testing.T) {
	r := startReloadable(t)
	r.write("password", "hush")
	known := func(node string) bool {
		_, err := r.engine.SubjectOf(t.Context(), "prod", node)
		return err == nil
	}
	r.write("hosts.d/a.yaml", hostsFile(map[string]string{"n-1": "192.0.2.1", "n-2": "192.0.2.2"}))
	assert.Equal(t, "reloaded: took in hosts.d (added prod/n-1 prod/n-2)", r.reload().Message)
	assert.True(t, known("n-1"))

	r.write("hosts.d/a.yaml", "# a comment\n"+hostsFile(map[string]string{"n-1": "192.0.2.1", "n-2": "192.0.2.2"}))
	assert.Equal(t, "reloaded: nothing has changed", r.reload().Message)

	r.write("hosts.d/a.yaml", hostsFile(map[string]string{"n-1": "192.0.2.9", "n-3": "192.0.2.3"}))
	for _, unread := range []string{"hosts:\n\t- {node: n-4}\n", "host: []\n", "hosts: [{nod: n-4}]\n"} {
		r.write("hosts.d/b.yaml", unread)
		e := r.reload()
		assert.Equal(t, reason.ReloadRefused, e.Reason, unread)
		assert.Contains(t, e.Message, "hosts.d/b.yaml:")
		assert.True(t, known("n-2"))
		assert.False(t, known("n-3"))
	}

	r.write("hosts.d/b.yaml", "hosts: [{node: n-4}, {node: n-5, bmc: {address: \"ipmi://192.0.2.9\", username: fence, passwordFile: ../password}}]\n")
	e := r.reload()
	assert.Empty(t, e.Reason)
	assert.Contains(t, e.Message, "hosts.d (added prod/n-3 prod/n-4 prod/n-5, removed prod/n-2, changed prod/n-1); these hosts are not fenced, because something is wrong in their entries: ")
	assert.Contains(t, e.Message, "hosts.d/b.yaml:1: hosts[0]: bmc is missing")
	assert.Contains(t, e.Message, "of node n-5 is also at ")
	assert.Contains(t, e.Message, ": correct it, run fenced --check-config, then systemctl reload fenced")
	inventory := newInventory(r.reloader.hosts)
	for node, refused := range map[string]bool{"n-1": true, "n-3": false, "n-4": true, "n-5": true} {
		_, found, err := inventory.Find(t.Context(), "prod", node)
		assert.True(t, found, node)
		got, _ := reason.AsRefusal(err)
		assert.Equal(t, refused, got != nil && got.Reason == reason.InvalidHost, node)
		assert.Equal(t, refused, inventory.Refused("prod", node) != "", node)
	}

	require.NoError(t, os.Remove(filepath.Join(r.dir, "hosts.d/b.yaml")))
	assert.Equal(t, "reloaded: took in hosts.d (removed prod/n-4 prod/n-5, changed prod/n-1)", r.reload().Message)
	assert.False(t, known("n-2"))
}

// A bad file of hosts.d or policies.d does not keep the daemon down. Nothing begins in the clusters that it may concern, and the
// status says so with the file, the line and what to do. A reload of the corrected file ends that.
func TestDaemonStartsWithABadFile(t *testing.T) {
	const bad = "apiVersion: fenced.io/v1alpha1\nkind: DisruptionBudget\nmetadata: {name: b}\nspec: {clusters: [lab], nodeSelector: {}, maxUnavailabel: 1}\n"
	for name, c := range map[string]struct {
		file, text, want string
		lab, prod        bool // is nothing begun there?
	}{
		"a budget of one cluster":    {"policies.d/a.yaml", bad, "policies.d/a.yaml:4: spec.maxUnavailabel: unknown key (did you mean maxUnavailable?)", true, false},
		"a cluster with a slip":      {"policies.d/a.yaml", strings.Replace(bad, "lab", "lap", 1), "policies.d/a.yaml:4: spec.maxUnavailabel", true, true},
		"no cluster":                 {"policies.d/a.yaml", strings.Replace(bad, "clusters: [lab], ", "", 1), "policies.d/a.yaml:4: spec.maxUnavailabel", true, true},
		"a tab":                      {"policies.d/a.yaml", "kind: FencePolicy\nspec:\n\tclusters: [lab]\n", "policies.d/a.yaml:3: a tab indents this line", true, true},
		"a file that is no file":     {"policies.d/a.yaml/x", "", "policies.d/a.yaml", true, true},
		"hosts that nobody can tell": {"hosts.d/a.yaml", "hosts:\n- {nod: n-1}\n", "hosts.d/a.yaml:2: hosts[0].nod: unknown key (did you mean node?)", true, true},
		"one host":                   {"hosts.d/a.yaml", "hosts:\n- {node: n-1, cluster: lab, bmcs: {}}\n", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := prepareReloadable(t)
			r.writeClusters(both, "")
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(r.dir, c.file)), 0o755))
			r.write(c.file, c.text)
			status, _, stderr := r.checked()
			assert.Equal(t, exitConfig, status)
			assert.Contains(t, stderr, c.want)
			r.start()
			rep := must.Do(api.New(filepath.Join(r.dir, "s.sock")).Status(t.Context()))(t)
			degraded := strings.Join(rep.Value.Degraded(), "\n")
			for _, k := range rep.Value.Clusters {
				refused := map[string]bool{"lab": c.lab, "prod": c.prod}[k.Name]
				assert.Equal(t, refused, k.FilesRefused != "", k.Name)
				if refused {
					assert.Contains(t, k.FilesRefused, c.want)
					assert.Contains(t, degraded, "cluster "+k.Name+": nothing begins there, because a protection or a budget may be missing; open runs go on. ")
					assert.Contains(t, degraded, ". Next: correct it, run fenced --check-config, then systemctl reload fenced")
				}
			}
			require.NoError(t, os.RemoveAll(filepath.Join(r.dir, strings.Join(strings.Split(c.file, "/")[:2], "/"))))
			require.Empty(t, r.reload().Reason)
			require.Eventually(t, func() bool {
				return !slices.ContainsFunc(r.engine.Status(), func(k engine.ClusterStatus) bool { return k.FilesRefused != "" })
			}, time.Minute, 10*time.Millisecond)
		})
	}
}

// A reload that was refused is in the status until one is not: what is wrong, where, and what a restart would do.
func TestRefusedReloadIsInTheStatus(t *testing.T) {
	r := startReloadable(t)
	degraded := func() string {
		rep := must.Do(api.New(filepath.Join(r.dir, "s.sock")).Status(t.Context()))(t)
		return strings.Join(rep.Value.Degraded(), "\n")
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"fenced.yaml": {"fenced.yaml", r.text("guard: {}\n"), "and a restart would fail. Next: correct it, run fenced --check-config, then systemctl reload fenced"},
		"a policy": {"policies.d/a.yaml", "apiVersion: fenced.io/v1alpha1\nkind: FencePolicy\nmetadata: {name: a}\nspec: {}\n",
			"and after a restart nothing would begin in the clusters that it may concern. Next: correct it, run fenced --check-config"},
		"a template": {"policies.d/a.yaml", "apiVersion: remediation.medik8s.io/v1alpha1\nkind: NodeHealthCheck\nmetadata: {name: a}\nspec:\n  selector: {matchLabels: {a: b}}\n" +
			"  minHealthy: 51%\n  unhealthyConditions: [{type: Ready, status: Unknown, duration: 5m}]\n" +
			"  remediationTemplate: {apiVersion: a.example/v1, kind: ATemplate, name: t, namespace: ns}\n",
			"restart it instead. Until this is corrected or undone, fenced runs on what it had before. Next: systemctl restart fenced"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NotContains(t, degraded(), "the reload at ")
			r.write(c.file, c.text)
			require.Equal(t, reason.ReloadRefused, r.reload().Reason)
			why := degraded()
			assert.Regexp(t, `(?m)^the reload at \S+Z was refused: \S+/`+c.file+":[0-9]+: ", why)
			assert.Contains(t, why, c.want)
			require.NoError(t, os.Remove(filepath.Join(r.dir, c.file)))
			r.write("fenced.yaml", r.text(""))
			require.Empty(t, r.reload().Reason)
			assert.NotContains(t, degraded(), "the reload at ")
		})
	}
}

// A reload takes in policies.d for each cluster; a file with an error keeps them all.
func TestReloadTakesInPolicies(t *testing.T) {
	const fencePolicy = "---\napiVersion: fenced.io/v1alpha1\nkind: FencePolicy\nmetadata: {name: %s}\nspec:\n  nodeSelector: {matchLabels: {a: b}}\n" +
		"  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m}]\n  strategy: PowerCycle\n"
	r := startReloadable(t)
	r.write("policies.d/a.yaml", strings.ReplaceAll(fencePolicy, "%s", "a"))
	assert.Equal(t, "reloaded: took in policies.d (added FencePolicy a)", r.reload().Message)
	r.write("policies.d/a.yaml", "# a comment\n"+strings.ReplaceAll(fencePolicy, "%s", "a"))
	assert.Equal(t, "reloaded: nothing has changed", r.reload().Message)

	r.write("policies.d/b.yaml", strings.ReplaceAll(fencePolicy, "%s", "b")+"  wrong: true\n")
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "policies.d/b.yaml:9")
	assert.Equal(t, []string{"FencePolicy a"}, slices.Sorted(maps.Keys(policiesByName(r.reloader.policies))))

	r.write("policies.d/b.yaml", strings.ReplaceAll(fencePolicy, "%s", "b"))
	r.write("policies.d/a.yaml", strings.ReplaceAll(strings.ReplaceAll(fencePolicy, "%s", "a"), "5m", "9m"))
	assert.Equal(t, "reloaded: took in policies.d (added FencePolicy b, changed FencePolicy a)", r.reload().Message)
	var seen []string
	r.clusters.views.Get("prod").EachCheck(func(c *policy.Check) { seen = append(seen, c.Name) })
	assert.Equal(t, []string{"a", "b"}, seen, "a look at who else may be at work knows them, too")
}

// A reload takes in guards and deadlines, but not deadlines that do not suit a key which keeps
// its value until a restart.
func TestReloadTakesInGuardsAndDeadlines(t *testing.T) {
	r := startReloadable(t)
	r.write("fenced.yaml", r.text("guards: {maxInFlight: 7, zoneKey: rack}\npower: {onDeadline: 4m}\n"))
	assert.Equal(t, "reloaded: took in guards.maxInFlight, power.onDeadline; these need a restart, and stay as they were until then: guards.zoneKey", r.reload().Message)
	r.write("fenced.yaml", r.text("power: {offReadSpacing: 1s, offDeadline: 2s}\n"))
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "power.offReadSpacing: 3s must be less than power.offDeadline, which is 2s")
	assert.Equal(t, 7, r.reloader.running.Guards.MaxInFlight, "it took in nothing")
}

// A password in a file is read anew at each use, so it rotates without a reload. A host whose
// systemd credential this process was not given needs a restart: the reload says so.
func TestReloadRefusesACredentialThatOnlyARestartBrings(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	r := startReloadable(t)
	r.write("password", "hush")
	r.write("hosts.d/a.yaml", hostsFile(map[string]string{"n-1": "192.0.2.1"}))
	require.Empty(t, r.reload().Reason)
	password := func() string {
		h, found, err := newInventory(r.reloader.hosts).Find(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		require.True(t, found)
		return h.Levels[0].Devices[0].Password.Reveal()
	}
	require.Equal(t, "hush", password())
	r.write("password", "rotated")
	assert.Equal(t, "rotated", password())

	r.write("hosts.d/b.yaml", "hosts: [{node: n-2, bmc: {address: \"ipmi://192.0.2.2\", username: fence, credential: n-2}}]\n")
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "b.yaml:1: hosts[0].bmc.credential: systemd gave this process no credential n-2")
	assert.Contains(t, e.Message, "restart")
}

// checked is fenced --check-config.
func (r *reloadable) checked() (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = runDaemon([]string{"--config", filepath.Join(r.dir, "fenced.yaml"), "--check-config"}, &out, &errs)
	return status, out.String(), errs.String()
}

// askedReload is fenced --reload, as systemctl reload runs it.
func (r *reloadable) askedReload() (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = runDaemon([]string{"--config", filepath.Join(r.dir, "fenced.yaml"), "--reload"}, &out, &errs)
	return status, out.String(), errs.String()
}

// fenced --reload ends when the daemon has taken the files in, and fails with the reason when a file is bad, and when
// the daemon refuses what the files alone do not show to be wrong. systemd is told of nothing: it waits for the program, and a
// READY would end the job before that fails.
func TestAskedReloadFailsWithTheReason(t *testing.T) {
	r := prepareReloadable(t)
	r.writeClusters(both, "")
	store := must.Do(boltstore.Open(filepath.Join(r.dir, "state.db")))(t)
	must.Do(state.SaveRun(t.Context(), store, remediate.Begin(remediate.Run{ID: "r-1", Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
		Target: remediate.Target{Cluster: "lab", Node: "n-1", Host: "lab/n-1"}}, time.Now())))(t)
	require.NoError(t, store.Close())
	r.start()
	r.toldSystemd("READY=1")

	r.writeClusters(both, "log: {level: debug}\n")
	status, stdout, stderr := r.askedReload()
	assert.Equal(t, exitOK, status, stderr)
	assert.Equal(t, "reloaded: took in log.level\n", stdout)
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())

	r.write("fenced.yaml", r.text("log: {level: error}\n"))
	status, stdout, stderr = r.askedReload()
	assert.Equal(t, exitRunTime, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "fenced: reload fenced: the reload is refused, and the configuration stays as it was: cluster lab cannot be removed while a run is open in it (r-1 on n-1)")
	assert.Equal(t, zapcore.DebugLevel, r.level.Level())

	r.write("fenced.yaml", r.text("log: {level: loud}\n"))
	status, _, stderr = r.askedReload()
	assert.Equal(t, exitConfig, status)
	assert.Contains(t, stderr, "log.level")

	list := must.Do(r.events.After(t.Context(), 0))(t)
	told := 0
	for _, e := range list {
		if e.Type == event.Reloaded {
			told++
			assert.NotEmpty(t, e.Actor)
			assert.Equal(t, "fenced --reload", e.Why)
		}
	}
	assert.Equal(t, 2, told)
	for end := time.After(100 * time.Millisecond); ; { // it is there already
		select {
		case said := <-r.systemd:
			assert.NotContains(t, said, "RELOADING")
			assert.NotContains(t, said, "READY")
			continue
		case <-end:
		}
		break
	}
}

// A daemon that cannot be asked, because the files name another socket than that of its start, is told by a signal,
// if systemd says who it is; so is one of an older version. Else the reload fails.
func TestAskedReloadWithoutASocket(t *testing.T) {
	r := prepareReloadable(t)
	t.Setenv(mainPID, "")
	status, _, stderr := r.askedReload()
	assert.Equal(t, exitRunTime, status)
	assert.Contains(t, stderr, "reload fenced: fenced is not reachable at ")
	assert.Contains(t, stderr, "systemctl status fenced")

	for _, nobody := range []string{"x", "0", "1", "-1"} {
		t.Setenv(mainPID, nobody)
		status, _, stderr = r.askedReload()
		assert.Equal(t, exitRunTime, status)
		assert.Contains(t, stderr, "names no process")
	}
	for _, older := range []bool{false, true} {
		signalled(t, r, older)
	}
}

// signalled has a stand-in of a daemon told by a signal.
func signalled(t *testing.T, r *reloadable, older bool) {
	t.Helper()
	file := filepath.Join(r.dir, "got")
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // a shell cannot trap what is ignored where the tests run, as under nohup
	defer signal.Stop(caught)
	daemon := exec.CommandContext(t.Context(), "sh", "-c", `trap 'echo HUP >"$1"; exit' HUP; echo; while :; do sleep 0.1; done`, "sh", file)
	ready := must.Do(daemon.StdoutPipe())(t)
	require.NoError(t, daemon.Start())
	must.Do(ready.Read(make([]byte, 1)))(t)
	t.Setenv(mainPID, fmt.Sprint(daemon.Process.Pid))
	if older { // its API has no such order
		ln := must.Do(net.Listen("unix", filepath.Join(r.dir, "s.sock")))(t)
		old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"NotFound","message":"no route"}`))
		})}
		go func() { _ = old.Serve(ln) }()
		defer func() { assert.NoError(t, old.Close()) }()
	}
	status, stdout, stderr := r.askedReload()
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "the daemon was told by a signal")
	require.NoError(t, daemon.Wait())
	got := must.Do(os.ReadFile(file))(t)
	assert.Equal(t, "HUP\n", string(got))
	require.NoError(t, os.Remove(file))
}
