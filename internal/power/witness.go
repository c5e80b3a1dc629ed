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
	// witnessWait is how long an Off waits for witnesses that are being read. Most
	// of them are dead by then, and the reading must not become too old.
	witnessWait = 2 * time.Second
	// A witness has more time than the devices of the level in use: a host may run
	// although its BMC answers slowly. // I1
	witnessTime      = 10 * time.Second
	witnessTimeLower = 20 * time.Second // programs of others start, log in and wait
	// witnessValidity is how long, in addition to two reads, the last answer counts
	// while the next read runs: longer than a Lease must be unchanged for a proof.
	witnessValidity = 20 * time.Second
)

// witnessVerdict is what the lower levels read while the level in use reads Off.
type witnessVerdict uint8

const (
	noAnswerYet   witnessVerdict = iota // not read yet
	doesNotReadOn                       // read, and it did not read On
	readsOn
)

// witnesses are the devices of lower levels at one service. They are only read,
// in the background, one after the other, each with its full timeout. There is at
// most one goroutine, for one round.
type witnesses struct {
	list []*witness
	// shared: the level in use also has a device at this service, which must get
	// its turn. Then no witness is read again while its last answer counts.
	shared bool

	cancel context.CancelFunc // ends the last round
	done   chan struct{}      // closed at the end of the round; nil before the first

	mu sync.Mutex // guards the answers in list
}

// witness is one device of a lower level.
type witness struct {
	power bmc.Power
	name  string
	time  time.Duration // timeout of one read

	asked  time.Time // start of the read whose answer counts; zero before the first
	on     bool      // the answer
	lastOn time.Time // start of the last read that returned On; zero if none did
	failed int       // consecutive failed reads
	// refused: the device refused the account; another try could lock it.
	refused bool
}

func newWitness(d bmc.Device, p bmc.Power) *witness {
	w := &witness{power: p, name: d.String(), time: witnessTime}
	if !d.IsNative() {
		w.time = witnessTimeLower
	}
	return w
}

// validFor is how long an answer of these devices counts.
func (ws *witnesses) validFor() time.Duration {
	d := witnessValidity
	for _, w := range ws.list {
		d += 2 * w.time
	}
	return d
}

// verdict returns the result of all devices, from reads that started after since,
// and the name of the device that keeps the level from reading Off.
func (ws *witnesses) verdict(since, now time.Time) (witnessVerdict, string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	oldest := now.Add(-ws.validFor())
	if since.After(oldest) {
		oldest = since
	}
	waiting := ""
	for _, w := range ws.list {
		switch {
		case w.refused && w.readOnSince(since): // a device that refuses is not dead
			return readsOn, w.name
		case w.refused:
		case w.asked.Before(oldest):
			waiting = w.name
		case w.on:
			return readsOn, w.name
		}
	}
	if waiting != "" {
		return noAnswerYet, waiting
	}
	return doesNotReadOn, ""
}

// readOnSince reports whether a read that started at a time or later returned On.
func (w *witness) readOnSince(t time.Time) bool { return !w.lastOn.IsZero() && !w.lastOn.Before(t) }

// heardOn names a device that has read On since a time, whatever became of it after that; "" if none has.
func (ws *witnesses) heardOn(since time.Time) string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.IndexFunc(ws.list, func(w *witness) bool { return w.readOnSince(since) }); i >= 0 {
		return ws.list[i].name
	}
	return ""
}

// RefusedWitness reports whether a device of a lower level has refused its account, and is asked no more.
func (l *levelPower) RefusedWitness() bool {
	return slices.ContainsFunc(l.witnesses, func(ws *witnesses) bool {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return slices.ContainsFunc(ws.list, func(w *witness) bool { return w.refused })
	})
}

