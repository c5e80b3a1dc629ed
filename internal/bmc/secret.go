package bmc

import (
	"crypto/subtle"
	"fmt"
	"io"
)

// Secret is a credential. It prints as a placeholder in every format, in JSON,
// YAML and logs; only Reveal gives the text. // I25
//
// The text stands behind a pointer, because fmt does not ask the methods of a
// Secret in an unexported field of a struct: it shows an address there.
type Secret struct{ text *string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal gives the text, for the one place that puts it on the wire.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal says whether two secrets are one.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// Empty says whether there is no secret.
func (s Secret) Empty() bool { return s.Reveal() == "" }

const redacted = "[redacted]"

func (s Secret) String() string { return redacted }

// Format serves every verb of fmt: String alone would not be asked for %d.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) } // fmt gives no way to report it

// MarshalText serves JSON, YAML and zap alike.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
