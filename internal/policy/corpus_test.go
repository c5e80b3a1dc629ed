package policy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

var update = flag.Bool("update", false, "rewrite the want parts of the corpus")

// TestCorpus judges every case of testdata: objects and a time in, one line for
// each check and target out. The first line of a case says why it exists.
func TestCorpus(t *testing.T) {
	files := must.Do(filepath.Glob("testdata/*.txtar"))(t)
	require.GreaterOrEqual(t, len(files), 80)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := must.Do(txtar.ParseFile(file))(t)
			require.Regexp(t, `^# .+: `, string(archive.Comment), "a case begins with its rule and why")
			got := caseOutput(t, archive)
			want := part(t, archive, "want")
			if *update {
				want.Data = []byte(got)
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
			}
			assert.Equal(t, string(want.Data), got)
		})
	}
}

// caseRules are the settings that a case may have.
var caseRules = map[string]func(*policy.Rules){
	"machineFailureReason": func(r *policy.Rules) { r.MachineFailureReason = true },
	"waitForUpgrade":       func(r *policy.Rules) { r.WaitForUpgrade = true },
}

// loadCase decodes a case's objects; broken documents are part of some cases.
func loadCase(t *testing.T, archive *txtar.Archive) (policy.Snapshot, time.Time) {
	t.Helper()
	at := must.Do(time.Parse(time.RFC3339, strings.TrimSpace(string(part(t, archive, "at").Data))))(t)
	var objects manifest.Objects
	require.NoError(t, objects.Add("objects.yaml", part(t, archive, "objects.yaml").Data))
	snapshot := objects.Snapshot()
	snapshot.ReadsOff = map[string]bool{}
	for _, f := range archive.Files {
		if f.Name == "reads-off" { // what no object says
			for node := range strings.FieldsSeq(string(f.Data)) {
				snapshot.ReadsOff[node] = true
			}
		}
		if f.Name == "rules" { // settings of the daemon
			for rule := range strings.FieldsSeq(string(f.Data)) {
				set, ok := caseRules[rule]
				require.True(t, ok, "unknown rule %s", rule)
				set(&snapshot.Rules)
			}
		}
	}
	return snapshot, at
}

func caseOutput(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	snapshot, at := loadCase(t, archive)
	return summary(policy.Decide(snapshot, at))
}

func part(t *testing.T, archive *txtar.Archive, name string) *txtar.File {
	t.Helper()
	for i := range archive.Files {
		if archive.Files[i].Name == name {
			return &archive.Files[i]
		}
	}
	require.Failf(t, "part is missing", "%s", name)
	return nil
}

// summary is a report as a reviewer reads it.
func summary(r policy.Report) string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%s %s/%s %s", c.Kind, c.Namespace, c.Name, c.State)
		if c.State == policy.StateActive {
			fmt.Fprintf(&b, " healthy=%d/%d limit=%s=%d allowed=%t more=%d recheck=%d",
				c.Healthy, c.Expected, c.Limit, c.MaxUnhealthy, c.Allowed, c.RemediationsAllowed, c.RecheckAfterSeconds)
		}
		if c.Kind == policy.FencePolicyKind && !c.Due.IsZero() {
			fmt.Fprintf(&b, " due=%s", c.Due.Format(time.RFC3339))
		}
		fmt.Fprintln(&b, note(c.Message))
		for _, t := range c.Targets {
			code := t.Reason
			if code == "" {
				code = "-"
			}
			fmt.Fprintf(&b, "  %s node=%s %s %s %s %v recheck=%d%s\n",
				t.Machine, t.Node, t.Verdict, code, t.Action, t.Refusals, t.RecheckAfterSeconds, note(t.Message))
		}
	}
	for _, d := range r.Budgets {
		fmt.Fprintf(&b, "%s %s %s", policy.DisruptionBudgetKind, d.Name, d.State)
		if d.State == policy.StateActive {
			fmt.Fprintf(&b, " unavailable=%d/%d limit=%s=%d", d.Unavailable, d.Nodes, d.Limit, d.MaxUnavailable)
		}
		fmt.Fprintln(&b, note(d.Message))
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "error %s%s\n", e.Object, note(e.Message))
	}
	return b.String()
}

func note(message string) string {
	if message == "" {
		return ""
	}
	return "  # " + message
}
