package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// memory is that of a process; a crash loses it.
type memory struct {
	accepted bmc.Acceptance
	session  uint64
	proof    bmc.Proof
	level    int8 // of the session

	// The oracle's notes about it.
	ack         bool // Off was acknowledged in this process, by a BMC that did not restart since ...
	first, last int  // ... and then read Off at, without anything else between; -1
}

// forget is what a crash does.
func (w *world) forget() {
	w.accepted, w.ack = bmc.Acceptance{}, false
	w.resetProof()
	w.session++
	w.compared, w.set = false, true
	w.worn.answer = false
}

func (w *world) resetProof() {
	w.proof = bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
	w.first, w.last = -1, -1
}

var commands = map[Action]bmc.Command{SendOff: bmc.CommandOff, SendOn: bmc.CommandOn}

// readPower is one answer of the BMC, and the oracle's note of it.
func (w *world) readPower(v variant, lost bool) (bmc.Reading, bmc.Kind) {
	r := bmc.Reading{At: clock(w.now), Session: w.session}
	kind := w.answers(v, w.memory.level)
	if lost {
		kind = bmc.KindUnreachable
	}
	w.told = false
	if lost = kind != ""; !lost {
		r = w.reads(v, w.memory.level)
		w.lied = w.lied || w.on && r.State == bmc.Off
	}
	w.proof = w.proof.Add(r)
	if v.trusts {
		r.Session = 0
	}
	if !lost {
		w.accepted = w.accepted.AddReading(r)
	}
	switch {
	case r.State != bmc.Off:
		w.first, w.last = -1, -1
	case w.first < 0:
		w.first, w.last = w.now, w.now
	default:
		w.last = w.now
	}
	if !lost {
		w.sincePower = false
	}
	return r, kind
}
