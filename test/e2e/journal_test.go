package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// journald is a systemd-journald of its own, in a namespace whose /run is its own.
type journald struct{ cmd *exec.Cmd }

// startJournald needs root: journald knows no other /run than /run.
func startJournald(t *testing.T) journald {
	t.Helper()
	asroot.Need(t, "run a journald of its own")
	needDebian(t, "unshare", "nsenter", "systemd-cat", "journalctl")
	// The namespace's journald, and no process of this machine, has this /run.
	const script = `set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
tr -d - </proc/sys/kernel/random/uuid >/run/machine-id
mount --bind /run/machine-id /etc/machine-id
exec /usr/lib/systemd/systemd-journald`
	j := journald{exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script)}
	complaints := must.Do(os.Create(filepath.Join(t.TempDir(), "journald.stderr")))(t)
	defer complaints.Close()
	j.cmd.Stderr = complaints
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, j.cmd.Start())
	t.Cleanup(func() {
		_ = j.cmd.Process.Kill() // it may be stopped, and keeps nothing
		_ = j.cmd.Wait()
	})
	require.Eventually(t, func() bool { return j.inside(t.Context(), "systemd-cat", "true").Run() == nil },
		patience, 100*time.Millisecond, "journald takes streams: %s", complaints.Name())
	return j
}

// inside is a command beside journald.
func (j journald) inside(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"-t", strconv.Itoa(j.cmd.Process.Pid), "--mount", "--wd=/"}, args...)
	return exec.CommandContext(ctx, "nsenter", args...)
}

// daemon is a program that runs fenced with its stderr at journald, as systemd does.
func (j journald) daemon(t *testing.T) string {
	t.Helper()
	programs := must.Do(builds())(t)
	file := filepath.Join(t.TempDir(), "fenced-in-the-journal")
	text := `#!/bin/sh
exec nsenter -t ` + strconv.Itoa(j.cmd.Process.Pid) + ` --mount systemd-cat -t fenced sh -c '
JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec ` + programs.Fenced + ` "$@"' fenced "$@"
`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o700))
	return file
}

// search is what journalctl finds, oldest first.
func (j journald) search(ctx context.Context, t *testing.T, match ...string) (found []map[string]any) {
	t.Helper()
	out := must.Do(j.inside(ctx, append([]string{"journalctl", "--no-pager", "-q", "-o", "json", "-t", "fenced"}, match...)...).Output())(t)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		entry := map[string]any{}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		found = append(found, entry)
	}
	return found
}

// await polls until journalctl finds something.
func (j journald) await(ctx context.Context, t *testing.T, match ...string) map[string]any {
	t.Helper()
	for ctx.Err() == nil {
		if found := j.search(ctx, t, match...); len(found) > 0 {
			return found[0]
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "nothing in the journal", "%q", match)
	return nil
}

// At three in the morning `journalctl -p warning` says which nodes are not remediated and
// why, and nothing of healthy ones; each node, run and reason can be searched for.
func TestJournalTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	journal := startJournald(t)
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "well", Protocol: scene.IPMI}, {Name: "silent", Protocol: scene.IPMI}, {Name: "refused", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.retryInterval=0s"},
	})
	ctx := within(t)
	d := must.Do(s.Launch(journal.daemon(t)))(t)
	require.NoError(t, s.WaitSocket(ctx, d))

	well, silent, refused := s.Worker("well"), s.Worker("silent"), s.Worker("refused")
	well.Kubelet.Hang()
	awaitRun(ctx, t, s, well.Name, result(wire.ResultDone))
	silent.Kubelet.Hang()
	awaitOff(t, silent)
	require.NoError(t, goBMC(t, silent).Hang(true))
	held := awaitRun(ctx, t, s, silent.Name, result(wire.ResultHeld))
	refused.KillBMC()
	refused.Kubelet.Hang()
	awaitRefusal(ctx, t, s, refused.Name, "BMCUnreachable")

	e := journal.await(ctx, t, "-p", "err", "FENCED_NODE=silent")
	assert.Equal(t, held.ID, e["FENCED_RUN"])
	assert.Equal(t, held.Reason, e["FENCED_REASON"])
	assert.Equal(t, "Held", e["FENCED_STEP"])
	assert.Equal(t, "3", e["PRIORITY"])
	assert.Equal(t, "fenced", e["_COMM"])
	assert.Contains(t, e["MESSAGE"], "node=silent")
	e = journal.await(ctx, t, "-p", "warning", "FENCED_REASON=BMCUnreachable", "FENCED_EVENT=Refused")
	assert.Equal(t, refused.Name, e["FENCED_NODE"])
	assert.Equal(t, "4", e["PRIORITY"])
	assert.NotEmpty(t, journal.search(ctx, t, "FENCED_RUN="+held.ID, "FENCED_ACTION=SendOff"), "the whole run can be searched for")
	for _, name := range []string{"healthy-1", "healthy-2"} {
		assert.Empty(t, journal.search(ctx, t, "-p", "warning", "FENCED_NODE="+name), name)
	}
	assert.Empty(t, journal.search(ctx, t, "-p", "err", "FENCED_NODE="+well.Name), "nobody is called for a run that ends well")
	assert.NotEmpty(t, journal.search(ctx, t, "-p", "info", "FENCED_NODE="+well.Name))
}

