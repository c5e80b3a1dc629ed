package ipmi

import (
	"errors"
	"os"
	"time"
)

// A handshake that fails must not leave a session on the BMC, which has as few as
// four and keeps them for a minute. The BMC's answer with the session id may
// arrive after the caller has returned. // bmc.md 5

const (
	// lingerTime is how long cleanUp waits, in the background, for a late answer.
	lingerTime = 2 * time.Second
	// maxRefused limits the datagrams that forged answers can make us send.
	maxRefused = 16

	statusNoSession = 0x01 // the status that we send to end the handshake
	statusWrongCode = 0x0f
)

// cleanUp ends on the BMC what x started there, after x failed with err, and
// closes w: at once if the BMC's last answer was received, else after the late
// answers.
func (x *exchange) cleanUp(w *wire, err error) {
	var refused *statusError
	if errors.As(err, &refused) { // the BMC has ended it
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

// end makes the BMC forget the session, whatever its state is there.
func (x *exchange) end(w *wire, status byte) {
	if x.started != nil {
		w.sendOnly(x.started.datagram(x.started.closing()))
	}
	if x.bmcID != 0 {
		x.refuse(w, x.bmcID, status)
	}
}

func (x *exchange) refuse(w *wire, bmcID uint32, status byte) {
	w.sendOnly(plainDatagram(payloadRAKP3, rakp3Refusal(x.nextTag(), status, bmcID)))
}

// refuseSurplus ends a session that the BMC opened for a repeated request, in
// addition to the one that x uses.
func (x *exchange) refuseSurplus(w *wire, p packet, a answer) {
	if p.payloadType != payloadOpenResponse || x.bmcID == 0 || a.status != 0 || a.consoleID != x.consoleID {
		return
	}
	if other := openedID(a.rest); other != 0 && other != x.bmcID && x.refused < maxRefused {
		x.refused++
		x.refuse(w, other, statusNoSession)
	}
}

// linger waits for late answers of the BMC, and ends the sessions that they name.
func (x *exchange) linger(w *wire) {
	defer w.close()
	for end := time.Now().Add(lingerTime); time.Now().Before(end) && x.refused < maxRefused; {
		if err := w.conn.SetReadDeadline(end); err != nil {
			return
		}
		n, err := w.conn.Read(w.buf[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // may be the late end of the caller's ctx
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
		case p.payloadType == payloadRAKP4 && x.started != nil:
			x.refused++
			x.end(w, statusNoSession)
		}
	}
}
