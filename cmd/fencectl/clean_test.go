package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

func TestCleanIsHarmlessAndKeepsText(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		harmless := true
		for _, r := range s {
			harmless = harmless && unicode.IsGraphic(r)
		}
		got := escapeControl(s)
		for _, r := range got {
			if !unicode.IsGraphic(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if harmless && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
	assert.Equal(t, `a\x1b]0;x\a b\nc\u202ed`, escapeControl("a\x1b]0;x\x07 b\nc\u202ed"))
}

func TestYAML(t *testing.T) {
	got, err := toYAML([]byte("{\"z\":[],\"b\":[1,2.50,{\"c\":null}],\"a\":\"x\u009b2J\u202ey\\n\",\"t\":\"2026-01-31T12:00:00Z\",\"u\":true,\"v\":\"true\",\"é\":{}}\n"))
	require.NoError(t, err)
	assert.Equal(t, `a: "x\x9B2J\U0000202Ey\n"
b:
- 1
- 2.50
- c: null
t: "2026-01-31T12:00:00Z"
u: true
v: "true"
z: []
é: {}
`, string(got))
	_, err = toYAML([]byte("{} {}"))
	require.Error(t, err)
}

// FuzzYAML: what a terminal is given is harmless, and the YAML means what the JSON meant.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"{\"a\u202e\":\"\u009b\x7f\u2028\U000e0001\ufeff\"}", `{"a":["\u0085 b","- c","#","1","null","~","0x1f","a: b","\\"]}`, `"\u001b[2J"`,
		`[1e3,-0.0,12345678901234567890,true,null,"\n","  x\n y"]`, "{\"\u200b\":{\"\u200b\":null},\"\":\"\ue000\"}", "\"\xff\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := toYAML(text)
		if err != nil {
			return
		}
		for _, r := range string(got) {
			require.True(t, r == '\n' || unicode.IsGraphic(r), "%U in %q", r, got)
		}
		var want, is any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		require.NoError(t, dec.Decode(&want))
		var doc yaml.Node
		require.NoError(t, yaml.Unmarshal(got, &doc), "%q", got)
		require.Len(t, doc.Content, 1)
		is = meaning(t, doc.Content[0])
		require.Equal(t, want, is, "%q", got)
	})
}

// meaning is what YAML says, as JSON would.
func meaning(t *testing.T, n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key, ok := meaning(t, n.Content[i]).(string)
			require.True(t, ok, "a key that is no text")
			m[key] = meaning(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, meaning(t, item))
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	case "!!int", "!!float":
		return json.Number(n.Value)
	}
	require.Equal(t, "!!str", n.ShortTag(), n.Value)
	return n.Value
}
