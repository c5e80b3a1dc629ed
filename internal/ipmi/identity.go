package ipmi

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
)

// hostSerial is the serial number of the host as one session read it.
type hostSerial struct {
	session uint64 // its number
	text    string // "" if the BMC reports none, or not in time
}

// serialInsteadOfGUID returns the serial number of the host if the GUID does not
// identify it; an empty one for every other BMC, which is asked nothing more. The
// inventory is read once in a session, so that all its readings are alike, and in a
// part of the time of a reading.
func (c *Client) serialInsteadOfGUID(ctx context.Context, s *session) hostSerial {
	if !c.ignoreUUID && bmc.UsableUUID(hex.EncodeToString(s.guid[:])) {
		return hostSerial{}
	}
	if c.serial.session == s.serial {
		return c.serial
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout/3)
	defer cancel()
	silent := false
	ask := func(r request) (reply, bool) {
		if silent {
			return reply{}, false
		}
		answer, err := s.command(ctx, r, false, func() {})
		silent = err != nil
		return answer, err == nil && answer.code == codeOK
	}
	c.serial = hostSerial{session: s.serial, text: fru{ask}.serial()}
	return c.serial
}

// checkSerial returns an error if another serial number answers in the session s
// than the required one. // I8
func (o *operation) checkSerial(ctx context.Context, s *session) error {
	required := o.requiredSerial
	if required.text == "" || s.serial == required.session {
		return nil
	}
	if now := o.client.serialInsteadOfGUID(ctx, s); now.text != required.text {
		return &otherSerialError{required.text, now.text}
	}
	return nil
}

// otherSerialError: another machine answers than the one that was read.
type otherSerialError struct{ read, answers string }

func (e *otherSerialError) Error() string {
	return fmt.Sprintf("the BMC of serial %q was read, but the BMC of serial %q answers now; no command was sent", e.read, e.answers)
}

func (e *otherSerialError) kind() bmc.Kind { return bmc.KindIdentity }
