package bmc

import (
	"crypto/subtle"
	"fmt"
	"io"
)

// Secret is a credential. It prints as a placeholder in every format, in JSON,
// YAML and logs; only Reveal returns the text. // I25
//
// The text is behind a pointer, because fmt does not call the methods of a Secret
// in an unexported field of a struct; it then prints the pointer.
type Secret struct{ text *string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text, for the code that sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal reports whether two secrets are equal.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// Empty reports whether the text is empty.
func (s Secret) Empty() bool { return s.Reveal() == "" }

const redacted = "[redacted]"

func (s Secret) String() string { return redacted }

// Format implements every verb of fmt; String would not be called for %d.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) } // fmt gives no way to report it

// MarshalText is used by JSON, YAML and zap.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
