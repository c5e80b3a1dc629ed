package bmc

// Secret is a credential. It prints as a placeholder in every format, in JSON,
// YAML and logs; only Reveal gives the text. // I25
type Secret struct{ text string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text: text} }

// Reveal gives the text, for the one place that puts it on the wire.
func (s Secret) Reveal() string { return s.text }

// Empty says whether there is no secret.
func (s Secret) Empty() bool { return s.text == "" }

const redacted = "[redacted]"

func (s Secret) String() string   { return redacted }
func (s Secret) GoString() string { return redacted }

// MarshalText serves JSON, YAML and zap alike.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
