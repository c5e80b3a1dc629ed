package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/test/must"
)

var update = flag.Bool("update", false, "write what is made from the manifests of configs/")

const configs = "../../configs"

// leaderGroups are the API groups without which nobody holds a leader Lease that a rule names.
var leaderGroups = map[string]string{
	"controller-leader-election-capi":  "cluster.x-k8s.io",
	"controller-leader-election-capm3": "cluster.x-k8s.io",
	"e1f13584.medik8s.io":              "remediation.medik8s.io",
}

// made are the templates of the chart that are made from manifests, by file: the manifest, and the condition under which the
// template is rendered.
var made = map[string]struct{ from, when string }{
	"rights-observe.yaml":  {"kubernetes/observe.yaml", `eq .Values.mode "observe"`},
	"rights-evaluate.yaml": {"rbac.yaml", `eq .Values.mode "evaluate"`},
	"rights-respond.yaml":  {"kubernetes/respond.yaml", `eq .Values.mode "respond"`},
	"rights-medik8s.yaml":  {"rbac-medik8s.yaml", `and .Values.medik8s (has .Values.mode (list "evaluate" "respond")) (ne .Values.part "management")`},
	"release-pods.yaml":    {"kubernetes/release-pods.yaml", `and .Values.releasePods (has .Values.mode (list "evaluate" "respond")) (ne .Values.part "management")`},
	"make-requests.yaml":   {"kubernetes/templates.yaml", `and .Values.makeRequests (has .Values.mode (list "evaluate" "respond"))`},
	"requesters.yaml":      {"crds/rbac.yaml", `and .Values.requests (ne .Values.mode "none")`},
	"protect-nodes.yaml":   {"kubernetes/protect-nodes.yaml", `.Values.protectNodes.enabled`},
}

// copied are the files of the chart that are those of configs/.
var copied = map[string]string{
	"crds/fenced.io_fencedremediations.yaml":         "crds/fenced.io_fencedremediations.yaml",
	"crds/fenced.io_fencedremediationtemplates.yaml": "crds/fenced.io_fencedremediationtemplates.yaml",
	"files/fenced.rules.yaml":                        "prometheus/fenced.rules.yaml",
}

// The chart repeats no manifest by hand.
func TestTemplatesAreMadeFromTheManifests(t *testing.T) { templatesAreMade(t) }

func templatesAreMade(t *testing.T) {
	t.Helper()
	for file, c := range made {
		text := fmt.Sprintf("{{- /* Made from configs/%s by go test ./test/chart -update. */ -}}\n{{- if %s }}\n{{- $groups := include \"fenced.groups\" . | fromJsonArray }}\n", c.from, c.when)
		for _, doc := range documents(t, read(t, c.from)) {
			text += template(t, doc)
		}
		golden(t, filepath.Join("chart/templates", file), text+"{{- end }}\n")
	}
	for file, from := range copied {
		golden(t, filepath.Join("chart", file), read(t, from))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data := must.Do(os.ReadFile(filepath.Join(configs, name)))(t)
	return string(data)
}

// golden compares a file below configs/ with what it is made from, or writes it.
func golden(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(configs, name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got := must.Do(os.ReadFile(path))(t)
	assert.Equal(t, want, string(got), "%s: run go test ./test/chart -update", name)
}

func documents(t *testing.T, text string) (docs []*yaml.Node) {
	t.Helper()
	for in := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc yaml.Node
		err := in.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		require.NoError(t, err)
		docs = append(docs, doc.Content[0])
	}
}

// template is one document of a manifest as a template: each rule only for what the cluster serves, bound to the ServiceAccount.
func template(t *testing.T, doc *yaml.Node) string {
	t.Helper()
	text := "---\n"
	for i := 0; i < len(doc.Content); i += 2 {
		key, value := doc.Content[i], doc.Content[i+1]
		key.HeadComment = "" // the first says what its file is for
		switch key.Value {
		case "rules":
			text += rules(t, value)
		case "subjects":
			text += "subjects:\n- {{ include \"fenced.subject\" . }}\n"
		default:
			text += encode(t, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}})
		}
	}
	text = strings.ReplaceAll(text, "'system:serviceaccount:fenced:fenced'", "'system:serviceaccount:{{ .Release.Namespace }}:fenced'")
	if when := condition(name(doc)); when != "" {
		return "{{- if " + when + " }}\n" + text + "{{- end }}\n"
	}
	return text
}

// condition is the part of the cluster, or the wish, for which an object is; empty: always.
func condition(name string) string {
	switch {
	case name == "fenced-secrets":
		return `and (ne .Values.part "workload") (or (has "metal3.io" $groups) .Values.hostNamespaces)`
	case strings.HasPrefix(name, "fenced-management"):
		return `and (ne .Values.part "workload") (or (eq .Values.part "management") (has "metal3.io" $groups) (has "cluster.x-k8s.io" $groups))`
	case name == "fenced-deletes-no-control-plane-node":
		return `.Values.protectNodes.controlPlane`
	case name == "fenced", name == "fenced-observe":
		return `ne .Values.part "management"`
	}
	return ""
}

func rules(t *testing.T, list *yaml.Node) string {
	t.Helper()
	if len(list.Content) == 0 { // a controller of Kubernetes aggregates them, and Helm may not write what that owns
		return ""
	}
	text := "rules:\n"
	for _, rule := range list.Content {
		group := value(rule, "apiGroups").Content[0].Value
		require.Len(t, value(rule, "apiGroups").Content, 1)
		var when []string
		if group != "" {
			when = append(when, fmt.Sprintf("(has %q $groups)", group))
		}
		if strings.Contains(encode(t, value(rule, "resources")), "metal3remediations/status") {
			when = append(when, "(.Values.metal3Remediations)")
		}
		body := encode(t, &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{rule}})
		if names := value(rule, "resourceNames"); names != nil && leaderGroups[names.Content[0].Value] != "" {
			var any []string
			for _, n := range names.Content {
				any = append(any, fmt.Sprintf("(has %q $groups)", leaderGroups[n.Value]))
			}
			when = append(when, "(or "+strings.Join(any, " ")+")")
			line := encode(t, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "resourceNames"}, names}})
			require.Contains(t, body, "  "+line)
			body = strings.Replace(body, "  "+line, leaders(names), 1)
		}
		if builtIn[group] && len(when) > 0 {
			when = when[1:]
		}
		switch len(when) {
		case 0:
		case 1:
			body = "{{- if " + strings.TrimSuffix(strings.TrimPrefix(when[0], "("), ")") + " }}\n" + body + "{{- end }}\n"
		default:
			body = "{{- if and " + strings.Join(when, " ") + " }}\n" + body + "{{- end }}\n"
		}
		text += body
	}
	return text
}

// builtIn are the API groups that every Kubernetes serves.
var builtIn = map[string]bool{"": true, "coordination.k8s.io": true, "authorization.k8s.io": true, "storage.k8s.io": true}

// leaders are the names of the leader Leases that somebody may hold.
func leaders(names *yaml.Node) string {
	text := "  resourceNames:\n"
	for _, n := range names.Content {
		text += fmt.Sprintf("  {{- if has %q $groups }}\n  - %s\n  {{- end }}\n", leaderGroups[n.Value], n.Value)
	}
	return text
}

func encode(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	require.NoError(t, enc.Encode(n))
	return b.String()
}

func value(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func name(doc *yaml.Node) string { return value(value(doc, "metadata"), "name").Value }
