package bmclib

import (
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw  = 64
	maxText = 300 // of an error text, in bytes
)

// parse accepts a provider's exact texts for On and Off. Everything else,
// including PoweringOff and an empty text, is Unknown. // I1
func (k providerSpec) parse(text string) (bmc.PowerState, string) {
	text = strings.TrimSpace(text)
	return k.answers[text], bmc.Printable(text, maxRaw)
}
