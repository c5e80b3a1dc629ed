package manifest

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/policy"
)

// Policies is what a file of policies.d holds.
type Policies struct {
	Checks  []policy.Check
	Budgets []policy.DisruptionBudget
}

// DecodePolicies decodes one file of policies.d. An unknown key, a bad value or a
// kind that this version does not judge is an error that names file, line and
// field; all errors of the file are reported at once.
func DecodePolicies(file string, data []byte) (Policies, error) {
	f := policyFile{name: file, first: map[id]int{}}
	for _, p := range split(data) {
		nodes, err := yamlNodes(p)
		for _, n := range nodes {
			f.document(n, p.line-1)
		}
		if err != nil {
			f.failed(err)
		}
	}
	if err := errors.Join(f.errs...); err != nil {
		return Policies{}, err
	}
	return f.found, nil
}

// policyFile gathers what one file holds.
type policyFile struct {
	name  string
	first map[id]int // line of each document
	found Policies
	errs  []error
}

func (f *policyFile) fail(line int, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s:%d: %s", f.name, line, fmt.Sprintf(format, args...)))
}

// failed keeps an error of the parser, which gives no other kind.
func (f *policyFile) failed(err error) {
	e, _ := errors.AsType[*lineError](err)
	f.fail(e.line, "%s", e.text)
}

// document reads one object, or each of a list; before is the number of lines
// that stand before its part of the file.
func (f *policyFile) document(n *yaml.Node, before int) {
	w := &walker{left: maxAliased, line: before}
	value, err := w.value(n, 0)
	if err != nil {
		f.failed(err)
		return
	}
	fields, ok := value.(map[string]any)
	if !ok {
		f.fail(n.Line+before, "%s is not a policy", describeValue(value))
		return
	}
	i := idOf(fields)
	if strings.HasSuffix(i.kind, "List") {
		if _, items := descend(target(n), "items"); items != nil {
			for _, item := range target(items).Content {
				f.document(item, before)
			}
		}
		return
	}
	switch classify(i) {
	case check:
		f.check(n, before, i, fields)
	case budget:
		f.budget(n, before, i, fields)
	case unsupportedCheck:
		f.fail(n.Line+before, "%s %s is not supported by this version", i.apiVersion, i.kind)
	default:
		f.fail(n.Line+before, "%s %s is not a policy", orMissing(i.apiVersion), orMissing(i.kind))
	}
}

func (f *policyFile) check(n *yaml.Node, before int, i id, fields map[string]any) {
	good := len(f.errs)
	if known := schemas[[2]string{i.apiVersion, i.kind}]; known != nil { // our own kinds look for themselves
		known.unknownKeys(n, "", func(line int, path, text string) {
			f.fail(line+before, "%s: %s", path, text)
		})
	}
	c := checkDecoder(i)(fields)
	if state, message := c.State(); state == policy.StateInvalid || state == policy.StateDisabled {
		f.refuse(n, before, message)
	}
	f.once(n, before, i)
	if len(f.errs) == good {
		c.Source = f.source(n, before)
		c.Storm, c.Attempts = policy.Storm{}, nil // what a saved status remembers was another time
		f.found.Checks = append(f.found.Checks, c)
	}
}

func (f *policyFile) budget(n *yaml.Node, before int, i id, fields map[string]any) {
	good := len(f.errs)
	b := DisruptionBudget(fields)
	if b.Invalid != "" {
		f.refuse(n, before, b.Invalid)
	}
	f.once(n, before, i)
	if len(f.errs) == good {
		b.Source = f.source(n, before)
		f.found.Budgets = append(f.found.Budgets, b)
	}
}

// refuse reports each thing that is wrong with a document on its own line.
func (f *policyFile) refuse(n *yaml.Node, before int, message string) {
	for _, text := range strings.Split(message, "; ") {
		path, _, _ := strings.Cut(text, ": ")
		f.fail(lineOf(n, path)+before, "%s", text)
	}
}

// once reports a document that the file has twice.
func (f *policyFile) once(n *yaml.Node, before int, i id) {
	if first, ok := f.first[i]; ok {
		f.fail(n.Line+before, "%s is on line %d already", i, first)
		return
	}
	f.first[i] = n.Line + before
}

func (f *policyFile) source(n *yaml.Node, before int) string {
	return fmt.Sprintf("%s:%d", f.name, n.Line+before)
}

func orMissing(s string) string {
	if s == "" {
		return "(missing)"
	}
	return s
}
