package manifest

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/policy"
)

// DecodePolicies decodes one file of policies.d. An unknown key, a bad value or a
// kind that this version does not judge is an error that names file, line and
// field; all errors of the file are reported at once.
func DecodePolicies(file string, data []byte) ([]policy.Check, error) {
	f := policyFile{name: file, first: map[string]int{}}
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
		return nil, err
	}
	return f.checks, nil
}

// policyFile gathers what one file holds.
type policyFile struct {
	name   string
	first  map[string]int // line of each check, by its key
	checks []policy.Check
	errs   []error
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
		f.fail(n.Line+before, "%s is not a policy", show(value))
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
		f.check(n, before, fields)
	case unjudged:
		f.fail(n.Line+before, "%s %s is not supported by this version", i.apiVersion, i.kind)
	default:
		f.fail(n.Line+before, "%s %s is not a policy", orMissing(i.apiVersion), orMissing(i.kind))
	}
}

func (f *policyFile) check(n *yaml.Node, before int, fields map[string]any) {
	good := len(f.errs)
	checkSchema.unknownKeys(n, "", func(line int, path, text string) {
		f.fail(line+before, "%s: %s", path, text)
	})
	c := MachineHealthCheck(fields)
	if state, message := c.State(); state == policy.StateInvalid || state == policy.StateDisabled {
		for _, text := range strings.Split(message, "; ") {
			path, _, _ := strings.Cut(text, ": ")
			f.fail(lineOf(n, path)+before, "%s", text)
		}
	}
	line := n.Line + before
	if first, ok := f.first[c.Key()]; ok {
		f.fail(line, "%s %s is on line %d already", c.Kind, c.Key(), first)
	}
	f.first[c.Key()] = line
	if len(f.errs) == good {
		c.Source = fmt.Sprintf("%s:%d", f.name, line)
		f.checks = append(f.checks, c)
	}
}

func orMissing(s string) string {
	if s == "" {
		return "(missing)"
	}
	return s
}
