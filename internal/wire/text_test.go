package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEscapeJSON(t *testing.T) {
	assert.Equal(t, "{ \"a\": \"\\u007f\\u009b2J\\u202e\\udb40\\udc41é€\\ufffd\"}\n", string(EscapeJSON([]byte("{\t\"a\": \"\x7f\u009b2J\u202e\U000e0041é€\xff\"}\n"))))
	plain := []byte(`{"newer": {"z":1,  "a":[ ]}, "b":"\u001b"}` + "\n")
	assert.Equal(t, plain, EscapeJSON(plain))
}

// FuzzEscapeJSON: what a terminal is given is harmless, and JSON means what it meant.
func FuzzEscapeJSON(f *testing.F) {
	for _, seed := range []string{
		"{\"a\":\"\u202e\u009b\x7f\u2028\U000e0001\"}\r\n", "[\"\xff\xc2\",\t1]", "\x1b[2J", `"\ud800"`, "{\"\u200b\":{\"\u200b\":null}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := EscapeJSON(text)
		for _, r := range string(got) {
			require.True(t, r == '\n' || unicode.IsGraphic(r), "%U", r)
		}
		var want, is any
		if unmarshal(text, &want) != nil {
			return
		}
		require.NoError(t, unmarshal(got, &is))
		require.Equal(t, want, is)
	})
}

// unmarshal keeps numbers as they are written.
func unmarshal(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(v)
}

// The version is the first field of any object, and of nothing else.
func TestVersioned(t *testing.T) {
	for in, want := range map[string]string{
		"{}": `{"apiVersion":"v1"}`, "{\n}": "{\"apiVersion\":\"v1\"\n}", `{"a":1}`: `{"apiVersion":"v1","a":1}`, "[1]": "[1]", "": "",
	} {
		assert.Equal(t, want, string(Versioned([]byte(in))))
	}
}
