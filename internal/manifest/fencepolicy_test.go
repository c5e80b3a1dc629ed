package manifest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

const ownKinds = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: racks}
spec:
  clusters: [prod, lab]
  nodeSelector: {matchLabels: {rack: r1}, matchExpressions: [{key: pool, operator: In, values: [a, b]}]}
  unhealthyConditions:
  - {type: Ready, status: Unknown, timeout: 60s}
  - {type: Disk, status: "True", timeout: 1h}
  nodeStartupTimeout: 30m
  limit: 40%
  strategy: PowerCycle
  isolation: outOfServiceTaint
  maxAttempts: 5
  deadlines: {powerOff: 1m, powerOn: 2m, nodeReady: 3m, run: 4h}
  zoneKey: example.com/rack
  maintenanceWindows:
  - {schedule: "0 2 * * 6", duration: 4h, action: Pause}
  shortenOnEvidence: true
---
apiVersion: fenced.io/v1alpha1
kind: DisruptionBudget
metadata: {name: racks, annotations: {fenced.io/cluster: prod}}
spec: {nodeSelector: {}, maxUnavailable: 10%}
`

func TestFencePolicyEveryKey(t *testing.T) {
	found := must.Do(manifest.DecodePolicies("own.yaml", []byte(ownKinds)))(t)
	require.Len(t, found.Checks, 1)
	c := found.Checks[0]
	assert.Equal(t, "racks", c.Key())
	assert.Equal(t, "own.yaml:1", c.Source)
	assert.Equal(t, []string{"prod", "lab"}, c.Clusters)
	assert.True(t, c.SelectsNodes)
	assert.Equal(t, "pool in (a,b),rack=r1", c.Selector.String())
	assert.Equal(t, []policy.UnhealthyCondition{
		{Type: "Ready", Status: "Unknown", Timeout: time.Minute}, {Type: "Disk", Status: "True", Timeout: time.Hour},
	}, c.Conditions)
	assert.Equal(t, 30*time.Minute, c.StartupTimeout)
	assert.Equal(t, "40%", c.MaxUnhealthy.String())
	assert.Equal(t, policy.PowerCycleHosts, c.Strategy)
	assert.Equal(t, "outOfServiceTaint", c.Isolation)
	assert.Equal(t, 5, c.MaxAttempts)
	assert.Equal(t, policy.Deadlines{PowerOff: time.Minute, PowerOn: 2 * time.Minute, NodeReady: 3 * time.Minute, Run: 4 * time.Hour}, c.Deadlines)
	assert.Equal(t, "example.com/rack", c.ZoneKey)
	assert.True(t, c.ShortenOnEvidence)
	require.Len(t, c.Windows, 1)
	w := c.Windows[0]
	assert.Equal(t, "0 2 * * 6", w.Text)
	assert.Equal(t, 4*time.Hour, w.Duration)
	assert.Equal(t, time.Date(2026, 1, 3, 2, 0, 0, 0, time.UTC), w.Starts.Next(stamp))

	require.Len(t, found.Budgets, 1)
	b := found.Budgets[0]
	assert.Equal(t, "racks", b.Name)
	assert.Equal(t, "own.yaml:21", b.Source)
	assert.Equal(t, []string{"prod"}, b.Clusters)
	assert.True(t, b.Selector.Empty(), "an empty selector is every Node")
	assert.Equal(t, intstr.FromString("10%"), b.MaxUnavailable)
}

func TestFencePolicyDefaults(t *testing.T) {
	found := must.Do(manifest.DecodePolicies("own.yaml", []byte(ownDocument("machineSelector: {matchLabels: {rack: r1}}"))))(t)
	c := found.Checks[0]
	assert.False(t, c.SelectsNodes)
	assert.Equal(t, policy.PowerCycleHosts, c.Strategy)
	assert.Equal(t, 10*time.Minute, c.StartupTimeout)
	assert.Nil(t, c.MaxUnhealthy)
	assert.Zero(t, c.UnhealthyRange)
	assert.Zero(t, c.Isolation, "the configuration's")
	assert.Zero(t, c.MaxAttempts)
	assert.Zero(t, c.Deadlines)
	assert.Zero(t, c.ZoneKey)
	assert.False(t, c.ShortenOnEvidence)
}

// ownDocument is a FencePolicy with these lines as its spec.
func ownDocument(lines ...string) string {
	return "apiVersion: fenced.io/v1alpha1\nkind: FencePolicy\nmetadata: {name: racks}\nspec:\n  " + strings.Join(lines, "\n  ") + "\n"
}

// on is a FencePolicy that is good but for these lines, which begin on line 7.
func on(lines ...string) string {
	return ownDocument(append([]string{
		"nodeSelector: {matchLabels: {rack: r1}}",
		"unhealthyConditions: [{type: Ready, status: Unknown, timeout: 60s}]",
	}, lines...)...)
}

func budgetOf(spec string) string {
	return "apiVersion: fenced.io/v1alpha1\nkind: DisruptionBudget\nmetadata: {name: zone-a}\nspec: {" + spec + "}\n"
}

// TestOwnKindsNameLineAndField: a file with several mistakes tells of each.
func TestOwnKindsNameLineAndField(t *testing.T) {
	text := on("limit: some", "deadlines:", "  powerOff: 0s", "  powerUp: 5s", "maintenanceWindows:", "- schedule: 0 2 * * 6", "  duration: 200h") +
		"---\n" + budgetOf("nodeSelector: {}, maxUnavailable: -1") + "---\n" + on() + "---\n" + on()
	found, err := manifest.DecodePolicies("f.yaml", []byte(text))
	require.Error(t, err)
	assert.LessOrEqual(t, len(found.Checks), 1, "what is good stays")
	for _, want := range []string{
		`f.yaml:7: spec.limit: "some" is neither a whole number nor a percentage, nor a range like "[1-3]"`,
		`f.yaml:9: spec.deadlines.powerOff: "0s" is not greater than 0`,
		`f.yaml:10: spec.deadlines.powerUp: unknown key`,
		`f.yaml:13: spec.maintenanceWindows[0].duration: "200h" is longer than 7 days`,
		`f.yaml:18: spec.maxUnavailable: -1 is negative`,
		`f.yaml:20: FencePolicy racks is also on line 1`,
		`f.yaml:27: FencePolicy racks is also on line 1`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, 7, strings.Count(err.Error(), "f.yaml:"), "%s", err)
}

// TestOwnKindsValues: decoder and published schema agree on every row.
func TestOwnKindsValues(t *testing.T) {
	s := published(t)
	try := func(good bool, document string) {
		t.Helper()
		_, err := manifest.DecodePolicies("f.yaml", []byte(document))
		documents := ownDocuments(t, []byte(document))
		require.Len(t, documents, 1)
		invalid := validate(t, s, documents[0])
		assert.Equal(t, good, err == nil, "decoder: %v\n%s", err, document)
		assert.Equal(t, good, invalid == nil, "schema: %v\n%s", invalid, document)
	}
	for key, values := range map[string][2][]string{
		"limit":              {{"0", "7", `"7"`, "0%", "100%", `"[0-0]"`, `"[1-30]"`}, {"-1", "1.5", `"1.5%"`, "101%", `"-1"`, `"[1-]"`, `"[1-2)"`, `"1-2"`, `" 7"`, `""`, "true", "[1, 3]", "~"}},
		"nodeStartupTimeout": {{"0s", "90s", "1h30m", "1.5h", `"0"`}, {"90", "-5s", "5 m", `""`, "5d", "~"}},
		"strategy":           {{"PowerCycle", "DeleteMachine", "None"}, {"powerCycle", "Reboot", `""`, "~", "1"}},
		"isolation":          {{"deleteNode", "outOfServiceTaint"}, {"auto", `""`, "true"}},
		"maxAttempts":        {{"1", "10"}, {"0", "11", "-1", `"3"`, "2.5", "~"}},
		"deadlines":          {{"{}", "{run: 2h}", "{powerOff: 1s, powerOn: 1s, nodeReady: 1s, run: 1s}"}, {"{run: 0s}", "{run: ~}", "{off: 1s}", "[]", "5m"}},
		"zoneKey":            {{"zone", "topology.kubernetes.io/zone"}, {`""`, "a/b/c", "-x", "Example.com/zone", "7", "~"}},
		"shortenOnEvidence":  {{"true", "false"}, {`"true"`, "yes please", "1", "~"}},
		"clusters":           {{"[]", "[prod]", "[a, b]"}, {"prod", `[""]`, "[a, a]", "[1]", "~"}},
		"maintenanceWindows": {
			{
				"[]", `[{schedule: "0 2 * * 6", duration: 168h}]`, `[{schedule: "*/5 0-4,22 1 JAN-MAR mon", duration: 1s, action: Pause}]`,
				`[{schedule: "CRON_TZ=America/New_York 0 2 * * ?", duration: 1m}]`,
			},
			{
				"{}", "[x]", "[{}]", `[{schedule: "0 2 * * 6"}]`, "[{duration: 1h}]", `[{schedule: "0 2 * * 6", duration: 0s}]`,
				`[{schedule: "0 2 * *", duration: 1h}]`, `[{schedule: "@daily", duration: 1h}]`, `[{schedule: "", duration: 1h}]`,
				`[{schedule: "TZ=UTC 0 2 * * 6", duration: 1h}]`, `[{schedule: "CRON_TZ=Local 0 2 * * 6", duration: 1h}]`,
				`[{schedule: "0 2 * * 6", duration: 1h, action: Drain}]`, `[{schedule: "0 2 * * 6", duration: 1h, zone: UTC}]`,
			},
		},
		"unknown": {nil, []string{"1"}},
	} {
		for i, list := range values {
			for _, value := range list {
				try(i == 0, on(fmt.Sprintf("%s: %s", key, value)))
			}
		}
	}
	conditions := "unhealthyConditions: [{type: Ready, status: Unknown, timeout: 60s}]"
	for selector, good := range map[string]bool{
		"nodeSelector: {matchLabels: {a: b}}":                                              true,
		"nodeSelector: {matchLabels: {example.com/a: \"\"}}":                               true,
		"machineSelector: {matchExpressions: [{key: a, operator: Exists}]}":                true,
		"machineSelector: {matchExpressions: [{key: a, operator: Exists, values: []}]}":    true,
		"machineSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, y]}]}": true,
		"nodeSelector: {}":                                                              false,
		"machineSelector: {}":                                                           false,
		"nodeSelector: ~":                                                               false,
		"nodeSelector: {matchLabels: {}}":                                               false,
		"nodeSelector: {matchLabels: {a: 1}}":                                           false,
		"nodeSelector: {matchLabels: {a: ~}}":                                           false,
		"nodeSelector: {matchLabels: {a: -b-}}":                                         false,
		"nodeSelector: {matchLabels: {-a: b}}":                                          false,
		"nodeSelector: {matchLabel: {a: b}}":                                            false,
		"nodeSelector: {matchExpressions: [{key: a, operator: in, values: [x]}]}":       false,
		"nodeSelector: {matchExpressions: [{key: a, operator: In, values: []}]}":        false,
		"nodeSelector: {matchExpressions: [{key: a, operator: In}]}":                    false,
		"nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [x]}]}":   false,
		"nodeSelector: {matchExpressions: [{operator: Exists}]}":                        false,
		"nodeSelector: {matchLabels: {a: b}}\n  machineSelector: {matchLabels: {a: b}}": false,
		"nodeSelector: {matchLabels: {a: b}}\n  machineSelector: {}":                    false,
		"clusters: [prod]":                                                              false,
	} {
		try(good, ownDocument(selector, conditions))
	}
	nodes := "nodeSelector: {matchLabels: {a: b}}"
	for lines, good := range map[string]bool{
		nodes:                                                               false,
		nodes + "\n  strategy: None":                                        true,
		nodes + "\n  unhealthyConditions: []":                               false,
		nodes + "\n  unhealthyConditions: {}":                               false,
		nodes + "\n  unhealthyConditions: [Ready]":                          false,
		nodes + "\n  unhealthyConditions: [{type: Ready}]":                  false,
		"machineSelector: {matchLabels: {a: b}}":                            true,
		"machineSelector: {matchLabels: {a: b}}\n  shortenOnEvidence: true": true,
		"machineSelector: {matchLabels: {a: b}}\n  strategy: DeleteMachine\n  shortenOnEvidence: true":  false,
		"machineSelector: {matchLabels: {a: b}}\n  strategy: DeleteMachine\n  shortenOnEvidence: false": true,
		"machineSelector: {matchLabels: {a: b}}\n  strategy: None\n  shortenOnEvidence: true":           true,
		nodes + "\n  unhealthyConditions: [{type: Ready, status: true, timeout: 1m}]":                   false,
		nodes + "\n  unhealthyConditions: [{type: \"\", status: Unknown, timeout: 1m}]":                 false,
		nodes + "\n  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 1m, for: 1}]":        false,
		nodes + "\n  strategy: None\n  maintenanceWindows: [{schedule: 0 2 * * 6, duration: 1h}]":       false,
	} {
		try(good, ownDocument(lines))
	}
	for spec, good := range map[string]bool{
		"nodeSelector: {}, maxUnavailable: 5":                      true,
		"nodeSelector: {matchLabels: {a: b}}, maxUnavailable: 20%": true,
		"clusters: [prod], nodeSelector: {}, maxUnavailable: 0":    true,
		"nodeSelector: {}":                                          false,
		"maxUnavailable: 5":                                         false,
		"nodeSelector: {}, maxUnavailable: ~":                       false,
		"nodeSelector: {}, maxUnavailable: 101%":                    false,
		"nodeSelector: {}, maxUnavailable: -1":                      false,
		"nodeSelector: {}, maxUnavailable: '[1-2]'":                 false,
		"nodeSelector: {a: b}, maxUnavailable: 5":                   false,
		"nodeSelector: {}, maxUnavailable: 5, strategy: None":       false,
		"machineSelector: {matchLabels: {a: b}}, maxUnavailable: 5": true,
		"machineSelector: {}, maxUnavailable: 5":                    true,
		"nodeSelector: {}, machineSelector: {}, maxUnavailable: 5":  false,
	} {
		try(good, budgetOf(spec))
	}
	for meta, good := range map[string]bool{
		"{name: racks, labels: {a: b}, annotations: {a: b}}": true,
		"{name: racks.example.com}":                          true,
		"{}":                                                 false,
		"{name: ''}":                                         false,
		"{name: Racks}":                                      false,
		"{name: a/b}":                                        false,
		"{name: racks, namespace: x}":                        false,
		"{name: racks, annotations: {a: 1}}":                 false,
		"x":                                                  false,
	} {
		try(good, strings.Replace(on(), "{name: racks}", meta, 1))
	}
	try(true, strings.Replace(on(), "{name: racks}", "{name: racks, annotations: {fenced.io/cluster: prod}}", 1))
	try(false, strings.Replace(on("clusters: [prod]"), "{name: racks}", "{name: racks, annotations: {fenced.io/cluster: prod}}", 1))
	try(false, on()+"status: {}\n")
}

const policyFile = `# two checks
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata:
  namespace: mapi
  name: workers
  annotations: {fenced.io/cluster: prod, machine.openshift.io/remediation-strategy: external-baremetal}
