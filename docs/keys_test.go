package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/test/must"
)

// keys are those of a file, by their path without indices: clusters.management.kubeconfig.
type keys []string

// keysOf reads them from a file that has them all: other tests hold these files to the code.
func keysOf(t *testing.T, file string) keys {
	t.Helper()
	data := must.Do(os.ReadFile(file))(t)
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &n))
	return unique(paths("", &n))
}

// paths are the keys below a node. Those of a fence agent's parameters are its own.
func paths(above string, n *yaml.Node) (all []string) {
	if n.Kind != yaml.MappingNode {
		for _, below := range n.Content {
			all = append(all, paths(above, below)...)
		}
		return all
	}
	for i := 0; i < len(n.Content); i += 2 {
		path := strings.TrimPrefix(above+"."+n.Content[i].Value, ".")
		all = append(all, path)
		if !strings.HasSuffix(strings.ToLower(path), "parameters") {
			all = append(all, paths(path, n.Content[i+1])...)
		}
	}
	return all
}

// policyKeys are the keys of fenced's own kinds: of policies.d, and of its CRDs.
func policyKeys(t *testing.T) (all keys) {
	t.Helper()
	data := must.Do(os.ReadFile("../configs/fenced-policy.schema.json"))(t)
	var schema, requests any
	require.NoError(t, json.Unmarshal(data, &schema))
	data = must.Do(os.ReadFile("../configs/crds/fenced.io_fencedremediations.yaml"))(t)
	require.NoError(t, yaml.Unmarshal(data, &requests))
	var below func(any)
	below = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			if properties, ok := x["properties"].(map[string]any); ok {
				for key := range properties {
					all = append(all, key)
				}
			}
			for _, v := range x {
				below(v)
			}
		case []any:
			for _, v := range x {
				below(v)
			}
		}
	}
	below(schema)
	below(requests)
	return unique(all)
}

// has says whether a path is one of the keys, or the end of one.
func (k keys) has(path string) bool {
	return slices.ContainsFunc(k, func(key string) bool { return key == path || strings.HasSuffix(key, "."+path) })
}

// names are the last parts of the keys at or below a path.
func (k keys) names(path string) (all []string) {
	for _, key := range k {
		if key == path || strings.HasPrefix(key, path+".") {
			all = append(all, key[strings.LastIndex(key, ".")+1:])
		}
	}
	return unique(all)
}

func (k keys) top() (all []string) {
	for _, key := range k {
		name, _, _ := strings.Cut(key, ".")
		all = append(all, name)
	}
	return unique(all)
}

// othersKeys are in documents for operators and no keys of fenced: fields of Kubernetes
// objects, values, and one gate.
var othersKeys = []string{
	"backOff", "bootMACAddress", "consumerRef", "controlPlaneReady", "disableCertificateVerification", "disablePowerOff", "healthyDelay", "infrastructureReady", "infrastructureRef", "lastTransitionTime",
	"escalatingRemediations", "nodeStartupTimeoutSeconds", "triggerIf", "unhealthyNodeConditions",
	"leaseDurationSeconds", "nodeLeaseDurationSeconds", "maxUnhealthy", "minHealthy", "nodeRef", "online", "pauseRequests", "providerID", "remediationsAllowed", "renewTime", "stormCooldownDuration",
	"deleteNode", "outOfServiceTaint", "failurePolicy", "lanplus", "failureReason", "failureMessage", "observedNodes", "healthyNodes", "unhealthyNodes",
	"fenceState", "runStrategy", "reportingController", "reportingComponent", "reportingInstance", "resources", "components", "users", "contexts",
}

// fileName tells a name like audit.jsonl from a key.
var fileName = regexp.MustCompile(`\.(d|db|log|txt|jsonl|ndjson|ya?ml|service|io|go|md|json)\b`)

