package bmclib

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw  = 64
	maxText = 300 // of a cause
)

// parse takes a provider's exact words for On and Off. All else, PoweringOff
// and an empty text among it, is Unknown. // I1
func (k kind) parse(text string) (bmc.PowerState, string) {
	text = strings.TrimSpace(text)
	return k.answers[text], printable(text, maxRaw)
}

// printable is at most limit bytes of s, without control characters.
func printable(s string, limit int) string {
	if len(s) > 4*limit { // enough, whatever is dropped below
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
