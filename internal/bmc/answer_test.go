package bmc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// I1: of a name that is there twice, neither value counts.
func TestCheckNames(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, maxNesting/2)
	for body, repeated := range map[string]string{
		`{"PowerState":"On","PowerState":"Off"}`:                       "PowerState",
		`{"PowerState":"Off","PowerState":"Off"}`:                      "PowerState",
		`{"PowerState":"On","powerstate":"Off"}`:                       "powerstate",
		`{"PowerState":"On","Power\u0053tate":"Off"}`:                  "PowerState",
		`{"PowerState":"On","Power` + "\u017f" + `tate":"Off"}`:        "Power" + "\u017f" + "tate",
		`{"s` + "\u212a" + `u":"a","SKU":"b"}`:                         "SKU",
		`{"a":{"b":[1,{"c":1,"d":{},"c":2}]}}`:                         "c",
		`[{"UUID":"a"},{"UUID":"a","uuid":"b"}]`:                       "uuid",
		`{"Actions":{},"ACTIONS":{}}`:                                  "ACTIONS",
		`{"power_status":1,"Power_Status":0}`:                          "Power_Status",
		`{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}],"x":"x"}`:      "",
		`{"Links":{"ManagedBy":[]},"links":{"self":{"href":"/"}}}`:     "",
		`{"PowerState":"On","Power":"PowerState","a":["UUID","UUID"]}`: "",
		`{"n":4e444,"s":"\ud800","e":{},"f":[]}` + "\n\x00":            "",
		`"text"`: "", `null`: "", `7`: "", ` [] `: "",
	} {
		err := CheckNames([]byte(body))
		if repeated == "" {
			require.NoError(t, err, body)
			continue
		}
		e, ok := errors.AsType[*RepeatedError](err)
		require.True(t, ok, body)
		assert.Equal(t, repeated, e.Name, body)
	}
	for _, body := range []string{``, `{`, `{"a":1`, `{"a" 1}`, `{} {}`, `{"PowerState":"On"}{"PowerState":"Off"}`, `[1]x`, `<html>`, deep + `{`} {
		err := CheckNames([]byte(body))
		require.Error(t, err, body)
		_, repeats := errors.AsType[*RepeatedError](err)
		assert.False(t, repeats, body)
	}
	assert.NoError(t, CheckNames([]byte(deep+strings.Repeat(`]}`, maxNesting/2))))
	long := strings.Repeat("x", 4096)
	assert.Less(t, len(CheckNames([]byte(`{"`+long+`":1,"`+long+`":2}`)).Error()), 100, "an error is short")
}

// FuzzCheckNames: what passes has one meaning. Whatever is read from it by an exact
// name or by encoding/json's own rules, it is the same value.
func FuzzCheckNames(f *testing.F) {
	for _, s := range []string{
		`{"PowerState":"On","PowerState":"Off"}`, `{"PowerState":"On","powerstate":"Off"}`, `{"a":{"b":1,"b":2}}`, `[{},{}]`, `{"PowerState":"Off"} x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if CheckNames(b) != nil {
			return
		}
		b = []byte(strings.TrimRight(string(b), "\x00 \t\r\n"))
		require.True(t, json.Valid(b))
		var exact map[string]json.RawMessage
		var field struct{ PowerState json.RawMessage }
		if json.Unmarshal(b, &exact) != nil || json.Unmarshal(b, &field) != nil {
			return // no object
		}
		if word, ok := exact["PowerState"]; ok {
			assert.Equal(t, string(word), string(field.PowerState))
		}
	})
}

func TestPrintable(t *testing.T) {
	assert.Equal(t, "a b", Printable("a\nb", 10))
	assert.Equal(t, "ä", Printable("ää", 3), "no half character")
	assert.Len(t, Printable(strings.Repeat("x", 1000), 300), 300)
}

// A name that is not written as fold writes it would never be found.
func TestReadNamesAreFolded(t *testing.T) {
	for name := range readNames {
		assert.Equal(t, fold(name), name)
	}
}
