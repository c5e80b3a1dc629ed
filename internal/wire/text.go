package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// APIVersion is the version of the JSON that programs read. Fields are added within a version; one is renamed
// or removed only with a new version.
const APIVersion = "v1"

// Versioned is a JSON object with its version, as the first field.
func Versioned(object []byte) []byte {
	rest, isObject := bytes.CutPrefix(object, []byte("{"))
	if !isObject {
		return object
	}
	head := `{"apiVersion":"` + APIVersion + `"`
	if !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("}")) {
		head += ","
	}
	return append([]byte(head), rest...)
}

// Unprintable says whether a rune is not visible text: a control character that a
// terminal obeys (C1 included), or one that changes how the text around it reads
// (direction marks, zero-width characters, line ends).
func Unprintable(r rune) bool { return !unicode.IsGraphic(r) }

// Visible writes what is unprintable in a text as an escape, so that a reader sees it and no terminal obeys it. Line ends
// and tabs are unprintable too.
func Visible(s string) string {
	if !strings.ContainsFunc(s, Unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// EscapeJSON gives equivalent JSON without unprintable characters, except newlines. In
// strings it writes them as \uXXXX, between strings as a space. Input that is not JSON
// stays invalid, but becomes harmless too.
func EscapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1: // no UTF-8: an old terminal obeys some of these bytes
			out = append(out, `\ufffd`...)
		case r == '\n' || !Unprintable(r):
			out = append(out, text[:size]...)
		case r == '\t' || r == '\r': // in JSON only between strings
			out = append(out, ' ')
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return out
}
