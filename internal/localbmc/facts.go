package localbmc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
)

// Facts are what this host's BMC tells about itself and its host.
type Facts struct {
	GUID     string       // System GUID in hex, in the byte order of the wire
	Firmware string       // like "9.08"
	Addrs    []netip.Addr // of its network interfaces
	MACs     []string
}

// Facts asks the BMC who it is. What it does not have is missing; what could not be
// read is the error, beside all that could.
func (b *BMC) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	id, err := b.ask(ctx, getDeviceID, 4)
	if err != nil {
		return f, err // it does not answer at all
	}
	// The second byte of the firmware's version is binary-coded decimal.
	f.Firmware = fmt.Sprintf("%d.%02x", id[2]&0x7f, id[3])
	guid, guidErr := b.ask(ctx, getSystemGUID, 16)
	if guidErr == nil {
		f.GUID = hex.EncodeToString(guid[:16])
	} else if _, refused := completion(guidErr); refused {
		guidErr = nil
	}
	lanErr := b.lan(ctx, &f)
	return f, errors.Join(guidErr, lanErr)
}
