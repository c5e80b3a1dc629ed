// Package monitor tests the files that Prometheus and Grafana load, with Debian's promtool.
// test/e2e runs them against a real Prometheus that scrapes a real fenced.
package monitor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/must"
)

const (
	rulesFile = "../../configs/prometheus/fenced.rules.yaml"
	testsFile = "../../configs/prometheus/fenced.rules.test.yaml"
)

// promtool runs it; where it is missing, the test is skipped, but never in CI.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "promtool is missing; `make deps` installs the package prometheus")
		t.Skip("promtool is missing; `make deps` installs the package prometheus")
	}
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	return string(out), err
}

// rules is fenced.rules.yaml as far as the tests read it.
type rules struct {
	Groups []struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	} `json:"groups"`
}

func readRules(t *testing.T) rules {
	t.Helper()
	var r rules
	read(t, rulesFile, &r)
	require.Len(t, r.Groups, 1)
	require.NotEmpty(t, r.Groups[0].Rules)
	return r
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data := must.Do(os.ReadFile(file))(t)
	require.NoError(t, yaml.Unmarshal(data, into))
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	out, err := promtool(t, "check", "rules", rulesFile)
	require.NoError(t, err, out)
	out, err = promtool(t, "test", "rules", testsFile)
	require.NoError(t, err, out)
}

// Each alert has a test in which it does not fire, fires, and clears, in this order.
func TestEachAlertFiresAndClears(t *testing.T) {
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				EvalTime  string `json:"eval_time"`
				Alertname string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	read(t, testsFile, &tests)
	complete := map[string]bool{}
	for _, c := range tests.Tests {
		var course []bool
		var last time.Duration
		for _, a := range c.AlertRuleTest {
			require.Equal(t, c.AlertRuleTest[0].Alertname, a.Alertname, "one alert for each test")
			at := must.Do(time.ParseDuration(a.EvalTime))(t)
			require.Greater(t, at, last)
			last, course = at, append(course, len(a.ExpAlerts) > 0)
		}
		if assert.ObjectsAreEqual([]bool{false, true, false}, course) {
			complete[c.AlertRuleTest[0].Alertname] = true
		}
	}
	for _, r := range readRules(t).Groups[0].Rules {
		assert.True(t, complete[r["alert"].(string)], "%s: no test in which it fires and clears", r["alert"])
	}
}

// The tests of the rules can fail: they notice an alert that never fires, and one that
// always does.
func TestBrokenAlertsAreNoticed(t *testing.T) {
	tests := must.Do(os.ReadFile(testsFile))(t)
	for i, r := range readRules(t).Groups[0].Rules {
		for _, expr := range []string{"vector(0) > 1", "vector(1)"} {
			broken := readRules(t)
			broken.Groups[0].Rules[i]["expr"] = expr
			dir := t.TempDir()
			data := must.Do(json.Marshal(broken))(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(rulesFile)), data, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), tests, 0o600))
			out, err := promtool(t, "test", "rules", filepath.Join(dir, "test.yaml"))
			assert.Error(t, err, "%s with the expression %s passed", r["alert"], expr)
			assert.Contains(t, out, r["alert"])
		}
	}
}

// Each alert says how bad it is and what to do, and the documents explain it.
func TestAlertsAreExplained(t *testing.T) {
	text := must.Do(os.ReadFile("../../docs/alerts.md"))(t)
	for _, r := range readRules(t).Groups[0].Rules {
		name := r["alert"].(string)
		assert.Contains(t, []any{"critical", "warning"}, r["labels"].(map[string]any)["severity"], name)
		notes := r["annotations"].(map[string]any)
		assert.NotEmpty(t, notes["summary"], name)
		assert.Regexp(t, `fencectl |systemctl `, notes["description"], name)
		assert.Contains(t, string(text), "| `"+name+"` |")
	}
}

// What is on the disk is what Grafana would write, so that a change shows in a diff.
func TestDashboardIsJSON(t *testing.T) {
	data := must.Do(os.ReadFile("../../configs/grafana/fenced.json"))(t)
	var text bytes.Buffer
	require.NoError(t, json.Indent(&text, data, "", "  "))
	assert.Equal(t, text.String(), string(data))
	var board struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID    int    `json:"id"`
			Title string `json:"title"`
		} `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(data, &board))
	assert.Equal(t, "fenced", board.UID)
	seen := map[int]string{}
	for _, p := range board.Panels {
		assert.NotEmpty(t, p.Title)
		assert.Empty(t, seen[p.ID], "two panels have one id")
		seen[p.ID] = p.Title
	}
}
