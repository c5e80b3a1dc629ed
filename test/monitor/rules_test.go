// Package monitor tests the files that Prometheus and Grafana load, with Debian's promtool.
// test/e2e runs them against a real Prometheus that scrapes a real fenced.
package monitor

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// testsOf are the tests of one alert, as a file for promtool.
func testsOf(t *testing.T, alert string) []byte {
	t.Helper()
	var all map[string]any
	read(t, testsFile, &all)
	all["tests"] = slices.DeleteFunc(all["tests"].([]any), func(c any) bool {
		return c.(map[string]any)["alert_rule_test"].([]any)[0].(map[string]any)["alertname"] != alert
	})
	return must.Do(json.Marshal(all))(t)
}

// The tests of the rules can fail: they notice an alert that never fires, and one that
// always does.
func TestBrokenAlertsAreNoticed(t *testing.T) {
	for i, r := range readRules(t).Groups[0].Rules {
		tests := testsOf(t, r["alert"].(string))
		for _, expr := range []string{"vector(0) > 1", "vector(1)"} {
			broken := readRules(t)
			broken.Groups[0].Rules[i]["expr"] = expr
			dir := t.TempDir()
			data := must.Do(json.Marshal(broken))(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(rulesFile)), data, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), tests, 0o600))
			out, err := promtool(t, "test", "rules", filepath.Join(dir, "test.yaml"))
			assert.Error(t, err, "%s with the expression %s passed", r["alert"], expr)
			assert.Contains(t, out, "alertname: "+r["alert"].(string))
		}
	}
}

// Each alert says how bad it is and what to do, and the page has a row and a section of each. No section is of an alert
// that is gone.
func TestAlertsAreExplained(t *testing.T) {
	page := string(must.Do(os.ReadFile("../../docs/alerts.md"))(t))
	var alerts []string
	for _, r := range readRules(t).Groups[0].Rules {
		name, notes := r["alert"].(string), r["annotations"].(map[string]any)
		severity := r["labels"].(map[string]any)["severity"]
		assert.Contains(t, []any{"critical", "warning", "info"}, severity, name)
		assert.NotEmpty(t, notes["summary"], name)
		assert.Regexp(t, `fencectl |systemctl `, notes["description"], name)
		assert.Contains(t, page, fmt.Sprintf("| [`%s`](alerts.md#%s) | %s | ", name, strings.ToLower(name), severity))
		_, section, _ := strings.Cut(page, "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		assert.Regexp(t, "`(?:fencectl|systemctl|journalctl) ", section, "%s: the section says what to do", name)
		alerts = append(alerts, name)
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (Fenced\w+)$`).FindAllStringSubmatch(page, -1) {
		sections = append(sections, m[1])
	}
	assert.ElementsMatch(t, alerts, sections)
}

var update = flag.Bool("update", false, "write the address of the runbooks into the rules and their tests anew")

// The address of the page of the runbooks stands in the head of the rules. Each alert leads to its own section there, which
// TestAlertsAreExplained finds: a forge calls it by the name in small letters.
func TestRunbooksAreSectionsOfThePage(t *testing.T) {
	base := regexp.MustCompile(`(?m)^# runbooks: (https://\S+/docs/alerts\.md)$`).FindSubmatch(must.Do(os.ReadFile(rulesFile))(t))
	require.NotNil(t, base)
	if *update {
		for _, file := range []string{rulesFile, testsFile} {
			text := regexp.MustCompile(`(runbook_url: ")[^"#]*#`).ReplaceAll(must.Do(os.ReadFile(file))(t), append([]byte("${1}"), append(base[1], '#')...))
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}
	}
	for _, r := range readRules(t).Groups[0].Rules {
		name := r["alert"].(string)
		assert.Equal(t, string(base[1])+"#"+strings.ToLower(name), r["annotations"].(map[string]any)["runbook_url"], name)
	}
	page := string(must.Do(os.ReadFile("../../docs/alerts.md"))(t))
	assert.Contains(t, page, "sed -i 's|"+string(base[1])+"|", "the page says how to name another address")
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