// journald hangs and its socket is full: a node is fenced and comes back all the same, and
// the journal has it all once journald goes on.
func TestFullJournalStopsNoFence(t *testing.T) {
	t.Parallel()
	journal := startJournald(t)
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{{Name: "dies", Protocol: scene.IPMI}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI}},
		Checks:  []rig.Check{scene.Metal("2s")},
		Set:     []string{"log.level=debug"},
	})
	ctx := within(t)
	d := must.Do(s.Launch(journal.daemon(t)))(t)
	require.NoError(t, s.WaitSocket(ctx, d))
	journal.await(ctx, t, "-p", "info")

	require.NoError(t, journal.cmd.Process.Signal(syscall.SIGSTOP))
	journal.fill(t)
	w := s.Worker("dies")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)

	require.NoError(t, journal.cmd.Process.Signal(syscall.SIGCONT))
	e := journal.await(ctx, t, "FENCED_RUN="+r.ID, "FENCED_STEP=Done")
	assert.Equal(t, w.Name, e["FENCED_NODE"])
}

// fill sends to the socket of a journald that does not read, until it is full.
func (j journald) fill(t *testing.T) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	socket := &syscall.SockaddrUnix{Name: "/proc/" + strconv.Itoa(j.cmd.Process.Pid) + "/root/run/systemd/journal/socket"}
	for err == nil {
		err = syscall.Sendto(fd, []byte("MESSAGE=noise\nSYSLOG_IDENTIFIER=noise\n"), 0, socket)
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
}

// prometheus is a real one that scrapes fenced every second and has the rules loaded.
type prometheus struct{ url string }

