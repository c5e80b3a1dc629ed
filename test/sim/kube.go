package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/test/fake"
)

// kube is the uncached reads and the writes of one fenced; it implements
// engine.Kube. Answers are true at the time of the read. They may be lost,
// incomplete or late.
type kube struct{ inc *incarnation }

// requestTimeout is for one read, writeTimeout for one write.
const (
	requestTimeout = 5 * time.Second
	writeTimeout   = 35 * time.Second
)

var (
	errLost      = errors.New("the API server did not answer")
	errForbidden = errors.New("the API server forbids it")
)

// request delivers a request to the API server.
func (k kube) request(ctx context.Context, what string) error {
	if err := k.inc.call(ctx, what); err != nil {
		return err
	}
	w := k.inc.i.w
	var cut, forbidden, lost bool
	var wait, silence time.Duration
	w.do(func() {
		cut, forbidden = !k.inc.reaches(), time.Now().Before(k.inc.i.forbidden)
		if lost = w.dice.Float64() < w.lost(); lost {
			w.fault("api-request-lost", "", "%s of %s", what, k.inc)
		}
		wait, silence = between(w.dice, 3*time.Millisecond, 50*time.Millisecond), between(k.inc.rng, time.Millisecond, requestTimeout)
	})
	switch {
	case cut && !forbidden, lost:
		_ = sleep(ctx, silence)
		return errLost
	case forbidden:
		return errForbidden
	}
	return sleep(ctx, wait)
}

func (k kube) answer(ctx context.Context, what string) error {
	w := k.inc.i.w
	var lost bool
	wait := time.Duration(0)
	w.do(func() {
		if lost = w.dice.Float64() < w.lost(); lost {
			w.fault("api-answer-lost", "", "%s of %s", what, k.inc)
		}
		if w.dice.Float64() < w.slow() {
			wait = between(w.dice, 500*time.Millisecond, 4*time.Second)
			w.fault("api-answer-slow", "", "")
		}
	})
	if lost {
		_ = sleep(ctx, requestTimeout)
		return errLost
	}
	if err := sleep(ctx, wait); err != nil {
		return errLost
	}
	return k.inc.call(ctx, what+" answered")
}

// exchange is one request that is carried out, and its answer. Either may be lost.
func (k kube) exchange(ctx context.Context, what string, f func(s *fake.State) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, what); err != nil {
		return err
	}
	k.inc.i.w.do(func() { err = f(k.inc.i.w.api) })
	if lost := k.answer(ctx, what); lost != nil {
		return lost
	}
	return err
}

// Look implements engine.Kube.
func (k kube) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w := k.inc.i.w
	began := time.Now()
	w.do(func() { k.inc.active[r.Target.Node] = began })
	err := k.request(ctx, "look")
	var f run.Fresh
	if err == nil {
		w.do(func() { f = k.inc.look(r, backups) })
		err = k.answer(ctx, "look")
	}
	if err != nil {
		f = run.Fresh{Err: err}
		if errors.Is(err, errForbidden) {
			f.Observation.API = remediate.APIForbidden
		}
		return f
	}
	w.do(func() {
		if w.dice.Float64() < w.lost() {
			w.fault("api-part-lost", "", "")
			f.Observation.Lease, f.Lease, f.Err, f.Observation.API = remediate.Lease{}, policy.Lease{}, errLost, remediate.APIUnreachable
		}
		if r.Step == remediate.DeleteNode {
			w.touchNode(r.Target.Node)
		}
		w.looked(k.inc, r, f, began) // the truth, before a Defect changes it
		w.defect.looked(&f, r)
	})
	return f
}

// look is the current state, with a clock that may be ahead. w.mu is held.
func (c *incarnation) look(r remediate.Run, backups [][]byte) run.Fresh {
	f, ahead := c.i.w.api.Look(r, backups), c.i.clock.skew
	f.Observation.Lease.RenewTime, f.Lease.RenewTime = f.Observation.Lease.RenewTime.Add(ahead), f.Lease.RenewTime.Add(ahead)
	if f.Node != nil {
		f.Node, _ = dated(f.Node, ahead).(*policy.Node)
	}
	return f
}

// touchNode simulates a controller that writes on a Node just after it was read.
// w.mu is held.
func (w *World) touchNode(name string) {
	if w.api.Nodes[name] == nil || w.calm || w.dice.IntN(10) > 0 {
		return
	}
	w.api.ChangeNode(name, func(*fake.Node) {})
	w.fault("node-changed", name, "by another controller")
}

// Act implements engine.Kube.
func (k kube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	return k.write(ctx, r, a, b, func(s *fake.State) error { return s.Act(r, a, backups, b) })
}

// Restore implements engine.Kube.
func (k kube) Restore(ctx context.Context, r remediate.Run, backups [][]byte) (readBack []string, err error) {
	err = k.write(ctx, r, remediate.RestoreTargetNode, remediate.Backup{}, func(s *fake.State) error {
		k.inc.i.w.auditRestore(k.inc, r, backups)
		keys, err := s.Restore(r, backups)
		readBack = keys
		return err
	})
	if err != nil { // the answer may be lost
		return nil, err
	}
	return readBack, nil
}

