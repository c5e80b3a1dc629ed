package ipmi

import (
	"errors"
	"os"
	"time"
)

// A handshake that does not end in a session of ours must not leave one on the
// BMC, which has as few as four and keeps them for a minute. What it opened it may
// tell only after our caller has gone. // bmc.md 5

const (
	// lingering is how long a late answer to a broken handshake is waited for, in
	// the background.
	lingering = 2 * time.Second
	// maxRefused bounds what a flood of forged answers can make us send.
	maxRefused = 16

	statusNoSession = 0x01 // what we tell the BMC when we do not go on
	statusWrongCode = 0x0f
)

// leave ends on the BMC what x began there, when x ended with err, and closes w:
// at once if the BMC's last word was heard, else when the late answers came.
func (x *exchange) leave(w *wire, err error) {
	var refused *statusError
	if errors.As(err, &refused) { // the BMC ended it itself
		w.close()
		return
	}
	status := byte(statusNoSession)
	if errors.Is(err, errWrongPassword) {
		status = statusWrongCode
	}
	x.end(w, status)
	if err == nil || errors.Is(err, errWrongPassword) || errors.Is(err, errOtherAlgorithms) {
		w.close()
		return
	}
	go x.linger(w)
}

// end tells the BMC to forget the session, in whichever state it is there.
func (x *exchange) end(w *wire, status byte) {
	if x.begun != nil {
		w.tell(x.begun.datagram(x.begun.closing()))
	}
	if x.bmcID != 0 {
		x.refuse(w, x.bmcID, status)
	}
}

func (x *exchange) refuse(w *wire, bmcID uint32, status byte) {
	w.tell(plain(payloadRAKP3, rakp3Refusal(x.nextTag(), status, bmcID)))
}

// refuseSurplus refuses a session that the BMC opened for a repeated request,
// beside the one that x goes on with.
func (x *exchange) refuseSurplus(w *wire, p packet, a answer) {
	if p.payloadType != payloadOpenResponse || x.bmcID == 0 || a.status != 0 || a.consoleID != x.consoleID {
		return
	}
	if other := openedID(a.rest); other != 0 && other != x.bmcID && x.refused < maxRefused {
		x.refused++
		x.refuse(w, other, statusNoSession)
	}
}

// linger waits for what the BMC has still to say, and ends what it names.
func (x *exchange) linger(w *wire) {
	defer w.close()
	for end := time.Now().Add(lingering); time.Now().Before(end) && x.refused < maxRefused; {
		if err := w.conn.SetReadDeadline(end); err != nil {
			return
		}
		n, err := w.conn.Read(w.buf[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // perhaps the late end of the caller's ctx
		}
		if err != nil {
			return
		}
		p, a, err := parseHandshake(w.buf[:n])
		switch {
		case err != nil || a.status != 0 || a.consoleID != x.consoleID:
		case p.payloadType == payloadOpenResponse && x.bmcID == 0:
			x.bmcID = openedID(a.rest)
			x.end(w, statusNoSession)
		case p.payloadType == payloadOpenResponse:
			x.refuseSurplus(w, p, a)
		case p.payloadType == payloadRAKP4 && x.begun != nil:
			x.refused++
			x.end(w, statusNoSession)
		}
	}
}
