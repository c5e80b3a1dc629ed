package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// mood is how a BMC or an outlet misbehaves for a while. // reliability A.3
type mood string

const (
	wellBehaved mood = ""
	hangs       mood = "bmc-hangs"
	refuses     mood = "bmc-refuses"
	barsAccount mood = "bmc-account"
	deaf        mood = "bmc-deaf"  // accepts and does nothing
	late        mood = "bmc-late"  // does it some seconds later
	stale       mood = "bmc-stale" // tells what was so a while ago
	liar        mood = "bmc-liar"  // says Off about a host that is on
	restarts    mood = "bmc-restarts"
	stranger    mood = "bmc-stranger" // another machine answers
	slow        mood = "bmc-slow"
	busy        mood = "bmc-busy"
)

// moods are the common ones; that of a liar is rare.
var moods = []mood{hangs, hangs, refuses, barsAccount, deaf, deaf, late, late, stale, stale, restarts, restarts, stranger, slow, slow, busy}

// bmcState is one BMC. Guarded by the world's mutex.
type bmcState struct {
	h     *host
	mood  mood
	until time.Time
	boot  int       // changes with each restart of the BMC: sessions end
	upAt  time.Time // it answers nothing before
	illAt time.Time // when it was last not as it should be
}

func (b *bmcState) heal() { b.mood = wellBehaved }

// trouble spoils the BMC, by its dice.
func (b *bmcState) trouble(now time.Time) {
	w := b.h.w
	if b.mood != wellBehaved && now.After(b.until) {
		b.mood = wellBehaved
	}
	if !w.chance(w.plan.BMCs) {
		return
	}
	b.mood = w.plan.Moods[w.rng.IntN(len(w.plan.Moods))]
	b.until = now.Add(between(w.rng, 10*time.Second, 6*time.Minute))
	if b.mood == restarts {
		b.restart(now)
	}
	w.fault(string(b.mood), b.h.name, "until %s", b.until.Sub(w.began).Round(time.Second))
}

func (b *bmcState) restart(now time.Time) {
	b.boot++
	b.upAt = now.Add(between(b.h.rng, 5*time.Second, 40*time.Second))
}

// says is what the BMC tells about the host, and whether it is the truth.
func (b *bmcState) says(now time.Time) (s bmc.PowerState, true_ bool) {
	on := b.h.on
	switch b.mood {
	case liar:
		on = false
	case stale:
		if now.Sub(b.h.onSince) < 6*time.Second {
			on = !on
		}
	}
	return map[bool]bmc.PowerState{true: bmc.On, false: bmc.Off}[on], on == b.h.on
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

func (l *link) mood() mood {
	if l.outlet != nil {
		return l.outlet.mood
	}
	return l.h.bmc.mood
}

// Read implements bmc.Power.
func (l *link) Read(ctx context.Context) (bmc.Reading, error) {
	w, began := l.h.w, time.Now()
	w.do(func() { l.inc.active[l.h.name] = began })
	if err := l.arrive(ctx, "read power state"); err != nil {
		w.do(func() { l.inc.power(l).broken() })
		return bmc.Reading{}, err
	}
	var r bmc.Reading
	var honest bool
	w.do(func() {
		r.Session = l.session
		if l.outlet != nil {
			r.State, honest = l.outlet.says()
			return
		}
		r.State, honest = l.h.bmc.says(time.Now())
		r.Identity = bmc.Identity{UUID: l.h.uuid}
		if l.h.bmc.mood == stranger {
			r.Identity.UUID = "4c4c4544-0042-3510-8054-b4c04f4dffff"
		}
	})
	if err := l.back(ctx, "read power state", bmc.SentNo); err != nil {
		w.do(func() { l.inc.power(l).broken() })
		return bmc.Reading{}, err
	}
	r.At = time.Now()
	w.do(func() {
		l.inc.power(l).read(began, r, honest) // as it was told, whatever a defect makes of it
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
		w.note(l.h.name, "%s: %s to %s", l.inc, op, l.name())
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

// arrive brings a request to the device, over a session.
func (l *link) arrive(ctx context.Context, op string) error {
	w := l.h.w
	if err := l.inc.call(ctx, op); err != nil {
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, err)
	}
	var m mood
	var silent bool
	w.do(func() {
		m = l.mood()
		silent = l.outlet == nil && (!l.h.supplied() || time.Now().Before(l.h.bmc.upAt)) || w.dice.Float64() < w.lost()/4
	})
	switch {
	case m == hangs || silent:
		<-ctx.Done()
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, ctx.Err())
	case m == refuses:
		return l.fail(op, bmc.KindRefused, bmc.SentNo, errors.New("connection refused"))
	case m == barsAccount, !l.allowed():
		return l.fail(op, bmc.KindAuth, bmc.SentNo, errors.New("the account is refused"))
	case m == busy:
		return l.fail(op, bmc.KindBusy, bmc.SentNo, errors.New("come back later"))
	}
	if err := sleep(ctx, l.latency(m)); err != nil {
		return l.fail(op, bmc.KindUnreachable, bmc.SentNo, err)
	}
	w.do(func() {
		if l.session == 0 || l.boot != l.h.bmc.boot && l.outlet == nil {
			w.sessions++
			l.session, l.boot = w.sessions, l.h.bmc.boot
		}
	})
	return nil
}

// back brings the answer, or loses it.
func (l *link) back(ctx context.Context, op string, sent bmc.Sent) error {
	var m mood
	var lost bool
	l.h.w.do(func() {
		m = l.mood()
		if lost = l.h.w.dice.Float64() < l.h.w.lost()/4; lost {
			l.h.w.fault("bmc-answer-lost", l.h.name, "%s", op)
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

// allowed says whether the device takes the account.
func (l *link) allowed() bool {
	return l.outlet != nil || l.account.Reveal() == l.h.password().Reveal()
}

func (l *link) latency(m mood) time.Duration {
	if m == slow {
		return between(l.rng, 500*time.Millisecond, 3*time.Second)
	}
	return between(l.rng, 5*time.Millisecond, 60*time.Millisecond)
}

// obey does what the device makes of a command.
func (l *link) obey(c bmc.Command) {
	on := c == bmc.CommandOn
	if l.outlet != nil {
		l.outlet.obey(on)
		return
	}
	b := &l.h.bmc
	switch {
	case b.mood == deaf, b.mood == liar && !on:
	case b.mood == stranger: // its command goes to another machine
	case b.mood == late && on != l.h.on:
		l.h.later, l.h.laterTo, l.h.laterAt = true, on, time.Now().Add(between(l.rng, 2*time.Second, 12*time.Second))
	default:
		l.h.power(on, "BMC")
	}
}

func (l *link) fail(op string, k bmc.Kind, sent bmc.Sent, err error) error {
	if l.h.w.defect.TellsPasswords {
		err = fmt.Errorf("%s: %w", l.account.Reveal(), err)
	}
	return &bmc.Error{Kind: k, Op: op, Addr: l.h.name, Sent: sent, Err: err}
}

func (h *host) index() int {
	for i, o := range h.w.hosts {
		if o == h {
			return i
		}
	}
	return len(h.w.hosts)
}

// ownAddress is the address of the machine that a fenced runs on, if any.
func (h *host) ownAddress() netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", h.index()+1))
}
