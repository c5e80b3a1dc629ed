package manifest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

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
