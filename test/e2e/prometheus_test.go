package e2e

import (
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
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

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
	rules, err := filepath.Abs("../../configs/prometheus/fenced.rules.yaml")
	require.NoError(t, err)
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
	text, err := os.ReadFile("../../configs/grafana/fenced.json")
	require.NoError(t, err)
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
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, path := range []string{"/healthz", "/readyz"} {
		require.Eventually(t, func() bool { return prometheus{"http://" + target}.get(ctx, path, nil, nil) == nil }, patience, 200*time.Millisecond, path)
	}
	well, silent, refused := s.Worker("well"), s.Worker("silent"), s.Worker("refused")
	giveBack := forbidDeletion(ctx, t, s) // so that an action fails, and is tried again
	well.Kubelet.Hang()
	require.Eventually(t, func() bool { return prom.series(ctx, t, "fenced_failures_total", since) > 0 }, patience, time.Second)
	giveBack()
	awaitRun(ctx, t, s, well.Name, result(wire.ResultDone))
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
		return assert.ObjectsAreEqual(want, got)
	}, patience, time.Second, "%v", got)

	requireGoodNames(t, get(ctx, t, http.DefaultTransport, "http://"+target+"/metrics"))
	var seen struct{ Data []string }
	require.NoError(t, prom.get(ctx, "/api/v1/label/__name__/values", nil, &seen))
	for _, file := range []string{"../../configs/prometheus/fenced.rules.yaml", "../../configs/grafana/fenced.json"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
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