spec:
  selector: {matchLabels: {role: worker}}
  unhealthyConditions:
  - {type: Ready, status: Unknown, timeout: 300s}
  maxUnhealthy: 40%
  nodeStartupTimeout: 20m
status: {expectedMachines: 3}
---
apiVersion: v1
kind: List
items:
- apiVersion: machine.openshift.io/v1beta1
  kind: MachineHealthCheck
  metadata: {namespace: mapi, name: infra}
  spec: {}
`

func TestDecodePolicies(t *testing.T) {
	found := must.Do(manifest.DecodePolicies("10.yaml", []byte(policyFile)))(t)
	checks := found.Checks
	require.Len(t, checks, 2)
	c := checks[0]
	assert.Equal(t, "mapi/workers", c.Key())
	assert.Equal(t, []string{"prod"}, c.Clusters)
	assert.Equal(t, "10.yaml:2", c.Source)
	assert.Equal(t, policy.PowerCycleHosts, c.Strategy)
	assert.Equal(t, "role=worker", c.Selector.String())
	assert.Equal(t, []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: 5 * time.Minute}}, c.Conditions)
	assert.Equal(t, "40%", c.MaxUnhealthy.String())
	assert.Equal(t, 20*time.Minute, c.StartupTimeout)
	assert.Equal(t, "10.yaml:19", checks[1].Source)
	assert.Equal(t, policy.DeleteMachines, checks[1].Strategy)
	assert.Equal(t, 10*time.Minute, checks[1].StartupTimeout)

	found = must.Do(manifest.DecodePolicies("empty.yaml", []byte("# nothing yet\n")))(t)
	assert.Empty(t, found)
}

func TestDecodePoliciesRefuses(t *testing.T) {
	const head = "apiVersion: machine.openshift.io/v1beta1\nkind: MachineHealthCheck\nmetadata: {namespace: ns, name: c}\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"typing error":       {head + "spec:\n  maxUnhealhty: 1\n", []string{"f.yaml:5: spec.maxUnhealhty: unknown key (did you mean maxUnhealthy?)"}},
		"unknown on top":     {head + "specs: {}\n", []string{"f.yaml:4: specs: unknown key (did you mean spec?)"}},
		"unknown in a list":  {head + "spec:\n  unhealthyConditions:\n  - type: Ready\n    status: Unknown\n    timeout: 5m\n    grace: 1m\n", []string{"f.yaml:9: spec.unhealthyConditions[0].grace: unknown key"}},
		"bad duration":       {head + "spec:\n  selector: {}\n  nodeStartupTimeout: foo10m\n", []string{`f.yaml:6: spec.nodeStartupTimeout: "foo10m" is not a duration`}},
		"bad limit":          {head + "spec:\n  maxUnhealthy: abc\n", []string{`f.yaml:5: spec.maxUnhealthy: "abc" is neither`}},
		"missing timeout":    {head + "spec:\n  unhealthyConditions:\n  - type: Ready\n    status: Unknown\n", []string{"f.yaml:6: spec.unhealthyConditions[0].timeout: is missing"}},
		"all at once":        {head + "spec:\n  maxUnhealhty: 1\n  nodeStartupTimeout: -5m\n---\n{}\n", []string{"f.yaml:5: ", `f.yaml:6: spec.nodeStartupTimeout: "-5m" is negative`, "f.yaml:8: (missing) (missing) is not a policy"}},
		"no name":            {"apiVersion: machine.openshift.io/v1beta1\nkind: MachineHealthCheck\nmetadata:\n  namespace: ns\n", []string{"f.yaml:3: metadata.name: is missing"}},
		"no template":        {head + "spec:\n  remediationTemplate: {kind: XTemplate}\n", []string{"f.yaml:4: spec.remediationTemplate names no template"}},
		"twice":              {head + "---\n" + head, []string{"f.yaml:5: MachineHealthCheck ns/c is also on line 1"}},
		"twice a key":        {head + "spec: {}\nspec: {}\n", []string{"f.yaml:5: key spec occurs twice"}},
		"no YAML":            {"a: b: c\n", []string{"f.yaml:1: mapping values are not allowed"}},
		"second is no YAML":  {head + "---\na: b: c\n", []string{"f.yaml:5: mapping values are not allowed"}},
		"a tab":              {head + "spec:\n\tmaxUnhealthy: 1\n", []string{"f.yaml:5: a tab indents this line, and YAML takes only spaces there"}},
		"a kind with a slip": {"apiVersion: fenced.io/v1alpha1\nkind: FencePolcy\nmetadata: {name: x}\n", []string{"fenced.io/v1alpha1 FencePolcy is not supported by this version (did you mean fenced.io/v1alpha1 FencePolicy?)"}},
		"a word":             {"hello\n", []string{`f.yaml:1: "hello" is not a policy`}},
		"list with a slip":   {"apiVersion: v1\nkind: List\nitmes:\n- " + strings.ReplaceAll(head, "\n", "\n  ") + "\n", []string{"f.yaml:1: v1 List: items is missing"}},
		"list of no list":    {"apiVersion: v1\nkind: List\nitems: x\n", []string{`f.yaml:3: items: "x" is not a list`}},
		"another list":       {"apiVersion: example.com/v1\nkind: AllowList\nspec: {}\n", []string{"f.yaml:1: example.com/v1 AllowList: items is missing"}},
		"another kind":       {"apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", []string{"f.yaml:1: v1 Node is not a policy"}},
		"a cluster's number": {"apiVersion: fenced.io/v1alpha1\nkind: FencePolicy\nmetadata: {name: x}\nspec: {clusters: [lab, 12]}\n", []string{"f.yaml:4: spec.clusters"}},
		"FencePolicy to be":  {"\napiVersion: fenced.io/v1\nkind: FencePolicy\nmetadata: {name: x}\n", []string{"f.yaml:2: fenced.io/v1 FencePolicy is not supported by this version"}},
		"NodeHealthCheck":    {"apiVersion: remediation.medik8s.io/v1beta1\nkind: NodeHealthCheck\nmetadata: {name: x}\n", []string{"NodeHealthCheck is not supported by this version"}},
		"Cluster API":        {"apiVersion: cluster.x-k8s.io/v1alpha4\nkind: MachineHealthCheck\nmetadata: {name: x}\n", []string{"f.yaml:1: cluster.x-k8s.io/v1alpha4 MachineHealthCheck is not supported by this version"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := manifest.DecodePolicies("f.yaml", []byte(c.text))
			require.Error(t, err)
			for _, k := range found.Checks { // what is good stays
				assert.Empty(t, k.Invalid)
				assert.Contains(t, []string{"twice", "second is no YAML"}, name)
			}
			assert.Empty(t, found.Budgets)
			assert.True(t, found.AnyCluster, "none of them says for which cluster it is")
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

const schemaFile = "../../configs/fenced-policy.schema.json"

func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return must.Do(jsonschema.NewCompiler().Compile(schemaFile))(t)
}

// ownDocuments are the documents of fenced's own kinds in one input; what is no
// YAML ends it.
func ownDocuments(t *testing.T, data []byte) (list []string) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var fields map[string]any
		if err := d.Decode(&fields); err != nil {
			return list
		}
		kind := fields["kind"]
		if fields["apiVersion"] == policy.FencedAPI && (kind == policy.FencePolicyKind || kind == policy.DisruptionBudgetKind) {
			text := must.Do(json.Marshal(fields))(t)
			list = append(list, string(text))
		}
	}
}

// validate says what the schema has against a document.
func validate(t *testing.T, s *jsonschema.Schema, document string) error {
	t.Helper()
	value := must.Do(jsonschema.UnmarshalJSON(bytes.NewReader([]byte(document))))(t)
	return s.Validate(value)
}

// TestShippedPoliciesAreGood: every example decodes, and passes the schema.
func TestShippedPoliciesAreGood(t *testing.T) {
	s := published(t)
	files := must.Do(filepath.Glob("../../configs/policies.d/*.yaml"))(t)
	kinds := map[string]int{}
	for _, file := range files {
		data := must.Do(os.ReadFile(file))(t)
		found := must.Do(manifest.DecodePolicies(file, data))(t)
		for _, c := range found.Checks {
			kinds[c.Kind]++
		}
		for _, document := range ownDocuments(t, data) {
			kinds["validated"]++
			assert.NoError(t, validate(t, s, document), file)
		}
	}
	assert.Equal(t, map[string]int{policy.MachineHealthCheckKind: 1, policy.FencePolicyKind: 1, "validated": 2}, kinds)
}

// TestManPageNamesEveryKey of the schema.
func TestManPageNamesEveryKey(t *testing.T) {
	page := must.Do(os.ReadFile("../../docs/man/fenced-policy.5"))(t)
	data := must.Do(os.ReadFile(schemaFile))(t)
	var schema any
	require.NoError(t, json.Unmarshal(data, &schema))
	keys := 0
	var walk func(any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for key := range properties {
			keys++
			if key != "kind" && key != "spec" && key != "fenced.io/cluster" { // which are not keys in a list of the page
				assert.Regexp(t, `(?m)^\.(It|Pq)? ?Ic .*\b`+key+`\b`, string(page))
			}
		}
		for _, below := range m {
			walk(below)
			if list, ok := below.([]any); ok {
				for _, item := range list {
					walk(item)
				}
			}
		}
	}
	walk(schema)
	assert.Greater(t, keys, 30)
}

// beyondSchema are the cases of the corpus that only the daemon refuses: no
// schema can compute.
var beyondSchema = map[string]bool{
	"policy-condition-twice":      true, // which differ in their timeout only
	"policy-limit-range-reversed": true,
	"policy-request-own-first":    true,
	"window-bad-zone":             true,
	"window-never":                true,
	"window-too-long":             true,
}

// TestSchemaAgreesWithDecoder on every document of ours in the corpus: what the
// daemon takes the schema takes, and the other way round.
func TestSchemaAgreesWithDecoder(t *testing.T) {
	s := published(t)
	files := must.Do(filepath.Glob("../policy/testdata/*.txtar"))(t)
	good, bad, beyond := 0, 0, 0
	for _, file := range files {
		archive := must.Do(txtar.ParseFile(file))(t)
		name := filepath.Base(file[:len(file)-len(".txtar")])
		for _, document := range ownDocuments(t, archive.Files[1].Data) {
			_, err := manifest.DecodePolicies(name, []byte(document))
			invalid := validate(t, s, document)
			switch {
			case err == nil:
				good++
				assert.NoError(t, invalid, "%s: the daemon takes it: %s", name, document)
			case beyondSchema[name]:
				beyond++
				assert.NoError(t, invalid, "%s: the schema can say that after all", name)
			default:
				bad++
				assert.Error(t, invalid, "%s: the daemon does not take it: %s", name, err)
			}
		}
	}
	assert.Greater(t, good, 70)
	assert.Greater(t, bad, 30)
	assert.Equal(t, len(beyondSchema), beyond)
}
