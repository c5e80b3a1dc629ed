package manifest_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

func many(n int, entry string) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"key": fmt.Sprintf("%s-%d", entry, i), "operator": "DoesNotExist", "type": "Ready", "status": "x", "timeout": "1s",
			"duration": "1s", "schedule": "0 0 * * *", "order": int64(i)}
	}
	return list
}

func numbered(n int) map[string]any {
	m := make(map[string]any, n)
	for i := range n {
		m[fmt.Sprintf("label-%d", i)] = "v"
	}
	return m
}

// A check that would cost too much, for each of the targets that it may have, is not
// evaluated; what is wrong with one is told in a few words, however much it is.
func TestChecksThatCostTooMuchAreInvalid(t *testing.T) { // I18
	for name, spec := range map[string]map[string]any{
		"10000 expressions":     {"selector": map[string]any{"matchExpressions": many(10_000, "a")}},
		"1000 labels":           {"selector": map[string]any{"matchLabels": numbered(1000)}},
		"10000 conditions":      {"unhealthyConditions": many(10_000, "a")},
		"50000 broken entries":  {"selector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In", "values": make([]any, 50_000)}}}},
		"50000 unusable labels": {"selector": map[string]any{"matchLabels": map[string]any{strings.Repeat("x", 1<<20): int64(1)}}},
		"a timeout of a MiB":    {"unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "False", "timeout": strings.Repeat("9", 1<<20)}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, decode := range []func(map[string]any) policy.Check{manifest.MachineHealthCheck, manifest.NodeHealthCheck, manifest.FencePolicy} {
				began := time.Now()
				c := decode(map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": policy.MachineHealthCheckKind,
					"metadata": map[string]any{"namespace": "ns", "name": "c"}, "spec": spec})
				assert.NotEmpty(t, c.Invalid)
				assert.Less(t, len(c.Invalid), 16<<10)
				assert.Less(t, time.Since(began), time.Minute)
			}
		})
	}
}

// Whatever the limit of a check says, what is no number and no percentage lets nothing
// be fenced.
func TestGarbageLimitsFenceNothing(t *testing.T) { // I18
	for _, limit := range []string{`abc`, `"-5"`, `-5`, `"50%%"`, `" 50%"`, `"%"`, `"0x10"`, `1.5`, `{}`, `[]`, `99999999999999999999`,
		`"99999999999999999999%"`, `"\u096b%"`, `"1e9%"`, `true`, `"50 %"`, `"\u001b[2J"`} {
		t.Run(limit, func(t *testing.T) {
			r := policy.Decide(snapshot(t, sickOf(limit, `"2026-01-01T00:00:00Z"`)), stamp)
			require.Len(t, r.Checks, 1)
			for _, target := range r.Checks[0].Targets {
				assert.False(t, target.Acts(), "limit %s: %+v", limit, r.Checks[0])
			}
		})
	}
}

// A condition whose time cannot be is no reason before its time.
func TestAbsurdTimesFenceNothing(t *testing.T) { // I17
	for at, acts := range map[string]bool{
		`"2026-01-01T00:00:00Z"`: true, `"9999-12-31T23:59:59Z"`: false, `"2300-01-01T00:00:00Z"`: false, `"-0001-01-01T00:00:00Z"`: false,
		`"10000-01-01T00:00:00Z"`: false, `"2026-13-45T00:00:00Z"`: false, `"2026-01-01T00:00:60Z"`: false, `"yesterday"`: false, `1767225600`: false, `{}`: false,
		`"2026-01-01T00:00:00+99:99"`: false,
	} {
		t.Run(at, func(t *testing.T) {
			r := policy.Decide(snapshot(t, sickOf("100%", at)), stamp)
			require.Len(t, r.Checks, 1)
			acting := 0
			for _, target := range r.Checks[0].Targets {
				if target.Acts() {
					acting++
				}
			}
			assert.Equal(t, acts, acting > 0, "%+v", r.Checks[0])
		})
	}
}

// A time at the end of the calendar, and its sum with the longest timeout, can be answered and stored: as JSON they would fail the
// answer about all others.
func TestTimesThatOthersWriteAreJSON(t *testing.T) {
	for _, at := range []string{`"9999-12-31T23:59:59Z"`, `"9999-12-31T23:59:59-12:00"`, `"0000-01-01T00:00:00+12:00"`, `"2026-01-01T00:00:00Z"`} {
		s := snapshot(t, sickOf("100%", at))
		for i := range s.Checks {
			for j := range s.Checks[i].Conditions {
				s.Checks[i].Conditions[j].Timeout = math.MaxInt64
			}
		}
		r := policy.Decide(s, stamp)
		require.Len(t, r.Checks, 1)
		for _, target := range r.Checks[0].Targets {
			_, err := json.Marshal([]any{target, target.Since.UTC(), target.Due.UTC(), target.Due.Local()})
			assert.NoError(t, err, at)
		}
	}
}

// sickOf is a sick Node and a well one of a check with this limit; the sick one is so
// since a time.
func sickOf(limit, since string) string {
	return `
{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c, annotations: {machine.openshift.io/remediation-strategy: external-baremetal}}, spec: {maxUnhealthy: ` + limit + `, selector: {}, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 1s}]}}
` + machineAndNode("a", "Unknown", since) + machineAndNode("b", "True", `"2026-01-01T00:00:00Z"`)
}

func machineAndNode(name, ready, since string) string {
	return `---
{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {namespace: ns, name: ` + name + `, uid: m` + name + `}, status: {phase: Running, nodeRef: {name: ` + name + `}}}
---
{apiVersion: v1, kind: Node, metadata: {name: ` + name + `, uid: n` + name + `}, status: {conditions: [{type: Ready, status: "` + ready + `", lastTransitionTime: ` + since + `}]}}
`
}