// write does one write of a run. Its request and its answer may be late or lost.
func (k kube) write(ctx context.Context, r remediate.Run, a remediate.Action, b remediate.Backup, write func(*fake.State) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w := k.inc.i.w
	w.do(func() {
		w.note(r.Target.Node, "%s: %s", k.inc, a)
		w.auditAction(k.inc, r, a, b)
	})
	if err := k.request(ctx, string(a)); err != nil {
		return err
	}
	if err := k.admit(ctx, string(a)); err != nil {
		return err
	}
	var err error
	w.do(func() {
		w.auditWrite(k.inc, r, a, b)
		err = write(w.api)
	})
	if lost := k.answer(ctx, string(a)); lost != nil {
		return lost
	}
	return err
}

// LockNode implements engine.Kube.
func (k kube) LockNode(ctx context.Context, r remediate.Run) (binds time.Duration, foreign string, err error) {
	w := k.inc.i.w
	if !w.plan.Medik8s { // there is nothing to take
		return 0, "", k.inc.call(ctx, "lock")
	}
	err = k.exchange(ctx, "lock", func(s *fake.State) error {
		held := s.NodeLocks[r.Target.Node].Holder == s.LocksAs
		if w.defect.TakesNoLocks || w.defect.RenewsNoLocks && held {
			binds = fake.LockDuration
			return nil
		}
		binds, foreign = s.LockNode(r)
		return nil
	})
	if err != nil {
		return 0, "", err
	}
	return binds, foreign, nil
}

// UnlockNode implements engine.Kube.
func (k kube) UnlockNode(ctx context.Context, r remediate.Run) error {
	return k.exchange(ctx, "unlock", func(s *fake.State) error { s.UnlockNode(r); return nil })
}

// Backup implements engine.Kube.
func (k kube) Backup(ctx context.Context, t remediate.Target) (data []byte, b remediate.Backup, err error) {
	err = k.exchange(ctx, "backup", func(s *fake.State) (err error) {
		data, b, err = s.Backup(t)
		return err
	})
	if err != nil {
		return nil, remediate.Backup{}, err
	}
	return data, b, nil
}

// Credentials implements engine.Kube.
func (k kube) Credentials(ctx context.Context, _, name string) (user string, password bmc.Secret, err error) {
	err = k.exchange(ctx, "credentials", func(*fake.State) error {
		if h := k.inc.i.w.hostOf(strings.TrimPrefix(name, "bmc-")); h != nil {
			password = h.password()
		}
		return nil
	})
	return "root", password, err
}

// admit is a webhook that may be dead. The API server waits for it, and then
// continues without it. It drops a write whose client is gone.
func (k kube) admit(ctx context.Context, what string) error {
	w := k.inc.i.w
	var wait time.Duration
	w.do(func() {
		if w.dice.Float64() < w.slow() {
			wait = between(w.dice, time.Second, 30*time.Second)
			w.fault("webhook-dead", "", "%s of %s: for %s", what, k.inc, wait)
		}
	})
	if w.defect.CarriesOutLate {
		ctx = w.ctx
	}
	if err := sleep(ctx, wait); err != nil {
		return errLost
	}
	return nil
}

// Announce implements engine.Kube.
func (k kube) Announce(ctx context.Context, a lead.Announcement) (binds time.Duration, foreign string, err error) {
	err = k.exchange(ctx, "announce", func(s *fake.State) error {
		binds, foreign = s.Announce(k.inc, a)
		return nil
	})
	return binds, foreign, err
}

// Holder implements engine.Kube.
func (k kube) Holder(ctx context.Context, a lead.Announcement) (foreign string, err error) {
	err = k.exchange(ctx, "holder", func(s *fake.State) error {
		foreign = s.Holder(k.inc, a)
		return nil
	})
	return foreign, err
}

