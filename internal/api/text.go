package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Unprintable says whether a rune is not visible text: a control character that a
// terminal obeys (C1 included), or one that changes how the text around it reads
// (direction marks, zero-width characters, line ends).
func Unprintable(r rune) bool { return !unicode.IsGraphic(r) }

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

// maxReason bounds a reason, in bytes: it stays with the run for good.
const maxReason = 1000

// CheckReason refuses, with a *Error, a reason that is empty, too long, or not safe to
// show on a terminal.
func CheckReason(reason string) error {
	switch at := strings.IndexFunc(reason, Unprintable); {
	case reason == "":
		return BadRequest("an order needs a reason", `say why: --reason "disk fails, ticket 4711"`)
	case len(reason) > maxReason:
		return BadRequest(fmt.Sprintf("the reason is longer than %d bytes", maxReason), "name a ticket that says more")
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(reason[at:])
		return BadRequest(fmt.Sprintf("the reason holds control characters, or others that cannot be seen: %U", r), "write it on one line, in plain text")
	case !utf8.ValidString(reason):
		return BadRequest("the reason is not UTF-8", "write it in plain text")
	}
	return nil
}
