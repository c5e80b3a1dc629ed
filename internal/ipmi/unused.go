package ipmi

import (
	"bytes"
	"time"
)

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

// add notes a session of the BMC.
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