// startRound starts a round, unless one is in progress or no answer is needed.
func (ws *witnesses) startRound(ctx context.Context, since time.Time) {
	if !ws.isIdle() {
		return
	}
	if v, _ := ws.verdict(since, time.Now()); ws.shared && v == doesNotReadOn {
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

// isIdle reports whether no round is in progress.
func (ws *witnesses) isIdle() bool {
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

// cancelRound cancels the round in progress; its results would not count.
func (ws *witnesses) cancelRound() {
	if ws.cancel != nil {
		ws.cancel()
	}
}

// round reads each device once. Only rounds change the answers.
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
		if ctx.Err() == nil { // otherwise the read failed only because it was cancelled
			ws.recordAnswer(w, asked, r, err, whole)
		}
	}
}

// recordAnswer records one answer. A read that did not get its turn is no answer.
// A single failure may be chance. A failure that took the whole timeout, or the
// second in a row, is what a device without mains power looks like.
func (ws *witnesses) recordAnswer(w *witness, asked time.Time, r bmc.Reading, err error, whole bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, errNotAsked):
	case bmc.KindOf(err).RefusesAccount():
		w.refused = true
	case err == nil:
		if w.asked, w.on, w.failed = asked, r.State == bmc.On, 0; w.on {
			w.lastOn = asked
		}
	default:
		if w.failed++; whole || w.failed > 1 {
			w.asked, w.on = asked, false
		}
	}
}

// close ends the round in progress, and then the sessions. If a read does not
// return as it must, the sessions end when it does.
func (ws *witnesses) close(ctx context.Context) error {
	if ws.done == nil {
		return ws.closeAll(ctx)
	}
	ws.cancelRound()
	timer := time.NewTimer(CloseTimeout)
	defer timer.Stop()
	select {
	case <-ws.done:
		return ws.closeAll(ctx)
	case <-ctx.Done():
	case <-timer.C:
	}
	go func() {
		<-ws.done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		_ = ws.closeAll(ctx) // nobody waits for the result
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

// consultWitnesses applies the answers of the witnesses to a level's Off. It
// waits for them for witnessWait from began on. Until each has answered, the
// state is Unknown. // I1
func (l *levelPower) consultWitnesses(ctx context.Context, began time.Time, r bmc.Reading) bmc.Reading {
	timer := time.NewTimer(time.Until(began.Add(witnessWait)))
	defer timer.Stop()
	for _, ws := range l.witnesses {
		if !l.await(ctx, ws, timer.C) {
			break
		}
	}
	now, worst, who := time.Now(), doesNotReadOn, ""
	for _, ws := range l.witnesses {
		switch v, name := ws.verdict(l.since, now); {
		case v == readsOn, v == noAnswerYet && worst == doesNotReadOn:
			worst, who = v, name
		}
	}
	switch worst {
	case readsOn:
		r.State, r.Contradicted, r.Raw = bmc.On, true, bmc.Printable(who+" reads On", maxRaw)
	case noAnswerYet:
		r.State, r.Unwitnessed, r.Raw = bmc.Unknown, true, bmc.Printable("waiting for "+who, maxRaw)
	}
	return r
}

// LowerLevelOn names a device of a lower level that read On, or one of this level beside
// one that refused the account, in a read that started after since and after the level's
// last command; "" if none did. It also works while the level itself cannot be read. // I26
func (l *levelPower) LowerLevelOn(since time.Time) string {
	if l.since.After(since) {
		since = l.since
	}
	if l.heardAt.After(since) {
		return l.heardOn
	}
	for _, ws := range l.witnesses {
		if name := ws.heardOn(since); name != "" {
			return name
		}
	}
	return ""
}

// await waits for the round of ws in progress; false if the time is over.
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

func (l *levelPower) addWitness(d bmc.Device, p bmc.Power, services map[string]*witnesses, own []bmc.Device) {
	s := d.Service()
	ws := services[s]
	if ws == nil {
		ws = &witnesses{shared: slices.ContainsFunc(own, func(o bmc.Device) bool { return o.Service() == s })}
		services[s] = ws
		l.witnesses = append(l.witnesses, ws)
	}
	ws.list = append(ws.list, newWitness(d, p))
}
