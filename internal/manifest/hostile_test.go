package manifest_test

import (
	"encoding/json"
	"fmt"
	"math"
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
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/must"
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

// What a tenant writes is kept, compared and shown, so it is bounded where it comes in.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	meta := map[string]any{"namespace": "tenant", "name": "x", "annotations": map[string]any{"other": long, "cluster.x-k8s.io/paused": long}}
	check := func(spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "MachineHealthCheck", "metadata": meta, "spec": spec}
	}
	machine := func(field string, value any) map[string]any {
		return map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "Machine", "metadata": meta, field: value}
	}
	many := make([]any, 300)
	for i := range many {
		many[i] = map[string]any{"type": "t", "status": "s"}
	}
	labels := map[string]any{}
	for i := range 2000 {
		labels[strings.Repeat("k", 40)+strings.Repeat("i", i%20)+long[:i]] = "v"
	}

	c := manifest.MachineHealthCheck(check(map[string]any{"maxUnhealthy": long}))
	assert.Contains(t, c.Invalid, "spec.maxUnhealthy: is 1048576 bytes long, more than 4096")
	assert.True(t, c.Paused, "the annotation is there, whatever its length")
	assert.Less(t, len(c.Annotations["cluster.x-k8s.io/paused"]), 5000)
	assert.NotContains(t, c.Annotations, "other")
	assert.Less(t, len(c.MaxUnhealthy.StrVal), 5000)

	c = manifest.MachineHealthCheck(check(map[string]any{"selector": map[string]any{"matchLabels": labels}}))
	assert.Contains(t, c.Invalid, "spec.selector.matchLabels: are ")
	assert.Nil(t, c.Selector)

	for want, fields := range map[string]map[string]any{
		"spec.providerID: is 1048576 bytes long": machine("spec", map[string]any{"providerID": long}),
		"status.phase: is 1048576 bytes long":    machine("status", map[string]any{"phase": long}),
	} {
		_, err := manifest.Machine(fields)
		assert.ErrorContains(t, err, want)
	}
	request, err := manifest.Request(map[string]any{"apiVersion": "a/v1", "kind": "K", "metadata": meta, "status": map[string]any{"conditions": many}})
	assert.ErrorContains(t, err, "status.conditions: has 300 entries, more than 256")
	assert.Empty(t, request.Conditions)
}

// All texts of an object together are bounded, too; the many Nodes of a NodeHealthCheck in an outage are not too many, nor are the
// network cards of a large host.
func TestManyTexts(t *testing.T) {
	var conditions, nodes, nics []any
	for i := range 5000 {
		name := fmt.Sprintf("worker-%d.example.org", i)
		nodes = append(nodes, map[string]any{"name": name, "remediations": []any{map[string]any{"templateName": "t",
			"resource": map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation", "name": name}}}})
	}
	for i := range 250 {
		conditions = append(conditions, map[string]any{"type": strings.Repeat("c", 4000), "status": "True"})
		nics = append(nics, map[string]any{"mac": fmt.Sprintf("00:00:00:00:00:%02x", i), "ip": "192.0.2.1"}, map[string]any{"mac": fmt.Sprintf("00:00:00:00:00:%02x", i), "ip": "2001:db8::1"})
	}
	m, err := manifest.Machine(map[string]any{"apiVersion": policy.ClusterAPIV1Beta2, "kind": "Machine", "metadata": map[string]any{"namespace": "tenant", "name": "x"},
		"status": map[string]any{"conditions": conditions}})
	require.ErrorContains(t, err, "together they have more than 131072 bytes")
	assert.Equal(t, 1, strings.Count(err.Error(), "together"))
	size := 0
	for _, c := range m.Conditions {
		size += len(c.Type)
	}
	assert.LessOrEqual(t, size, 1<<17)

	c := manifest.NodeHealthCheck(map[string]any{"apiVersion": policy.Medik8sAPI, "kind": "NodeHealthCheck", "metadata": map[string]any{"name": "nhc"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "minHealthy": "51%", "remediationTemplate": map[string]any{
			"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediationTemplate", "namespace": "n", "name": "t"}},
		"status": map[string]any{"unhealthyNodes": nodes}})
	assert.Empty(t, c.Invalid)
	assert.Len(t, c.Attempts, 5000)

	h, err := manifest.BareMetalHost(map[string]any{"metadata": map[string]any{"namespace": "n", "name": "h"},
		"spec": map[string]any{"bmc": map[string]any{"address": "ipmi://192.0.2.1", "credentialsName": "s"}}, "status": map[string]any{"hardware": map[string]any{"nics": nics}}})
	assert.NoError(t, err)
	assert.Len(t, h.NICs, 128)
}

// FuzzDecode: whatever the input, decoding and judging end, give the same
// answer twice, and never act on a target of an input that has errors of the
// kind that may hide its Node.
func FuzzDecode(f *testing.F) {
	files := must.Do(filepath.Glob("../policy/testdata/*.txtar"))(f)
	for _, file := range files {
		data := must.Do(os.ReadFile(file))(f)
		f.Add(txtar.Parse(data).Files[1].Data)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var o manifest.Objects
		if err := o.Add("in", data); err != nil {
			assert.ErrorIs(t, err, manifest.ErrUnreadable)
			return
		}
		s := o.Snapshot()
		r := policy.Decide(s, now)
		assert.Equal(t, r, policy.Decide(o.Snapshot(), now))
		for _, c := range r.Checks {
			assert.LessOrEqual(t, c.Healthy, c.Expected)
			counted := 0
			for _, target := range c.Targets {
				if target.Verdict != policy.Skipped {
					counted++
				}
				if target.Reason == reason.NodeNotFound {
					assert.NotContains(t, s.Undecoded, policy.ObjectKey{}, "a Node was taken for gone in spite of what could not be read")
				}
			}
			assert.Equal(t, counted, c.Expected)
		}
	})
}

func FuzzDecodePolicies(f *testing.F) {
	f.Add([]byte(policyFile))
	f.Add([]byte(ownKinds))
	f.Add([]byte(on(`maintenanceWindows: [{schedule: "CRON_TZ=UTC", duration: 1h}]`)))
	f.Add([]byte(nodeCheckFile))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := manifest.DecodePolicies("in", data)
		if err != nil {
			assert.True(t, found.AnyCluster || len(found.Clusters) > 0, "which clusters it concerns")
		}
		for _, b := range found.Budgets {
			assert.Empty(t, b.Invalid)
		}
		for _, c := range found.Checks {
			state, message := c.State()
			assert.Contains(t, []policy.State{policy.StateActive, policy.StatePaused}, state, message)
		}
	})
}
