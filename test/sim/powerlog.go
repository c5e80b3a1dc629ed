package sim

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// logKey is one process of a fenced and one device.
type logKey struct {
	h      *host
	outlet *outlet
}

// powerLog is what one process of a fenced received from one device since its
// last command there: an independent record of what could prove an Off.
type powerLog struct {
	taken  time.Time // when an Off was accepted in this session; zero = not accepted
	offs   []offRead // the last consecutive Off reads of one session
	since  time.Time // of the first Off read since the last other one; a read that fails in between changes nothing
	last   bmc.Reading
	honest bool // of the last reading
	onAt   time.Time
	// lease is the Lease of the host's Node, in the first Look after the first of
	// offs.
	lease   string
	leaseAt time.Time
}

type offRead struct{ began, at time.Time }

// power returns the log of a device. w.mu is held.
func (c *incarnation) power(l *link) *powerLog { return c.log(l.h, l.outlet) }

func (c *incarnation) log(h *host, o *outlet) *powerLog {
	k := logKey{h, o}
	if c.logs[k] == nil {
		c.logs[k] = &powerLog{}
	}
	return c.logs[k]
}

func (p *powerLog) sending() {
	p.taken, p.since, p.offs, p.lease = time.Time{}, time.Time{}, nil, ""
}

func (p *powerLog) accepted(c bmc.Command) {
	if c == bmc.CommandOff {
		p.taken = time.Now()
	}
}

func (p *powerLog) broken() { p.offs = nil }

func (p *powerLog) read(began time.Time, r bmc.Reading, honest bool) {
	other := r.Session != p.last.Session || r.Identity != p.last.Identity
	if r.Session != p.last.Session { // the BMC may have lost the command before it was carried out
		p.taken = time.Time{}
	}
	p.last, p.honest = r, honest
	switch {
	case r.State != bmc.Off:
		p.offs, p.lease, p.since, p.onAt = nil, "", time.Time{}, r.At
	case other:
		p.offs, p.since = []offRead{{began, r.At}}, r.At
	default:
		if p.since.IsZero() {
			p.since = r.At
		}
		p.offs = append(p.offs, offRead{began, r.At})
	}
}

// missingForProof returns what is missing for a proof of Off; "" if nothing
// is. // I1
func (p *powerLog) missingForProof(now time.Time) string {
	n := len(p.offs)
	switch {
	case p.taken.IsZero():
		return "no Off was accepted"
	case n == 0:
		return "the last reading was not Off"
	case p.offs[0].at.Before(p.taken):
		return "the first Off read came before the command"
	case p.offs[n-1].began.Sub(p.offs[0].at) < offReadSpacing:
		return "the Off reads are only " + p.offs[n-1].began.Sub(p.offs[0].at).String() + " apart"
	case now.Sub(p.offs[n-1].at) > proofMaxAge:
		return "the newest Off read is " + now.Sub(p.offs[n-1].at).String() + " old"
	}
	return ""
}

// notProvenReason returns why the host is not proven off for this fenced, by its
// BMC or by all its outlets. w.mu is held.
func (c *incarnation) notProvenReason(h *host, now time.Time) string {
	b := c.log(h, nil)
	why := b.missingForProof(now)
	if why == "" || len(h.outlets) == 0 {
		return why
	}
	for _, o := range h.outlets {
		l := c.log(h, o)
		if more := l.missingForProof(now); more != "" {
			return why + "; outlet: " + more
		}
		if b.onAt.After(l.taken) {
			return why + "; outlets: the BMC reads On"
		}
	}
	return ""
}
