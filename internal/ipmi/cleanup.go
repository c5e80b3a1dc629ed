package ipmi

import (
	"errors"
	"os"
	"time"
)

// A handshake that fails must not leave a session on the BMC, which has as few as
// four and keeps them for a minute. The BMC's answer with the session id may
// arrive after the caller has returned. // bmc.md 5
//
// A RAKP 3 that refuses the RAKP 2 of a session ends it. Only a session whose
// RAKP 2 arrived is refused: the BMC server of pyghmi (virtualbmc) ends at a
// refusal that comes earlier. So a session without RAKP 2 is first asked for it.

const (
	// lingerTime is how long cleanUp waits, in the background, for a late answer.
	lingerTime = 2 * time.Second
	// maxUnused limits the datagrams that forged answers can make us send.
	maxUnused = 16

	statusNoSession = 0x01 // the status that we send to end the handshake
	statusWrongCode = 0x0f
)

// unusedSessions are those that the BMC opened and that the exchange does not use.
type unusedSessions struct {
	ids  map[uint32]bool
	asks map[byte]uint32 // which session was asked for RAKP 2, by the tag of RAKP 1
}

// known is how many unused sessions there were.
func (u *unusedSessions) known() int { return len(u.ids) }

// add notes the session, and the tag with which it is asked for RAKP 2. It reports
// whether to ask.
func (u *unusedSessions) add(id uint32, tag byte) bool {
	if u.ids[id] || len(u.ids) == maxUnused {
		return false
	}
	if u.ids == nil {
		u.ids, u.asks = map[uint32]bool{}, map[byte]uint32{}
	}
	u.ids[id], u.asks[tag] = true, id
	return true
}

// cleanUp ends on the BMC what x started there, after x failed with err, and
// closes w: at once if nothing more is to come, else after the late answers.
func (x *exchange) cleanUp(w *wire, err error) {
	if x.endOwn(w, err) && len(x.unused.asks) == 0 {
		w.close()
		return
	}
	go x.linger(w)
}

// endOwn ends the session of x, whatever its state is on the BMC. It reports
// whether that needs no answer.
func (x *exchange) endOwn(w *wire, err error) bool {
	var refused *statusError
	var replaced *replacedError
	switch {
	case errors.As(err, &refused), errors.Is(err, errOtherAlgorithms):
		return true // the BMC has ended it; or it has algorithms that we do not use even to refuse it
	case errors.Is(err, errWrongKey):
		x.closeStarted(w) // if RAKP 4 was altered on its way, the BMC has our keys
		return true
	case x.started != nil:
		// RAKP 3 or 4 was lost. pyghmi ends at a Close Session for a session that it did
		// not open yet. The answer to the same RAKP 3 tells that it is open by now.
		w.sendOnly(plainDatagram(payloadRAKP3, x.rakp3(x.nextTag())))
		return false
	case x.hasRnd && errors.Is(err, errWrongPassword) && !errors.As(err, &replaced):
		x.refuse(w, x.bmcID, statusWrongCode)
		return true
	case x.hasRnd:
		x.refuse(w, x.bmcID, statusNoSession)
		return true
	case x.bmcID != 0:
		x.askToRefuse(w, x.bmcID)
	}
	return false
}

func (x *exchange) refuse(w *wire, bmcID uint32, status byte) {
	w.sendOnly(plainDatagram(payloadRAKP3, rakp3Refusal(x.nextTag(), status, bmcID)))
}

// closeStarted ends the session that RAKP 3 opened.
func (x *exchange) closeStarted(w *wire) {
	w.sendOnly(x.started.datagram(x.started.closing()))
	x.started = nil
}

// askToRefuse asks for the RAKP 2 of a session that is not used.
func (x *exchange) askToRefuse(w *wire, bmcID uint32) {
	if tag := x.nextTag(); x.unused.add(bmcID, tag) {
		w.sendOnly(plainDatagram(payloadRAKP1, x.rakp1For(tag, bmcID)))
	}
}

// endUnused ends a session that the BMC opened for a repeated request, in addition
// to the one that x uses, if the answer a is about such a session.
func (x *exchange) endUnused(w *wire, p packet, a answer) {
	if x.bmcID == 0 || a.status != 0 || a.consoleID != x.consoleID {
		return
	}
	switch p.payloadType {
	case payloadOpenResponse:
		if other := openedID(a.rest); other != 0 && other != x.bmcID {
			x.askToRefuse(w, other)
		}
	case payloadRAKP2:
		if other, asked := x.unused.asks[a.tag]; asked {
			delete(x.unused.asks, a.tag)
			x.refuse(w, other, statusNoSession)
		}
	}
}

// linger waits for late answers of the BMC, and ends the sessions that they name.
func (x *exchange) linger(w *wire) {
	defer w.close()
	for end := time.Now().Add(lingerTime); time.Now().Before(end); {
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
		x.takeLate(w, w.buf[:n])
	}
	if x.started != nil {
		x.closeStarted(w) // a BMC may ignore a second RAKP 3
	}
}

// takeLate takes an answer that arrives after the end of x.
func (x *exchange) takeLate(w *wire, datagram []byte) {
	p, a, err := parseHandshake(datagram)
	switch {
	case err != nil || a.consoleID != x.consoleID:
	case p.payloadType == payloadRAKP4 && x.started != nil:
		x.closeStarted(w)
	case p.payloadType == payloadOpenResponse && x.bmcID == 0 && a.status == 0:
		if x.bmcID = openedID(a.rest); x.bmcID != 0 {
			x.askToRefuse(w, x.bmcID)
		}
	default:
		x.endUnused(w, p, a)
	}
}
