package power

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	// witnessWait is how long an Off waits for witnesses that are being asked: they
	// are mostly dead by then, and what was read must not grow old meanwhile.
	witnessWait = 2 * time.Second
	// A witness itself has more time than the level in use gives its own devices: a
	// host runs, however slowly its BMC says so. // I1
	witnessTime      = 10 * time.Second
	witnessTimeLower = 20 * time.Second // programs of others start, log in and wait
	// witnessRest is how long, beyond two reads, the last answer counts while the
	// next one is to come: longer than a Lease must stand still for a proof.
	witnessRest = 20 * time.Second
)

// verdict is what lower levels say to an Off of the level in use.
type verdict uint8

const (
	unheard verdict = iota // nothing yet, so nothing is known
	silent                 // asked, and it did not say On
	readsOn
)

// witnesses are the devices of lower levels at one service. They are only read, in
// the background, each with its whole time and one after the other, as one service
// answers. The goroutine of one round is the most that there is.
type witnesses struct {
	list []*witness
	// shared: the level in use has a device at this service, too, which must have
	// its turn. Then nobody is asked again while the last answer counts.
	shared bool

	cancel context.CancelFunc // ends the last round
	done   chan struct{}      // closed when that has ended; nil before the first

	mu sync.Mutex // of what the list's devices have said
}

// witness is one device of a lower level.
type witness struct {
	power bmc.Power
	name  string
	time  time.Duration // of one read

	asked  time.Time // when the read began that counts; zero before the first
	on     bool      // what it said
	failed int       // reads in a row
	// refused: it does not take the account; asking again would lock that.
	refused bool
}

func newWitness(d bmc.Device, p bmc.Power) *witness {
	w := &witness{power: p, name: d.String(), time: witnessTime}
	if d.Assurance() != bmc.AssuranceStrict {
		w.time = witnessTimeLower
	}
	return w
}

// counts is how long what a device here said does.
func (ws *witnesses) counts() time.Duration {
	d := witnessRest
	for _, w := range ws.list {
		d += 2 * w.time
	}
	return d
}

// says is what all devices here say by now, by reads that began after since, and
// who it is that keeps the level from reading Off.
func (ws *witnesses) says(since, now time.Time) (verdict, string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	oldest := now.Add(-ws.counts())
	if since.After(oldest) {
		oldest = since
	}
	waiting := ""
	for _, w := range ws.list {
		switch {
		case w.refused:
		case w.asked.Before(oldest):
			waiting = w.name
		case w.on:
			return readsOn, w.name
		}
	}
	if waiting != "" {
		return unheard, waiting
	}
	return silent, ""
}

// ask begins a round, unless one is under way or there is nobody to ask.
func (ws *witnesses) ask(ctx context.Context, since time.Time) {
	if !ws.ended() {
		return
	}
	if v, _ := ws.says(since, time.Now()); ws.shared && v == silent {
		return
	}
	ctx, ws.cancel = context.WithCancel(context.WithoutCancel(ctx)) // it outlives the level's Read
	done := make(chan struct{})
	ws.done = done
	go func() {
		defer close(done)
		ws.round(ctx)
	}()
}

// ended says whether no round is under way.
func (ws *witnesses) ended() bool {
	if ws.done == nil {
		return true
	}
	select {
	case <-ws.done:
		return true
	default:
		return false
	}
}

// drop cancels the round under way: what it finds would not count.
func (ws *witnesses) drop() {
	if ws.cancel != nil {
		ws.cancel()
	}
}

// round asks each device once. Only rounds write what was said.
func (ws *witnesses) round(ctx context.Context) {
	for _, w := range ws.list {
		if w.refused || ctx.Err() != nil {
			continue
		}
		try, cancel := context.WithTimeout(ctx, w.time)
		asked := time.Now()
		r, err := w.power.Read(try)
		whole := try.Err() != nil
		cancel()
		if ctx.Err() == nil { // else the answer is our own impatience
			ws.hear(w, asked, r, err, whole)
		}
	}
}

// hear notes one answer. Who was not asked has not answered. One failure may be
// chance; one that took the whole time, or the second in a row, is what a cut of its
// mains looks like.
func (ws *witnesses) hear(w *witness, asked time.Time, r bmc.Reading, err error, whole bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, errNotAsked):
	case bmc.KindOf(err).RefusesAccount():
		w.refused = true
	case err == nil:
		w.asked, w.on, w.failed = asked, r.State == bmc.On, 0
	default:
		if w.failed++; whole || w.failed > 1 {
			w.asked, w.on = asked, false
		}
	}
}

// close ends the round under way, and then the sessions. A device whose read does
// not return, as it must, is closed when it has.
func (ws *witnesses) close(ctx context.Context) error {
	if ws.done == nil {
		return ws.closeAll(ctx)
	}
	ws.drop()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-ws.done:
		return ws.closeAll(ctx)
	case <-ctx.Done():
	case <-timer.C:
	}
	go func() {
		<-ws.done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = ws.closeAll(ctx) // nobody waits for it any more
	}()
	return nil
}

func (ws *witnesses) closeAll(ctx context.Context) error {
	errs := make([]error, 0, len(ws.list))
	for _, w := range ws.list {
		errs = append(errs, w.power.Close(ctx))
	}
	return errors.Join(errs...)
}

// hear gives a level's Off what its witnesses say to that: they are waited for a
// little, from began on, and until each of them has answered nothing is known. // I1
func (l *levelPower) hear(ctx context.Context, began time.Time, r bmc.Reading) bmc.Reading {
	timer := time.NewTimer(time.Until(began.Add(witnessWait)))
	defer timer.Stop()
	for _, ws := range l.witnesses {
		if !l.await(ctx, ws, timer.C) {
			break
		}
	}
	now, worst, who := time.Now(), silent, ""
	for _, ws := range l.witnesses {
		switch v, name := ws.says(l.since, now); {
		case v == readsOn, v == unheard && worst == silent:
			worst, who = v, name
		}
	}
	switch worst {
	case readsOn:
		r.State, r.Contradicted, r.Raw = bmc.On, true, bmc.Printable(who+" reads On", maxRaw)
	case unheard:
		r.State, r.Unwitnessed, r.Raw = bmc.Unknown, true, bmc.Printable("waiting for "+who, maxRaw)
	}
	return r
}

// AlsoOn names a device of a lower level that was last heard to read On, by a question
// since then and since the level's last command; "" when none was. A level that cannot
// be read itself has no reading to tell that by. // I26
func (l *levelPower) AlsoOn(since time.Time) string {
	if l.since.After(since) {
		since = l.since
	}
	for _, ws := range l.witnesses {
		if v, name := ws.says(since, time.Now()); v == readsOn {
			return name
		}
	}
	return ""
}

// await waits for the round of ws that is under way; false when the time is over.
func (l *levelPower) await(ctx context.Context, ws *witnesses, over <-chan time.Time) bool {
	if ws.done == nil {
		return true
	}
	select {
	case <-ws.done:
		return true
	case <-ctx.Done():
	case <-over:
	}
	return false
}

// gather sorts the witnesses of lower levels by the service that answers for them.
func (l *levelPower) gather(d bmc.Device, p bmc.Power, services map[string]*witnesses, own []bmc.Device) {
	s := d.Service()
	ws := services[s]
	if ws == nil {
		ws = &witnesses{shared: slices.ContainsFunc(own, func(o bmc.Device) bool { return o.Service() == s })}
		services[s] = ws
		l.witnesses = append(l.witnesses, ws)
	}
	ws.list = append(ws.list, newWitness(d, p))
}
