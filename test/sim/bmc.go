package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/fake"
)

// bmcFaults are the common faults; a false Off is rare.
var bmcFaults = []fake.Fault{fake.Hangs, fake.Hangs, fake.Refuses, fake.BarsAccount, fake.Deaf, fake.Deaf, fake.Late, fake.Late, fake.Stale, fake.Stale,
	fake.Restarts, fake.Restarts, fake.Stranger, fake.Slow, fake.Slow, fake.Busy}

// troubleBMC makes the BMC fail, at random.
func (h *host) troubleBMC(now time.Time) {
	w, b := h.w, &h.BMC
	if b.Fault != fake.NoFault && now.After(h.until) {
		b.Fault = fake.NoFault
	}
	if !w.chance(w.plan.BMCs) {
		return
	}
	f := w.plan.BMCFaults[w.rng.IntN(len(w.plan.BMCFaults))]
	h.until = now.Add(between(w.rng, 10*time.Second, 6*time.Minute))
	b.SetFault(f, now)
	w.fault(string(b.Fault), h.Name, "until %s", h.until.Sub(w.began).Round(time.Second))
}

// link is one fenced's client of one device.
type link struct {
	inc     *incarnation
	h       *host
	outlet  *outlet    // nil: the BMC
	account bmc.Secret // with which it logs in
	session uint64
	boot    int
	rng     *rand.Rand
}

func (l *link) fault() fake.Fault {
	if l.outlet != nil {
		return l.outlet.Fault
	}
	return l.h.BMC.Fault
}

// Read implements bmc.Power.
func (l *link) Read(ctx context.Context) (bmc.Reading, error) {
	w, began := l.h.w, time.Now()
	w.do(func() { l.inc.active[l.h.Name] = began })
	if err := l.arrive(ctx, "read power state"); err != nil {
		w.do(func() { l.inc.power(l).broken() })
		return bmc.Reading{}, err
	}
	var r bmc.Reading
	var honest bool
	w.do(func() {
		if r, honest = l.h.BMC.Reading(time.Now()); l.outlet != nil {
			r, honest = l.outlet.Reading(time.Now()), true
		}
		if r.Session = l.session; r.State == bmc.Off && !honest {
			w.ledger.lies[l.h.Name] = time.Now()
		}
	})
	if err := l.back(ctx, "read power state", bmc.SentNo); err != nil {
		w.do(func() { l.inc.power(l).broken() })
		return bmc.Reading{}, err
	}
	r.At = time.Now()
	w.do(func() {
		l.inc.power(l).read(began, r, honest) // as it was received, before a Defect changes it
		w.defect.reading(&r, l.h)
	})
	return r, nil
}

// Send implements bmc.Power.
func (l *link) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	w := l.h.w
	op := "send " + c.String()
	w.do(func() {
		if w.defect.FollowsEntries && l.outlet == nil {
			l.h = l.h.leads.bmc
		}
	})
	w.do(func() {
		w.note(l.h.Name, "%s: %s to %s", l.inc, op, l.name())
		w.auditCommand(l, c)
		l.inc.power(l).sending()
	})
	if err := l.arrive(ctx, op); err != nil {
		return bmc.Receipt{}, err
	}
	w.do(func() { l.obey(c) })
	if err := l.back(ctx, op, bmc.SentMaybe); err != nil {
		return bmc.Receipt{}, err
	}
	w.do(func() { l.inc.power(l).accepted(c) })
	return bmc.Receipt{}, nil
}

// Close implements bmc.Power.
func (l *link) Close(context.Context) error { return nil }

func (l *link) name() string {
	if l.outlet == nil {
		return "BMC"
	}
	return "outlet"
}

// arrive delivers a request to the device, over a session.
func (l *link) arrive(ctx context.Context, op string) error {
	w := l.h.w
	if err := l.inc.call(ctx, op); err != nil {
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, err)
	}
	var m fake.Fault
	var silent bool
	w.do(func() {
		m = l.fault()
		silent = l.outlet == nil && !l.h.BMC.Up(time.Now()) || w.dice.Float64() < w.lost()/4
	})
	if m == fake.Hangs || silent {
		<-ctx.Done()
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, ctx.Err())
	}
	if m != fake.Refuses && !l.allowed() {
		m = fake.BarsAccount
	}
	if kind, err := m.Refusal(); err != nil {
		return l.fail(op, kind, bmc.SentNo, err)
	}
	if err := sleep(ctx, l.latency(m)); err != nil {
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, err)
	}
	w.do(func() {
		if l.session == 0 || l.boot != l.h.BMC.Boot && l.outlet == nil {
			w.sessions++
			l.session, l.boot = w.sessions, l.h.BMC.Boot
		}
	})
	return nil
}

// back delivers the answer, or loses it.
func (l *link) back(ctx context.Context, op string, sent bmc.Sent) error {
	var m fake.Fault
	var lost bool
	l.h.w.do(func() {
		m = l.fault()
		if lost = l.h.w.dice.Float64() < l.h.w.lost()/4; lost {
			l.h.w.fault("bmc-answer-lost", l.h.Name, "%s", op)
		}
	})
	if lost {
		<-ctx.Done()
		return l.fail(op, bmc.KindUnreachable, sent, ctx.Err())
	}
	if err := sleep(ctx, l.latency(m)); err != nil {
		return l.fail(op, bmc.KindUnreachable, sent, err)
	}
	if err := l.inc.call(ctx, op+" answered"); err != nil {
		return l.fail(op, bmc.KindUnreachable, sent, err)
	}
	return nil
}

// allowed reports whether the device accepts the account.
func (l *link) allowed() bool {
	return l.outlet != nil || l.account.Reveal() == l.h.password().Reveal()
}

func (l *link) latency(m fake.Fault) time.Duration {
	if m == fake.Slow {
		return between(l.rng, 500*time.Millisecond, 3*time.Second)
	}
	return between(l.rng, 5*time.Millisecond, 60*time.Millisecond)
}

// obey carries out a command as the device would.
func (l *link) obey(c bmc.Command) {
	if l.outlet != nil {
		l.outlet.Obey(c, time.Now())
		return
	}
	l.h.BMC.Obey(c, time.Now())
}

func (l *link) fail(op string, k bmc.Kind, sent bmc.Sent, err error) error {
	if l.h.w.defect.TellsPasswords {
		err = fmt.Errorf("%s: %w", l.account.Reveal(), err)
	}
	return &bmc.Error{Kind: k, Op: op, Addr: l.h.Name, Sent: sent, Err: err}
}

func (h *host) index() int {
	for i, o := range h.w.hosts {
		if o == h {
			return i
		}
	}
	return len(h.w.hosts)
}

// ownAddress is the address of the machine on which this fenced runs, if any.
func (h *host) ownAddress() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", h.index()+1))
}

// outlet feeds one of the two power supplies of a host. Guarded by the world's
// mutex.
type outlet struct {
	*fake.Outlet
	h     *host
	until time.Time // end of its fault
}

// trouble makes the outlet's PDU unreachable or deaf, at random.
func (o *outlet) trouble(now time.Time) {
	w := o.h.w
	if o.Fault != fake.NoFault && now.After(o.until) {
		o.Fault = fake.NoFault
	}
	if !w.chance(w.plan.BMCs / 4) {
		return
	}
	o.Fault, o.until = []fake.Fault{fake.Refuses, fake.Deaf, fake.Slow}[w.rng.IntN(3)], now.Add(between(w.rng, 10*time.Second, 3*time.Minute))
	w.fault("outlet-"+string(o.Fault), o.h.Name, "until %s", o.until.Sub(w.began).Round(time.Second))
}

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
