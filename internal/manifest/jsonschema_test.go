package manifest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

const schemaFile = "../../configs/fenced-policy.schema.json"

func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	require.NoError(t, err)
	return s
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
			text, err := json.Marshal(fields)
			require.NoError(t, err)
			list = append(list, string(text))
		}
	}
}

// validate says what the schema has against a document.
func validate(t *testing.T, s *jsonschema.Schema, document string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(document)))
	require.NoError(t, err)
	return s.Validate(value)
}

// TestShippedPoliciesAreGood: every example decodes, and passes the schema.
func TestShippedPoliciesAreGood(t *testing.T) {
	s := published(t)
	files, err := filepath.Glob("../../configs/policies.d/*.yaml")
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		found, err := manifest.DecodePolicies(file, data)
		require.NoError(t, err)
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
	page, err := os.ReadFile("../../docs/man/fenced-policy.5")
	require.NoError(t, err)
	data, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
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
	files, err := filepath.Glob("../policy/testdata/*.txtar")
	require.NoError(t, err)
	good, bad, beyond := 0, 0, 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
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
