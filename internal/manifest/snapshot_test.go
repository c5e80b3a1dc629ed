package manifest_test

import (
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

func snapshot(t *testing.T, text string) policy.Snapshot {
	t.Helper()
	var o manifest.Objects
	require.NoError(t, o.Add("in.yaml", []byte(text)))
	return o.Snapshot()
}

func nodeNames(s policy.Snapshot) (names []string) {
	for name := range s.Nodes {
		names = append(names, name)
	}
	return names
}

func TestDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		nodes []string
	}{
		"one":                  {"{apiVersion: v1, kind: Node, metadata: {name: a}}", []string{"a"}},
		"several":              {"---\n{apiVersion: v1, kind: Node, metadata: {name: a}}\n--- # next\n{apiVersion: v1, kind: Node, metadata: {name: b}}\n---\n", []string{"a", "b"}},
		"carriage returns":     {"apiVersion: v1\r\nkind: Node\r\nmetadata: {name: a}\r\n---\r\napiVersion: v1\r\nkind: Node\r\nmetadata: {name: b}\r\n", []string{"a", "b"}},
		"ended by dots":        {"{apiVersion: v1, kind: Node, metadata: {name: a}}\n...\n---\n{apiVersion: v1, kind: Node, metadata: {name: b}}", []string{"a", "b"}},
		"marker in a text":     {"apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      no document\n", []string{"a"}},
		"JSON":                 {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`, []string{"a"}},
		"JSON, several":        {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}` + "\n" + `{"apiVersion":"v1","kind":"Node","metadata":{"name":"b"}}`, []string{"a", "b"}},
		"list":                 {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: a}}]}", []string{"a"}},
		"list in a list":       {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}}]}]}", []string{"a"}},
		"typed list":           {"{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}}]}", []string{"a"}},
		"list without items":   {"{apiVersion: v1, kind: List, items: null}", nil},
		"anchors":              {"apiVersion: v1\nkind: List\nitems:\n- &n {apiVersion: v1, kind: Node, metadata: {name: a}}\n- *n\n", []string{"a"}},
		"comment before":       {"# saved\n---\n{apiVersion: v1, kind: Node, metadata: {name: a}}", []string{"a"}},
		"number as a name key": {"{apiVersion: v1, kind: Node, metadata: {name: a, labels: {1: one}}}", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, c.text)
			assert.ElementsMatch(t, c.nodes, nodeNames(s))
			assert.Empty(t, s.Errors)
			assert.Empty(t, s.Undecoded)
		})
	}
}

