package ipmi

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"
)

// A handshake that fails must not leave a session on the BMC, which has as few as
// four and keeps them for a minute. The BMC's answer with the session id may
// arrive after the caller has returned.

const (
	// lingerTime is how long cleanUp waits, in the background, for a late answer.
	lingerTime = 2 * time.Second

	statusNoSession = 0x01 // the status that we send to end the handshake
	statusWrongCode = 0x0f
)

// cleanUp ends on the BMC what x started there, after x failed with err, and
// closes w: at once if nothing more is to come, else after the late answers.
func (x *exchange) cleanUp(w *wire, err error) {
	if x.endOwn(w, err) && !x.unused.pending() {
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
	case x.started != nil && x.otherRnd:
		x.closeStarted(w) // a second proof that is wrong could lock the account
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
		x.unused.add(x.bmcID)
	}
	return false
}

// refuse ends the handshake for the BMC's session id; a RAKP 3 that refuses carries no code.
func (x *exchange) refuse(w *wire, bmcID uint32, status byte) {
	w.sendOnly(plainDatagram(payloadRAKP3, append([]byte{x.nextTag(), status, 0, 0}, id(bmcID)...)))
}

// closeStarted ends the session that RAKP 3 opened.
func (x *exchange) closeStarted(w *wire) {
	w.sendOnly(x.started.datagram(x.started.closing()))
	x.started = nil
}

// endUnused ends the sessions that x does not use while the one that it opened is in
// use. It does so from another port: a BMC with one session for each client address
// would take RAKP 1 for that one.
func (x *exchange) endUnused(p endpoint) {
	x.started = nil // in use
	ctx, cancel := context.WithTimeout(context.Background(), lingerTime)
	defer cancel()
	if w, err := p.dial(ctx); err == nil {
		x.linger(w)
	}
}

// linger waits for late answers of the BMC, and ends the sessions that they name.
func (x *exchange) linger(w *wire) {
	defer w.close()
	for end := time.Now().Add(lingerTime); time.Now().Before(end); {
		deadline := end
		if len(x.unused.next) > 0 {
			deadline = x.unused.since.Add(settleTime)
		}
		if err := w.conn.SetReadDeadline(deadline); err != nil {
			return
		}
		n, err := w.conn.Read(w.buf[:])
		switch {
		case err == nil:
			x.takeLate(w, w.buf[:n])
		case !errors.Is(err, os.ErrDeadlineExceeded): // may be the late end of the caller's ctx
			return
		case !time.Now().Before(deadline):
			x.askUnused(w)
		}
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
		x.bmcID = openedID(a.rest)
		x.unused.add(x.bmcID)
	default:
		x.takeUnused(w, p, a)
	}
}

// A BMC that sees an Open Session Request twice opens two sessions. The one that is
// not used is ended by a RAKP 3 that refuses its RAKP 2. Only a session whose RAKP 2
// arrived is refused: the BMC server of pyghmi (virtualbmc) ends at a refusal that
// comes earlier. So a session without RAKP 2 is first asked for it.

const (
	// maxUnused limits the datagrams that forged answers can make us send.
	maxUnused = 16
	// settleTime is how long to wait for the other answers to a repeated request, after
	// the first. pyghmi ends at a RAKP 3 if RAKP 1 arrived while it took a queued request
	// for that of another session.
	settleTime = 50 * time.Millisecond
)

// unusedSessions are those that the BMC opened and that the exchange does not use.
type unusedSessions struct {
	known map[uint32]bool
	next  []uint32        // to be asked for RAKP 2
	since time.Time       // when the last of them became known
	asked map[byte]uint32 // was asked for RAKP 2, by the tag of RAKP 1
}

// add records a session of the BMC.
func (u *unusedSessions) add(id uint32) {
	if id == 0 || u.known[id] || len(u.known) == maxUnused {
		return
	}
	if u.known == nil {
		u.known, u.asked = map[uint32]bool{}, map[byte]uint32{}
	}
	u.known[id] = true
	u.next, u.since = append(u.next, id), time.Now()
}

// pending reports whether a session is to be ended yet.
func (u *unusedSessions) pending() bool { return len(u.next)+len(u.asked) > 0 }

// askUnused asks for the RAKP 2 of each session that is not used.
func (x *exchange) askUnused(w *wire) {
	for _, id := range x.unused.next {
		tag := x.nextTag()
		x.unused.asked[tag] = id
		w.sendOnly(plainDatagram(payloadRAKP1, x.rakp1For(tag, id)))
	}
	x.unused.next = nil
}

// takeUnused takes an answer that is about another session of the BMC than x uses.
func (x *exchange) takeUnused(w *wire, p packet, a answer) {
	if x.bmcID == 0 || a.status != 0 || a.consoleID != x.consoleID {
		return
	}
	switch p.payloadType {
	case payloadOpenResponse:
		if id := openedID(a.rest); id != x.bmcID {
			x.unused.add(id)
		}
	case payloadRAKP2:
		if id, asked := x.unused.asked[a.tag]; asked {
			delete(x.unused.asked, a.tag)
			x.refuse(w, id, statusNoSession)
		} else if x.hasRnd && !bytes.HasPrefix(a.rest, x.bmcRnd[:]) {
			x.otherRnd = true
		}
	}
}

// takeNewer takes another answer to the Open Session Request, in place of the first if
// it is the answer to a later try: some BMCs have one session for each client address,
// that of the last request.
func (x *exchange) takeNewer(p packet, a answer) {
	first, was := x.openTries[x.openTag], x.bmcID
	try, ours := x.openTries[a.tag]
	if p.payloadType != payloadOpenResponse || a.status != 0 || a.consoleID != x.consoleID || !ours || openedID(a.rest) == was {
		return
	}
	if try < first || x.acceptOpen(a.rest) != nil {
		x.bmcID = was
		x.unused.add(openedID(a.rest))
		return
	}
	x.openTag = a.tag
	x.unused.add(was)
}
