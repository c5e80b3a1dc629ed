package support

import (
	"bytes"
	"regexp"

	"github.com/fenced/fenced/internal/bmc"
)

// redacted stands where a secret would.
var redacted = bmc.Secret{}.String()

// Forms in which a secret stands in a text. fenced writes none of them; other programs may write
// into the journal of its unit, and people into a reason.
var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	encodedKey = regexp.MustCompile(`\bLS0tLS1CRUdJTi[\w+/=]{20,}`) // the same in base64: "-----BEGIN "
	inURL      = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s"'<>]*@`)
	withoutURL = regexp.MustCompile(`\b([\w.+-]+:)[^\s"'<>@/\\]+@([\w[])`) // of a proxy, as in HTTP_PROXY
	header     = regexp.MustCompile(`(?i)\b(authorization|x-auth-token|cookie)(\\*"?[ \t]*[=:][ \t]*"?)(?:="[^"\n]*"|[^"\\\n]|\\.)+`)
	scheme     = regexp.MustCompile(`(?i)\b(bearer|basic) +([\w.~+/=-]{8,})`)
	jwt        = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`)
	// An option of a command line: --password x.
	option = regexp.MustCompile(`(?i)(--[\w-]*(?:password|passwd|pwd|secret|token|community)[ \t]+)[^\s-][^\s"]*`)
	// A word that ends like a secret's name, with a value: password=x, "token": "x", and JSON in JSON: \"token\":\"x\". A value may
	// have no end, for a part is cut before it is scrubbed.
	named = regexp.MustCompile(`(?i)\b([\w.-]*(?:password|passwd|passphrase|pwd|secret|token|(?:api|access|private|secret|encryption)[_-]?key|community))(\\*"?[ \t]*[=:][ \t]*)` +
		`("(?:[^"\\\n]|\\.)*"?|\\"(?:[^"\\\n]|\\{2,}"?|\\[^"\\\n])*\\"|\\+"[^"\n]*"?|'[^'\n]*'?|[^\s,;{}[\])"'\\][^\s,;}\])"']*)`)
)

// Scrub hides in a text what looks like a secret, and makes the text harmless to a terminal. It is a
// second line of defence: what reads the parts reads no secret. // I25
func Scrub(text []byte) []byte {
	text = privateKey.ReplaceAll(text, []byte(redacted))
	text = encodedKey.ReplaceAll(text, []byte(redacted))
	if bytes.IndexByte(text, '@') >= 0 { // of a large part each of these takes a second
		text = inURL.ReplaceAll(text, []byte("${1}"+redacted+"@"))
		text = withoutURL.ReplaceAll(text, []byte("${1}"+redacted+"@${2}"))
	}
	text = header.ReplaceAll(text, []byte("${1}${2}"+redacted))
	text = scheme.ReplaceAllFunc(text, hideCredentials)
	text = jwt.ReplaceAll(text, []byte(redacted))
	text = option.ReplaceAll(text, []byte("${1}"+redacted))
	text = named.ReplaceAllFunc(text, hideValue)
	return printable(text)
}

// encoded tells credentials after the name of a scheme from a word: "basic authentication".
var encoded = regexp.MustCompile(`[0-9=+/]|[a-z][A-Z]`)

func hideCredentials(match []byte) []byte {
	m := scheme.FindSubmatch(match)
	if !encoded.Match(m[2]) {
		return match
	}
	return []byte(string(m[1]) + " " + redacted)
}

// opening is a quote at the beginning of a text, in JSON in JSON with its backslashes.
var opening = regexp.MustCompile(`^\\*["']`)

// hideValue hides the value of a named secret and keeps its quotes, so that JSON stays JSON.
func hideValue(match []byte) []byte {
	m := named.FindSubmatch(match)
	quote := ""
	for _, before := range [][]byte{m[3], m[2]} { // in JSON the placeholder of a number must be a text, too
		if quote = string(opening.Find(before)); quote != "" {
			break
		}
	}
	return []byte(string(m[1]) + string(m[2]) + quote + redacted + quote)
}