// TestLost: what cannot be read is remembered, and the rest is read.
func TestLost(t *testing.T) {
	const good = "\n---\n{apiVersion: v1, kind: Node, metadata: {name: good}}\n"
	anything := policy.ObjectKey{}
	for name, c := range map[string]struct {
		text, object, message string
		key                   policy.ObjectKey
	}{
		"broken":             {"a: b: c", "in.yaml", "line 1: mapping values are not allowed", anything},
		"behind the end":     {"{apiVersion: v1, kind: ConfigMap}\n...\nx: y", "in.yaml", "line 2: did not find expected <document start>", anything},
		"a word":             {"node", "in.yaml:1", `"node" is not a Kubernetes object`, anything},
		"a list":             {"[a]", "in.yaml:1", "a list is not a Kubernetes object", anything},
		"no kind":            {"{apiVersion: v1}", "in.yaml:1", "apiVersion or kind is missing", anything},
		"kind is no text":    {"{apiVersion: v1, kind: 7}", "in.yaml:1", "apiVersion or kind is missing", anything},
		"key twice":          {"kind: Node\nkind: Node", "in.yaml", "line 2: key kind occurs twice", anything},
		"key is a list":      {"{[a]: b}", "in.yaml", "a key must be one word", anything},
		"items are no list":  {"{apiVersion: v1, kind: List, items: x}", "in.yaml:1", `items: "x" is not a list`, anything},
		"item is no object":  {"{apiVersion: v1, kind: List, items: [x]}", "in.yaml:1 items[0]", `"x" is not a Kubernetes object`, anything},
		"no name":            {"{apiVersion: v1, kind: Node}", "Node (no name)", "in.yaml:1: metadata.name is missing", policy.ObjectKey{Kind: "Node"}},
		"other version":      {"{apiVersion: machine.openshift.io/v1, kind: Machine, metadata: {namespace: a, name: m}}", "Machine a/m", "this version does not read machine.openshift.io/v1", policy.ObjectKey{Kind: "Machine", Namespace: "a", Name: "m", Group: "machine.openshift.io"}},
		"nodeRef is empty":   {"{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {namespace: a, name: m}, status: {nodeRef: {}}}", "Machine a/m", "status.nodeRef.name: is missing", policy.ObjectKey{Kind: "Machine", Namespace: "a", Name: "m", Group: "machine.openshift.io"}},
		"label is a boolean": {"{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: true}}}", "Node n", "metadata.labels: the value of a, true, is not a text", policy.ObjectKey{Kind: "Node", Name: "n"}},
		"host flag is text":  {`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {namespace: a, name: h}, spec: {online: "yes"}}`, "BareMetalHost a/h", `spec.online: "yes" is not true or false`, policy.ObjectKey{Kind: "BareMetalHost", Namespace: "a", Name: "h"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, c.text+good)
			require.Len(t, s.Errors, 1)
			assert.Equal(t, c.object, s.Errors[0].Object)
			assert.Contains(t, s.Errors[0].Message, c.message)
			assert.Equal(t, []policy.ObjectKey{c.key}, s.Undecoded)
			assert.Equal(t, []string{"good"}, nodeNames(s))
		})
	}
}

func TestUnreadable(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "comments": "# a\n---\n# b\n", "broken": "{", "only markers": "---\n---\n"} {
		t.Run(name, func(t *testing.T) {
			err := new(manifest.Objects).Add("in.yaml", []byte(text))
			require.ErrorIs(t, err, manifest.ErrUnreadable)
			assert.ErrorContains(t, err, "decode in.yaml: ")
		})
	}
	var o manifest.Objects
	assert.ErrorIs(t, o.Read("stream", iotest.ErrReader(iotest.ErrTimeout)), iotest.ErrTimeout)
}

// TestBombs: an input must not cost more than its size suggests.
func TestBombs(t *testing.T) {
	begun := time.Now()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	err := new(manifest.Objects).Add("in.yaml", []byte(deep))
	require.ErrorContains(t, err, "nested too deeply")

	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		a, b := string(rune('0'+i)), string(rune('1'+i))
		laughs += "a" + b + ": &a" + b + " [" + strings.Repeat("*a"+a+", ", 9) + "*a" + a + "]\n"
	}
	err = new(manifest.Objects).Add("in.yaml", []byte(laughs))
	require.ErrorContains(t, err, "too many values")
	assert.Less(t, time.Since(begun), time.Minute)
}

// TestJSON: the fast way for JSON gives what YAML gives.
func TestJSON(t *testing.T) {
	for _, limit := range []string{`2`, `-1`, `"40%"`, `1.5`, `5000000000`, `1e400`, `true`, `null`, `[1]`, `{"a": 1}`} {
		text := `{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
			"metadata": {"namespace": "ns", "name": "c"}, "spec": {"maxUnhealthy": ` + limit + `}}`
		asJSON, asYAML := snapshot(t, text), snapshot(t, "# so that it is no JSON\n"+strings.ReplaceAll(text, "\n\t\t\t", " "))
		require.Len(t, asJSON.Checks, 1)
		asJSON.Checks[0].Source, asYAML.Checks[0].Source = "", ""
		assert.Equal(t, asJSON, asYAML, limit)
	}
}
