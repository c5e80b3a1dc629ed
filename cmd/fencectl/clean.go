package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/api"
)

// escapeControl escapes control characters in text from a BMC, a cluster or a person, which a terminal
// would obey.
func escapeControl(s string) string {
	if !strings.ContainsFunc(s, api.Unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if api.Unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// toYAML turns one JSON value into YAML that means the same and is as harmless as
// api.EscapeJSON makes JSON. Keys are sorted.
func toYAML(body []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := errors.Join(enc.Encode(yamlNode(value)), enc.Close()); err != nil {
		return nil, err
	}
	return escapeYAML(b.Bytes()), nil
}

// yamlNode quotes each text that holds something unprintable, which can be escaped there.
func yamlNode(value any) *yaml.Node {
	switch v := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, yamlNode(key), yamlNode(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, yamlNode(item))
		}
		return n
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.ContainsFunc(v, api.Unprintable) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)} // true or false
}

// escapeYAML escapes what the encoder takes for printable, which stands in double
// quotes only.
func escapeYAML(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if r != '\n' && api.Unprintable(r) {
			fmt.Fprintf(&b, `\U%08X`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}
