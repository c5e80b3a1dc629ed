package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Unprintable says whether a rune is none that people write and see: a terminal obeys
// it (control characters, C1 too), or it changes how the text around it reads (marks
// of direction, what has no width, ends of lines).
func Unprintable(r rune) bool { return !unicode.IsGraphic(r) }

// EscapeJSON gives JSON that means the same and holds nothing unprintable but the
// newline: within strings that is written \uXXXX, between them it becomes a space.
// What is no JSON is no JSON afterwards either, and as harmless.
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

// maxReason bounds, in bytes, what is kept with a run for ever.
const maxReason = 1000

// CheckReason wants a sentence for the audit log that is safe to show on a terminal,
// and refuses any other with a *Error.
func CheckReason(code string) error {
	switch at := strings.IndexFunc(code, Unprintable); {
	case code == "":
		return BadRequest("an order needs a reason", `say why: --reason "disk fails, ticket 4711"`)
	case len(code) > maxReason:
		return BadRequest(fmt.Sprintf("the reason is longer than %d bytes", maxReason), "name a ticket that says more")
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(code[at:])
		return BadRequest(fmt.Sprintf("the reason holds control characters, or others that cannot be seen: %U", r), "write it on one line, in plain text")
	case !utf8.ValidString(code):
		return BadRequest("the reason is not UTF-8", "write it in plain text")
	}
	return nil
}
