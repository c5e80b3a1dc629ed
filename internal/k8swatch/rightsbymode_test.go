package k8swatch

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the manifests that are derived from configs/rbac.yaml")

// configs/rbac.yaml is written by hand. The manifest of each mode is derived from it: its rules with the rights that fenced
// uses in that mode, below the heading of the manifest. make golden writes them.
func TestRightsByMode(t *testing.T) {
	rbac := readConfig(t, "rbac.yaml")
	for _, c := range []struct {
		file   string
		uses   []use
		suffix string // of the names of roles
	}{
		{"kubernetes/respond.yaml", []use{sees, acts}, ""},
		{"kubernetes/observe.yaml", []use{sees}, "-observe"},
	} {
		heading, _, found := strings.Cut(readConfig(t, c.file), "\n\n")
		require.True(t, found, "%s has no heading", c.file)
		_, body, _ := strings.Cut(rbac, "\n\n# The workload part")
		writeConfig(t, c.file, heading+"\n\n"+forUses("# The workload part"+body, c.uses, c.suffix))
	}
	writeConfig(t, "kubernetes/evaluate.yaml", rbac)
}

func readConfig(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../configs/" + name)
	require.NoError(t, err)
	return string(data)
}

func writeConfig(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile("../../configs/"+name, []byte(want), 0o644))
	}
	assert.Equal(t, want, readConfig(t, name), "run make golden")
}

// forUses derives the manifest of a mode. A role without a rule goes, and so does its binding.
func forUses(rbac string, uses []use, suffix string) string {
	used := map[string]bool{}
	for _, r := range rights {
		for verb := range strings.FieldsSeq(r.verbs) {
			used[strings.Join([]string{r.role, r.group, r.resource, verb}, " ")] = slices.Contains(uses, r.by)
		}
	}
	var kept []string
	gone := map[string]bool{}
	for doc := range strings.SplitSeq(rbac, "---\n") {
		name := strings.Fields(doc[strings.Index(doc, "\n  name: "):])[1]
		if strings.Contains(doc, "\n  namespace: kube-system") {
			name = "kube-system/" + name
		}
		if before, rules, isRole := strings.Cut(doc, "\nrules:\n"); isRole {
			rules = keepRules(rules, name, used)
			gone[name] = rules == ""
			doc = before + "\nrules:\n" + rules
		}
		if gone[name] {
			continue
		}
		if name != "fenced-secrets" { // a binding in a namespace is for every mode
			doc = strings.ReplaceAll(doc, "  name: "+name+"\n", "  name: "+name+suffix+"\n")
			doc = strings.Replace(doc, "  kind: User\n  name: "+name+suffix, "  kind: User\n  name: fenced", 1)
		}
		kept = append(kept, doc)
	}
	return strings.Join(kept, "---\n")
}

// keepRules keeps of the rules of a role what is used. The comment of a rule stays only with a rule that stays as it is.
func keepRules(rules, role string, used map[string]bool) string {
	var b, comment strings.Builder
	var names string
	var group string
	var resources []string
	for line := range strings.Lines(rules) {
		key, list, _ := strings.Cut(strings.TrimRight(line, "]\n"), ": [")
		switch key {
		case "- apiGroups":
			group, names = strings.Trim(list, `"`), ""
		case "  resources":
			resources = strings.Split(list, ", ")
		case "  resourceNames":
			names = line
		case "  verbs":
			verbs := strings.Split(list, ", ")
			keep := func(resource string) string {
				return strings.Join(slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
					return !used[strings.Join([]string{role, group, resource, verb}, " ")]
				}), ", ")
			}
			for len(resources) > 0 {
				first := keep(resources[0])
				same := slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return keep(r) != first })
				if len(same) == len(resources) && first == list {
					b.WriteString(comment.String())
				}
				if first != "" {
					fmt.Fprintf(&b, "- apiGroups: [%s]\n  resources: [%s]\n%s  verbs: [%s]\n", quoted(group), strings.Join(same, ", "), names, first)
				}
				resources = slices.DeleteFunc(resources, func(r string) bool { return slices.Contains(same, r) })
			}
			comment.Reset()
		default:
			comment.WriteString(line)
		}
	}
	return b.String()
}

func quoted(group string) string {
	if group == "" {
		return `""`
	}
	return group
}
