package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/typo"
)

// Limits of one input: enough for a cluster of thousands of Nodes, and too small
// to exhaust the memory.
const (
	maxInput = 256 << 20
	maxDepth = 100
	// maxAliased limits the values that aliases expand to.
	maxAliased = 1_000_000
)

// document is one top-level value of an input and the line on which it starts.
type document struct {
	value any
	line  int
}

// documents splits and parses an input. A document that does not parse is an
// error of its own; the others are still read.
func documents(data []byte) (docs []document, errs []error) {
	for _, part := range split(data) {
		found, err := parseJSON(part)
		if err != nil {
			found, err = parseYAML(part)
		}
		docs = append(docs, found...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return docs, errs
}

// part is the text between two document markers.
type part struct {
	text []byte
	line int // line of its first byte, counted from 1
}

// split cuts at the lines that start with "---". The YAML decoder would stop at
// the first broken document and lose the rest.
func split(data []byte) []part {
	var parts []part
	current := part{line: 1}
	start := 0
	for at, line := 0, 1; at < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if marker(data[at:end]) && at > start {
			current.text = data[start:at]
			parts = append(parts, current)
			current, start = part{line: line}, at
		}
		at = end
	}
	current.text = data[start:]
	return append(parts, current)
}

func marker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// parseJSON is the fast path for a part that is only JSON.
func parseJSON(p part) ([]document, error) {
	if text := bytes.TrimLeft(p.text, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil, errors.New("not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(p.text))
	d.UseNumber()
	var docs []document
	for {
		var v map[string]any
		line := p.line + bytes.Count(p.text[:d.InputOffset()], []byte("\n"))
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		}
		docs = append(docs, document{value: numbers(v), line: line})
	}
}

// numbers converts JSON numbers to int64, or to float64 if they are not whole.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = numbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = numbers(value)
		}
	case json.Number:
		return number(v.String())
	}
	return v
}

// number returns an int64 if it fits, else a float64, else the text.
func number(s string) any {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return s
}

// parseYAML parses one part.
func parseYAML(p part) ([]document, error) {
	nodes, err := yamlNodes(p)
	var docs []document
	for _, n := range nodes {
		w := &walker{left: maxAliased + len(p.text), line: p.line - 1}
		v, walkErr := w.value(n, 0)
		if walkErr != nil {
			return docs, walkErr
		}
		docs = append(docs, document{value: v, line: n.Line + p.line - 1})
	}
	return docs, err
}

// yamlNodes parses the document of a part, unless it is empty, and reports
// content after its end.
func yamlNodes(p part) ([]*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(p.text))
	var nodes []*yaml.Node
	for {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nodes, nil
		case err != nil:
			return nodes, p.inputError(err)
		}
		if len(n.Content) == 1 && n.Content[0].ShortTag() != "!!null" {
			nodes = append(nodes, n.Content[0])
		}
	}
}

// lineError is an error on one line of an input.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

var parserError = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// inputError converts the line in the parser's error, which counts from the start
// of the part, to one of the input.
func (p part) inputError(err error) error {
	if m := parserError.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1]) // digits only
		if at := typo.TabNear(p.text, line); at > 0 {
			return &lineError{p.line - 1 + at, typo.TabText}
		}
		return &lineError{p.line - 1 + line, m[2]}
	}
	return &lineError{p.line, strings.TrimPrefix(err.Error(), "yaml: ")}
}

// walker converts YAML nodes to the values that JSON would give. It expands
// aliases itself, to limit their number.
type walker struct {
	left int // remaining number of values
	line int // number of lines before the part
}

func (w *walker) value(n *yaml.Node, depth int) (any, error) {
	w.left--
	if w.left < 0 || depth > maxDepth {
		return nil, &lineError{n.Line + w.line, "nested too deeply, or too many values"}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := w.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return scalar(n), nil
}

func (w *walker) mapping(n *yaml.Node, depth int) (any, error) {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if name.Kind != yaml.ScalarNode {
			return nil, &lineError{name.Line + w.line, "a key must be one word"}
		}
		if _, ok := m[name.Value]; ok {
			return nil, &lineError{name.Line + w.line, fmt.Sprintf("key %s occurs twice", name.Value)}
		}
		v, err := w.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		m[name.Value] = v
	}
	return m, nil
}

// scalar keeps times as text, as in JSON.
func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
		return number(n.Value)
	case "!!float":
		return number(n.Value)
	}
	return n.Value
}
