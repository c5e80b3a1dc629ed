package support

import (
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
	header     = regexp.MustCompile(`(?i)\b(authorization|x-auth-token|cookie)("?[ \t]*[=:][ \t]*"?)[^"\n]+`)
	scheme     = regexp.MustCompile(`(?i)\b(bearer|basic) +([\w.~+/=-]{8,})`)
	jwt        = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`)
	// A word that ends like a secret's name, with a value: password=x, "token": "x".
	named = regexp.MustCompile(`(?i)\b([\w.-]*(?:password|passwd|passphrase|pwd|secret|token|api_?key|community))("?[ \t]*[=:][ \t]*)("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,;{}[\])"'][^\s,;}\])"']*)`)
)

// Scrub hides in a text what looks like a secret, and makes the text harmless to a terminal. It is a
// second line of defence: what reads the parts reads no secret. // I25
func Scrub(text []byte) []byte {
	text = privateKey.ReplaceAll(text, []byte(redacted))
	text = encodedKey.ReplaceAll(text, []byte(redacted))
	text = inURL.ReplaceAll(text, []byte("${1}"+redacted+"@"))
	text = header.ReplaceAll(text, []byte("${1}${2}"+redacted))
	text = scheme.ReplaceAllFunc(text, hideCredentials)
	text = jwt.ReplaceAll(text, []byte(redacted))
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

// hideValue hides the value of a named secret and keeps its quotes, so that JSON stays JSON.
func hideValue(match []byte) []byte {
	m := named.FindSubmatch(match)
	quote := ""
	switch first := m[3][0]; {
	case first == '"' || first == '\'':
		quote = string(first)
	case m[2][0] == '"': // JSON, in which the placeholder must be a text
		quote = `"`
	}
	return []byte(string(m[1]) + string(m[2]) + quote + redacted + quote)
}