const prometheusConfig = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - {job_name: fenced, static_configs: [{targets: ["%s"]}]}
`

// startPrometheus runs it until the test ends.
func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	needDebian(t, "prometheus", "promtool")
	rules := must.Do(filepath.Abs("../../configs/prometheus/fenced.rules.yaml"))(t)
	dir, addr := t.TempDir(), freeAddress(t)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, prometheusConfig, rules, target), 0o600))
	var said bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", said.String())
		}
	})
	p := prometheus{"http://" + addr}
	require.Eventually(t, func() bool { return p.get(t.Context(), "/-/ready", nil, nil) == nil }, patience, 100*time.Millisecond)
	return p
}

// get asks the HTTP API.
func (p prometheus) get(ctx context.Context, path string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body) // the status is the error
		return fmt.Errorf("%s: %s", resp.Status, text.String())
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// series counts what a query gave at any time since then.
func (p prometheus) series(ctx context.Context, t *testing.T, expr string, since time.Time) int {
	t.Helper()
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	now := time.Now()
	step := max(1, int(now.Sub(since).Seconds()/5000)) // Prometheus gives 11000 points at most
	err := p.get(ctx, "/api/v1/query_range", url.Values{"query": {expr}, "step": {strconv.Itoa(step)},
		"start": {strconv.FormatInt(since.Unix(), 10)}, "end": {strconv.FormatInt(now.Unix()+1, 10)}}, &answer)
	require.NoError(t, err, expr)
	return len(answer.Data.Result)
}

// alerts are those that are pending or fire, by name.
func (p prometheus) alerts(ctx context.Context, t *testing.T) map[string]bool {
	t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	require.NoError(t, p.get(ctx, "/api/v1/alerts", nil, &answer))
	names := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		names[a.Labels["alertname"]] = true
	}
	return names
}

// expressions are all queries of the dashboard, as Grafana sends them.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	text := must.Do(os.ReadFile("../../configs/grafana/fenced.json"))(t)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(text, &board))
	fill := strings.NewReplacer("$cluster", ".*", "$__rate_interval", "30s")
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := fill.Replace(target.Expr)
			require.NotContains(t, expr, "$")
			all = append(all, expr)
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

// A real Prometheus scrapes a real fenced that fences, waits for a person and refuses: each
// query of the dashboard finds series, each metric that rules and dashboard name exists,
// promtool likes all names, and the alerts of what is wrong are there, and no others.
func TestPrometheusSeesFenced(t *testing.T) {
	t.Parallel()
	target := freeAddress(t)
	prom := startPrometheus(t, target)
	since := time.Now()
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "well", Protocol: scene.IPMI}, {Name: "silent", Protocol: scene.IPMI}, {Name: "refused", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.retryInterval=0s", "sweep.interval=10s", "metrics.listen=" + target},
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		require.Eventually(t, func() bool { return prometheus{"http://" + target}.get(ctx, path, nil, nil) == nil }, patience, 200*time.Millisecond, path)
	}
	well, silent, refused := s.Worker("well"), s.Worker("silent"), s.Worker("refused")
	giveBack := withhold(ctx, t, s, "fenced", map[string]string{"nodes": "delete"}) // so that an action fails, and is tried again
	well.Kubelet.Hang()
	require.Eventually(t, func() bool { return prom.series(ctx, t, "fenced_failures_total > 0", since) > 0 }, patience, time.Second)
	giveBack()
	awaitRun(ctx, t, s, well.Name, result(wire.ResultDone))
	require.Eventually(t, func() bool { return prom.alerts(ctx, t)["FencedRemediationRan"] }, patience, time.Second, "the first run since the start")
	silent.Kubelet.Hang()
	awaitOff(t, silent)
	require.NoError(t, goBMC(t, silent).Hang(true))
	awaitRun(ctx, t, s, silent.Name, result(wire.ResultHeld))
	refused.KillBMC()
	refused.Kubelet.Hang()
	awaitRefusal(ctx, t, s, refused.Name, "BMCUnreachable")

	ctx = within(t) // what follows has its own time
	for _, expr := range expressions(t) {
		require.Eventually(t, func() bool { return prom.series(ctx, t, expr, since) > 0 }, patience, time.Second, "no series: %s", expr)
	}
	want := map[string]bool{"FencedHeld": true, "FencedTargetBlocked": true, "FencedBMCNotDependable": true}
	var got map[string]bool
	require.Eventually(t, func() bool {
		got = prom.alerts(ctx, t)
		delete(got, "FencedRemediationRan") // it clears by itself
		return assert.ObjectsAreEqual(want, got)
	}, patience, time.Second, "%v", got)

	scrape := get(ctx, t, http.DefaultTransport, "http://"+target+"/metrics")
	requireGoodNames(t, scrape)
	for _, w := range s.Workers {
		assert.NotRegexp(t, `="[^"]*`+w.Name+`[^"]*"`, scrape, "no label names a Node")
	}
	for _, series := range []string{
		`fenced_remediation_begins_total{cluster="scene"}`, `fenced_remediations_total{cluster="scene",result="Done"}`,
		`fenced_remediation_held_begins_total{class="transient",cluster="scene"}`,
		`fenced_remediation_duration_seconds_count{cluster="scene",result="Done"}`, `fenced_remediation_step_duration_seconds_count{step="DeleteNode"}`,
	} {
		assert.Regexp(t, "\n"+regexp.QuoteMeta(series)+" [1-9]", scrape)
	}
	var seen struct{ Data []string }
	require.NoError(t, prom.get(ctx, "/api/v1/label/__name__/values", nil, &seen))
	for _, file := range []string{"../../configs/prometheus/fenced.rules.yaml", "../../configs/grafana/fenced.json"} {
		text := must.Do(os.ReadFile(file))(t)
		for _, name := range regexp.MustCompile(`\b(?:fenced|process|go)_[a-z_]+`).FindAllString(string(text), -1) {
			assert.Contains(t, seen.Data, name, file)
		}
	}
}

// requireGoodNames asks promtool for its opinion of names, units and help.
func requireGoodNames(t *testing.T, metrics string) {
	t.Helper()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(metrics)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, strings.TrimSpace(string(out)))
}
