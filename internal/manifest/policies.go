package manifest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/typo"
)

// Policies is the content of a file in policies.d.
type Policies struct {
	Checks  []policy.Check
	Budgets []policy.DisruptionBudget
	// Clusters are those that its documents name, also the documents with an error. AnyCluster: one of them names none,
	// or cannot be read.
	Clusters   []string
	AnyCluster bool
}

// DecodePolicies decodes one file of policies.d. An unknown key, a bad value or
// an unsupported kind is an error with file, line and field. All errors of the
// file are reported at once; what is good in it is returned with them.
func DecodePolicies(file string, data []byte) (Policies, error) {
	f := policyFile{name: file, first: map[id]int{}}
	for _, p := range split(data) {
		nodes, err := yamlNodes(p)
		for _, n := range nodes {
			f.document(n, p.line-1)
		}
		if err != nil {
			f.parseFailed(err)
		}
	}
	return f.found, errors.Join(f.errs...)
}

// policyFile collects the content of one file.
type policyFile struct {
	name  string
	first map[id]int // line of each object
	found Policies
	errs  []error
}

func (f *policyFile) fail(line int, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s:%d: %s", f.name, line, fmt.Sprintf(format, args...)))
}

// parseFailed records an error of the parser, which is always a *lineError.
func (f *policyFile) parseFailed(err error) {
	f.found.AnyCluster = true
	e, _ := errors.AsType[*lineError](err)
	f.fail(e.line, "%s", e.text)
}

// document decodes one object, or each of a list; before is the number of lines
// before its part of the file.
func (f *policyFile) document(n *yaml.Node, before int) {
	w := &walker{left: maxAliased, line: before}
	value, err := w.value(n, 0)
	if err != nil {
		f.parseFailed(err)
		return
	}
	fields, ok := value.(map[string]any)
	if !ok {
		f.found.AnyCluster = true
		f.fail(n.Line+before, "%s is not a policy", describeValue(value))
		return
	}
	i := idOf(fields)
	if strings.HasSuffix(i.kind, "List") {
		f.list(n, before, i, fields)
		return
	}
	f.noteClusters(fields)
	switch classify(i) {
	case check:
		f.check(n, before, i, fields)
	case budget:
		f.budget(n, before, i, fields)
	case unsupportedCheck:
		f.fail(n.Line+before, "%s %s is not supported by this version%s", i.apiVersion, i.kind, typo.Hint(i.apiVersion+" "+i.kind, policyKinds()))
	default:
		f.fail(n.Line+before, "%s %s is not a policy%s", orMissing(i.apiVersion), orMissing(i.kind), typo.Hint(i.apiVersion+" "+i.kind, policyKinds()))
	}
}

// list decodes each object of a list. A list whose items stand under a misspelt key has none: what they protect would be missing. // I18
func (f *policyFile) list(n *yaml.Node, before int, i id, fields map[string]any) {
	key, items := descend(target(n), "items")
	switch value := fields["items"].(type) {
	case []any:
		for _, item := range target(items).Content {
			f.document(item, before)
		}
	case nil:
		if items == nil {
			f.found.AnyCluster = true
			f.fail(n.Line+before, "%s %s: items is missing", orMissing(i.apiVersion), i.kind)
		}
	default:
		f.found.AnyCluster = true
		f.fail(key.Line+before, "items: %s is not a list", describeValue(value))
	}
}

