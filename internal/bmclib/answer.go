package bmclib

import (
	"strings"

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
	return k.answers[text], bmc.Printable(text, maxRaw)
}