// TestNamedKeysExist: each key of a configuration file that a document names is one.
func TestNamedKeysExist(t *testing.T) {
	config, hosts := keysOf(t, "../configs/fenced.yaml"), keysOf(t, "../configs/hosts.d/example.yaml")
	all := slices.Concat(config, hosts, policyKeys(t), keysOf(t, "../configs/chart/values.yaml"))
	dotted := regexp.MustCompile(`^\w+(?:\[\])?(?:\.[a-z]\w*(?:\[\])?)+\b`)
	camel := regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z]+(?:$|:)`)
	pair := regexp.MustCompile(`^[a-z]\w*: [^ ]`)
	found := 0
	for file, text := range documents(t) {
		if strings.HasPrefix(file, "adr/") || file == "testing.md" || file == "architecture.md" || file == "../CONTRIBUTING.md" {
			continue // which name what is in the code, and what was
		}
		for _, snippet := range snippets(text) {
			key := dotted.FindString(snippet)
			switch {
			case fileName.MatchString(snippet):
				continue
			case key != "":
				key = strings.ReplaceAll(key, "[]", "")
				if first, _, _ := strings.Cut(key, "."); !slices.Contains(config.top(), first) && first != "tls" {
					continue
				}
				found++
				assert.True(t, config.has(key) || hosts.has(key), "%s names %s, which is no key", file, key)
			case camel.MatchString(snippet) || pair.MatchString(snippet):
				key = regexp.MustCompile(`^\w+`).FindString(snippet)
				found++
				assert.True(t, keys(all).has(key) || slices.Contains(othersKeys, key), "%s names %s, which is no key", file, key)
			}
		}
	}
	require.Greater(t, found, 100, "the keys were not found")
}

// TestExamplesHaveOnlyKeysThatExist: what stands in a document as a piece of fenced.yaml,
// or of hosts.d, indented or between backticks.
func TestExamplesHaveOnlyKeysThatExist(t *testing.T) {
	config := slices.Concat(keysOf(t, "../configs/fenced.yaml"), keysOf(t, "../configs/hosts.d/example.yaml"))
	indented, found := regexp.MustCompile(`(?m)^    (\w+):\n(?:^     .*\n)+`), 0
	for file, text := range documents(t) {
		blocks := indented.FindAllString(text, -1)
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[2])
		}
		for _, block := range blocks {
			top := regexp.MustCompile(`(?m)^ *(\w+):`).FindStringSubmatch(block)
			if top == nil || !slices.Contains(config.top(), top[1]) {
				continue
			}
			var n yaml.Node
			require.NoError(t, yaml.Unmarshal([]byte(block), &n), file)
			for _, path := range paths("", &n) {
				found++
				assert.True(t, slices.Contains(config, path), "%s has an example with %s, which is no key", file, path)
			}
		}
	}
	require.Greater(t, found, 6, "the examples were not found")
}

// yamlBlock is an example between backticks, which may be indented as a part of a list.
var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")

// TestCommentsNameKeysThatExist: what the comments of the examples and the descriptions of the
// CRDs say a key of fenced.yaml is, is one.
func TestCommentsNameKeysThatExist(t *testing.T) {
	config, texts := keysOf(t, "../configs/fenced.yaml"), map[string]string{}
	for file, text := range documents(t) {
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			texts[file] += m[2]
		}
	}
	files := must.Do(filepath.Glob("../configs/crds/fenced.io_*.yaml"))(t)
	require.Len(t, files, 2)
	for _, file := range append(files, "../configs/policies.d/fencepolicy.yaml", "../configs/policies.d/example.yaml", "../configs/hosts.d/example.yaml") {
		data := must.Do(os.ReadFile(file))(t)
		texts[file] = string(data)
	}
	named, found := regexp.MustCompile(`\b(`+strings.Join(config.top(), "|")+`)\.[a-z]\w+`), 0
	for file, text := range texts {
		for _, key := range named.FindAllString(text, -1) {
			if fileName.MatchString(key) {
				continue
			}
			found++
			assert.True(t, config.has(key), "%s names %s, which is no key", file, key)
		}
	}
	require.Greater(t, found, 4, "the keys were not found")
}

// TestManPagesHaveEveryKey of fenced.yaml, each in the entry of its first part, and none else.
func TestManPagesHaveEveryKey(t *testing.T) {
	config := keysOf(t, "../configs/fenced.yaml")
	require.Greater(t, len(config), 60, "the keys were not found")
	told := map[string]bool{}
	for item, lines := range entries(manPage(t, "fenced.yaml.5")) {
		tops := arguments("Ic", item)
		got := slices.Clone(tops)
		var want []string
		for _, line := range lines {
			got = append(got, arguments("Ic", line)...)
		}
		for _, top := range tops {
			told[top] = true
			assert.Contains(t, config.top(), top, "fenced.yaml.5 has an entry for what is no key")
			want = append(want, config.names(top)...)
		}
		assert.ElementsMatch(t, unique(want), unique(got), "fenced.yaml.5, entry %s", item)
	}
	for _, top := range config.top() {
		assert.True(t, told[top], "fenced.yaml.5 has no entry %s", top)
	}
	policy := policyKeys(t) // that each of them is in the page is a test of internal/manifest
	for line := range strings.Lines(manPage(t, "fenced-policy.5")) {
		for _, key := range arguments("Ic", line) {
			assert.Contains(t, append(policy, "spec.clusters"), key, "fenced-policy.5 names what is no key")
		}
	}
}
