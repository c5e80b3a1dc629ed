package sim

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
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

// answer delivers the answer.
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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "lock"); err != nil {
		return 0, "", err
	}
	w.do(func() {
		held := w.api.NodeLocks[r.Target.Node].Holder == w.api.LocksAs
		if w.defect.TakesNoLocks || w.defect.RenewsNoLocks && held {
			binds = fake.LockDuration
			return
		}
		binds, foreign, err = w.api.LockNode(r)
	})
	if lost := k.answer(ctx, "lock"); lost != nil {
		return 0, "", lost
	}
	return binds, foreign, err
}

// UnlockNode implements engine.Kube.
func (k kube) UnlockNode(ctx context.Context, r remediate.Run) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "unlock"); err != nil {
		return err
	}
	k.inc.i.w.do(func() { k.inc.i.w.api.UnlockNode(r) })
	return k.answer(ctx, "unlock")
}

// Backup implements engine.Kube.
func (k kube) Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "backup"); err != nil {
		return nil, remediate.Backup{}, err
	}
	var data []byte
	var b remediate.Backup
	var err error
	k.inc.i.w.do(func() { data, b, err = k.inc.i.w.api.Backup(t) })
	if lost := k.answer(ctx, "backup"); lost != nil {
		return nil, remediate.Backup{}, lost
	}
	return data, b, err
}

// Credentials implements engine.Kube.
func (k kube) Credentials(ctx context.Context, _, name string) (user string, password bmc.Secret, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "credentials"); err != nil {
		return "", bmc.Secret{}, err
	}
	k.inc.i.w.do(func() {
		if h := k.inc.i.w.hostOf(strings.TrimPrefix(name, "bmc-")); h != nil {
			password = h.password()
		}
	})
	return "root", password, k.answer(ctx, "credentials")
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