// noteClusters notes which clusters a document names, whatever else is wrong with it.
func (f *policyFile) noteClusters(fields map[string]any) {
	var named []string
	meta, _ := fields["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	spec, _ := fields["spec"].(map[string]any)
	list, _ := spec["clusters"].([]any)
	unclear := false // a name that is no text, as 12 without quotes
	for _, v := range append(list, annotations[clusterAnnotation]) {
		if name, ok := v.(string); ok && name != "" {
			named = append(named, name)
		} else if v != nil {
			unclear = true
		}
	}
	f.found.Clusters = append(f.found.Clusters, named...)
	f.found.AnyCluster = f.found.AnyCluster || unclear || len(named) == 0
}

func (f *policyFile) check(n *yaml.Node, before int, i id, fields map[string]any) {
	good := len(f.errs)
	if known := checkKinds[[2]string{i.apiVersion, i.kind}].schema; known != nil { // fenced's own kinds check this themselves
		known.unknownKeys(n, "", func(line int, path, text string) {
			f.fail(line+before, "%s: %s", path, text)
		})
	}
	c := decodeCheck(i, fields)
	if state, message := c.State(); state == policy.StateInvalid || state == policy.StateDisabled {
		f.reportErrors(n, before, message)
	}
	f.rejectDuplicate(n, before, i)
	if len(f.errs) == good {
		c.Source = f.source(n, before)
		c.Storm, c.Attempts = policy.Storm{}, nil // a saved status is out of date
		f.found.Checks = append(f.found.Checks, c)
	}
}

func (f *policyFile) budget(n *yaml.Node, before int, i id, fields map[string]any) {
	good := len(f.errs)
	b := DisruptionBudget(fields)
	if b.Invalid != "" {
		f.reportErrors(n, before, b.Invalid)
	}
	f.rejectDuplicate(n, before, i)
	if len(f.errs) == good {
		b.Source = f.source(n, before)
		f.found.Budgets = append(f.found.Budgets, b)
	}
}

// reportErrors reports each error of a document on its own line.
func (f *policyFile) reportErrors(n *yaml.Node, before int, message string) {
	for text := range strings.SplitSeq(message, "; ") {
		path, _, _ := strings.Cut(text, ": ")
		f.fail(lineOf(n, path)+before, "%s", text)
	}
}

// rejectDuplicate reports an object that the file has twice.
func (f *policyFile) rejectDuplicate(n *yaml.Node, before int, i id) {
	if first, ok := f.first[i]; ok {
		f.fail(n.Line+before, "%s is also on line %d", i, first)
		return
	}
	f.first[i] = n.Line + before
}

func (f *policyFile) source(n *yaml.Node, before int) string {
	return fmt.Sprintf("%s:%d", f.name, n.Line+before)
}

// policyKinds are the API versions and kinds that a file of policies.d may have.
func policyKinds() []string {
	all := []string{policy.FencedAPI + " " + policy.DisruptionBudgetKind}
	for k := range checkKinds {
		all = append(all, k[0]+" "+k[1])
	}
	slices.Sort(all)
	return all
}

func orMissing(s string) string {
	if s == "" {
		return "(missing)"
	}
	return s
}

// schema lists the keys that a mapping may have. A nil schema means that the
// value is not checked; a list has the schema of its items.
type schema map[string]schema

// unknownKeys reports each key of n that is not in the schema.
func (s schema) unknownKeys(n *yaml.Node, path string, report func(line int, path, text string)) {
	n = target(n)
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.unknownKeys(item, fmt.Sprintf("%s[%d]", path, i), report)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			at := strings.TrimPrefix(path+"."+name.Value, ".")
			below, ok := s[name.Value]
			if !ok {
				report(name.Line, at, "unknown key"+typo.Hint(name.Value, slices.Sorted(maps.Keys(s))))
				continue
			}
			if below != nil {
				below.unknownKeys(n.Content[i+1], at, report)
			}
		}
	}
}

var pathSegment = regexp.MustCompile(`[^.\[\]]+`)

// lineOf finds the line of a field such as "spec.unhealthyConditions[0].type", or
// of its nearest existing parent.
func lineOf(n *yaml.Node, path string) int {
	n = target(n)
	line := n.Line
	for _, name := range pathSegment.FindAllString(path, -1) {
		key, value := descend(n, name)
		if value == nil {
			break
		}
		line, n = key.Line, target(value)
	}
	return line
}

func descend(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(n.Content) {
			return nil, nil
		}
		return n.Content[i], n.Content[i]
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// target resolves an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