// tickStrangers lets other remediators, and another installation of fenced, hold
// their Leases for a while.
func (w *World) tickStrangers(now time.Time) {
	a := w.api
	if now.Before(w.visitTo) && (a.Fenced.By == nil || time.Since(a.Fenced.Renewed) > fake.LeaseDuration) {
		a.Fenced = fake.FencedLease{Held: lead.Announcement{Instance: "stranger", StoreID: "another"}, Renewed: now}
	}
	if now.After(w.rivalTo) {
		a.Contested, a.Contender = remediate.No, ""
	}
	if w.plan.Medik8s {
		w.tickMedik8s(now)
	}
	if w.calm {
		return
	}
	if w.chance(w.plan.Outages / 2) {
		a.Contested, a.Contender = remediate.Yes, "another remediator"
		w.rivalTo = now.Add(between(w.rng, 20*time.Second, 4*time.Minute))
		w.fault("rival", "", "until %s", w.rivalTo.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages / 4) {
		w.visitTo = now.Add(between(w.rng, time.Minute, 4*time.Minute))
		w.fault("second-installation", "", "until %s", w.visitTo.Sub(w.began).Round(time.Second))
	}
}

// nodeHealthCheck is medik8s as the holder of a Lease on a Node.
const nodeHealthCheck = "NodeHealthCheck-workers"

// tickMedik8s lets a stand-in for medik8s take the Lease on a Node that nobody holds,
// and give it back after a while.
func (w *World) tickMedik8s(now time.Time) {
	locks := w.api.NodeLocks
	for node, l := range locks {
		if l.Holder == nodeHealthCheck && (now.After(w.medik8sTo) || w.calm) {
			delete(locks, node)
		}
	}
	if w.calm || !w.chance(w.plan.Outages*4) {
		return
	}
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if l, held := locks[h.Name]; w.api.Nodes[h.Name] == nil || held && !l.Expired() {
		return
	}
	locks[h.Name] = fake.NodeLock{Holder: nodeHealthCheck, Renewed: now}
	w.medik8sTo = now.Add(between(w.rng, 20*time.Second, 4*time.Minute))
	w.fault("medik8s", h.Name, "has the Node until %s", w.medik8sTo.Sub(w.began).Round(time.Second))
}

// view is the cached view of one fenced; it implements admit.Watch. It is late,
// sometimes stuck, and dead while the API server cannot be reached. Guarded by
// the world's mutex.
type view struct {
	inc    *incarnation
	signal chan struct{}
	pos    int // in the history
	synced bool
	begun  time.Time
	proven time.Time // when it was last as new as the API server
	since  time.Time // of the end of the last outage
	lag    time.Duration
	stuck  time.Time     // until then
	dated  time.Duration // skew of the times in its objects
}

// outageAfter is the length of an outage after which a quiet period
// starts. // I16
const outageAfter = time.Minute

func newView(inc *incarnation) *view {
	return &view{inc: inc, signal: make(chan struct{}, 1), begun: time.Now().Add(time.Second), proven: time.Now()}
}

// Changed implements admit.Watch.
func (v *view) Changed() <-chan struct{} { return v.signal }

// Changes implements admit.Watch.
func (v *view) Changes() []policy.Change {
	w := v.inc.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !v.synced || v.inc.dead {
		return nil
	}
	begun := v.pos
	for v.pos < len(w.api.History) && v.visible(w.api.History[v.pos]) {
		v.pos++
	}
	news := w.api.History[begun:v.pos]
	switch skew := v.inc.i.clock.skew; {
	case begun == 0:
		news, v.dated = fake.Listed(w.api.History[:v.pos]), skew
	case v.dated != skew: // a new list tells also what has gone
		gone := slices.DeleteFunc(slices.Clone(news), func(c fake.Change) bool { return c.Value != nil })
		news, v.dated = append(gone, fake.Listed(w.api.History[:v.pos])...), skew
	}
	var list []policy.Change
	for _, each := range news {
		c := each.Change
		c.Value = dated(c.Value, v.inc.i.clock.skew)
		v.inc.knows.take(w, c, time.Now())
		list = append(list, c)
	}
	return list
}

// dated returns an object of an API server whose clock is ahead by that much.
func dated(object any, ahead time.Duration) any {
	switch o := object.(type) {
	case *policy.Node:
		c := *o
		conditions := slices.Collect(o.Conditions.All())
		for i := range conditions {
			conditions[i].LastTransition = conditions[i].LastTransition.Add(ahead)
		}
		c.Conditions = policy.ConditionsOf(conditions)
		return &c
	case *policy.Request:
		c := *o
		for _, at := range []*time.Time{&c.Created, &c.TimedOut, &c.HealthyDelaySince} {
			if !at.IsZero() {
				*at = at.Add(ahead)
			}
		}
		return &c
	}
	return object
}

func (v *view) visible(c fake.Change) bool {
	return v.inc.reaches() && !time.Now().Before(v.stuck) && time.Since(c.At) >= v.lag+v.inc.i.w.defect.LateViews
}

// View implements admit.Watch.
func (v *view) View() admit.View {
	w := v.inc.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	return admit.View{Synced: v.synced, Age: time.Since(v.proven), Since: v.since, Skew: v.inc.i.clock.skew, SkewKnown: v.synced}
}

// tick simulates one second of the watch.
func (v *view) tick(now time.Time) {
	w := v.inc.i.w
	if !v.inc.reaches() || now.Before(v.begun) {
		return
	}
	if !v.synced {
		v.synced = true
		if now.Sub(v.begun) > outageAfter { // the first list was late
			v.since = now
		}
	}
	if !now.Before(v.stuck) {
		if now.Sub(v.proven) > outageAfter {
			v.since = now
		}
		v.proven = now
		v.lag = time.Duration(w.rng.IntN(1500)) * time.Millisecond
	}
	if !w.calm && w.chance(w.plan.Outages*2) {
		v.stuck = now.Add(between(w.rng, 5*time.Second, 50*time.Second))
		w.fault("watch-stuck", "", "%s until %s", v.inc, v.stuck.Sub(w.began).Round(time.Second))
	}
	if v.pos < len(w.api.History) && v.visible(w.api.History[v.pos]) || v.dated != v.inc.i.clock.skew {
		select {
		case v.signal <- struct{}{}:
		default:
		}
	}
}
