package localbmc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
)

// Facts are what this host's BMC reports about itself and its host.
type Facts struct {
	GUID     string       // of the system or of the BMC, in hex, in the byte order of the reply
	Firmware string       // like "9.08"
	Addrs    []netip.Addr // of its network interfaces
	MACs     []string
}

// Facts reads the identity of the BMC. What the BMC does not have stays empty. If
// a part cannot be read, Facts returns the error with all other parts.
func (b *BMC) Facts(ctx context.Context) (Facts, error) {
	var f Facts
	id, err := b.ask(ctx, getDeviceID, 4)
	if err != nil {
		return f, err // the BMC does not answer at all
	}
	// The second byte of the firmware's version is binary-coded decimal.
	f.Firmware = fmt.Sprintf("%d.%02x", id[2]&0x7f, id[3])
	var guidErr error
	f.GUID, guidErr = b.guid(ctx)
	lanErr := b.lan(ctx, &f)
	return f, errors.Join(guidErr, lanErr)
}

// guid reads the GUID of the system, which LAN sessions show, or else that of the
// BMC itself.
func (b *BMC) guid(ctx context.Context) (string, error) {
	for _, c := range []command{getSystemGUID, getDeviceGUID} {
		r, err := b.ask(ctx, c, 16)
		if _, refused := completion(err); refused {
			continue
		}
		if err != nil {
			return "", err
		}
		return hex.EncodeToString(r[:16]), nil
	}
	return "", nil
}
