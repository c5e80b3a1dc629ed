package bmctest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

const (
	fakePassword = "bmctest-right-pw"
	fakeUUID     = "4c4c4544-0042-4810-8056-b4c04f4d3132"
	otherUUID    = "4c4c4544-0042-4810-8056-b4c04f4d3133"
)

// fakeBMC is a BMC in memory, with its host and its network. Without a mutant it is
// an honest driver of an honest BMC.
type fakeBMC struct {
	mutant mutant

	mu       sync.Mutex
	on       bool
	uuid     string
	sessions map[uint64]bool
	serial   uint64
	logins   int
	requests int
	changed  chan struct{} // closed when a fault begins or ends

	ignoreOff, refuseSame, transitional, hung, bad, loseAnswer, cutBodies, endsSilently bool
	lateOff, backOn                                                                     time.Duration
}

// fakeWorld is a world with an honest BMC behind a driver with this fault.
func fakeWorld(m mutant) *World {
	b := &fakeBMC{mutant: m, on: true, uuid: fakeUUID, sessions: map[uint64]bool{}, changed: make(chan struct{})}
	flag := func(f *bool) func(bool) error {
		return func(v bool) error { return b.change(func() { *f = v }) }
	}
	length := func(f *time.Duration) func(time.Duration) error {
		return func(v time.Duration) error { return b.change(func() { *f = v }) }
	}
	return &World{
		Open: func(d bmc.Device) (bmc.Power, error) { return &fakePower{bmc: b, password: d.Password.Reveal()}, nil },
		Device: bmc.Device{
			Driver:   bmc.DriverIPMI,
			Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "fake", Port: 623},
			Username: "admin", Password: bmc.NewSecret(fakePassword),
		},
		UUID:     fakeUUID,
		On:       func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.on },
		SetPower: flag(&b.on),

		IgnoreOff: flag(&b.ignoreOff), RefuseSame: flag(&b.refuseSame), Transitional: flag(&b.transitional),
		LateOff: length(&b.lateOff), BackOn: length(&b.backOn),
		Hang: flag(&b.hung), HalfOpen: flag(&b.hung), Bad: flag(&b.bad), LoseAnswer: flag(&b.loseAnswer),
		CutBodies: flag(&b.cutBodies), CloseSilently: flag(&b.endsSilently),
		Restart:        func() error { return b.change(func() { clear(b.sessions) }) },
		Logins:         func() int { b.mu.Lock(); defer b.mu.Unlock(); return b.logins },
		Sessions:       b.open,
		CutLogins:      b.open,
		ChangeIdentity: func() error { return b.change(func() { clear(b.sessions); b.uuid = otherUUID }) },
	}
}

// open is how many sessions there are.
func (b *fakeBMC) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions)
}

// change changes the BMC, and wakes whoever waits for it.
func (b *fakeBMC) change(f func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// arrive carries one request to the BMC, which takes a while, for ever when it
// hangs, and is lost each third time in a bad network.
func (b *fakeBMC) arrive(ctx context.Context) error {
	for {
		b.mu.Lock()
		b.requests++
		hung, lost, changed := b.hung, b.bad && b.requests%3 == 0, b.changed
		b.mu.Unlock()
		wait := time.After(time.Millisecond)
		switch {
		case hung:
			wait = nil
		case lost && b.mutant == "a lost request is the end":
			return errors.New("no answer")
		case lost:
			wait = time.After(20 * time.Millisecond) // and sent again
		}
		select {
		case <-wait:
			if !lost {
				return ctx.Err()
			}
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errPassword = errors.New("wrong password")

// login opens a session.
func (b *fakeBMC) login(password string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logins++
	if password != fakePassword {
		return 0, errPassword
	}
	b.serial++
	b.sessions[b.serial] = true
	return b.serial, nil
}

// says is what the BMC tells about its host.
func (b *fakeBMC) says() (bmc.PowerState, string) {
	switch {
	case b.transitional:
		return bmc.Unknown, "PoweringOff"
	case b.on:
		return bmc.On, "On"
	}
	return bmc.Off, "Off"
}

var errSame = errors.New("the host is in that state already")

// control carries out a command, as far as the BMC does.
func (b *fakeBMC) control(c bmc.Command) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := c == bmc.CommandOn
	if b.mutant == "off is a toggle" {
		on = !b.on
	}
	switch {
	case b.refuseSame && on == b.on:
		return errSame
	case !on && b.ignoreOff:
	case !on && b.lateOff > 0:
		time.AfterFunc(b.lateOff, func() { _ = b.change(func() { b.on = false }) })
	default:
		b.on = on
		if !on && b.backOn > 0 {
			time.AfterFunc(b.backOn, func() { _ = b.change(func() { b.on = true }) })
		}
	}
	return nil
}

func fakeError(op string, k bmc.Kind, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: k, Op: op, Addr: "fake", Sent: sent, Err: fmt.Errorf("%w", err)}
}

// mutant is the one fault of a driver: a row of TestSuiteCatches.
type mutant string

type fakePower struct {
	bmc      *fakeBMC
	password string
	session  uint64
	broken   error
	closed   bool
	sentOff  bool
	cached   bmc.Reading
	identity string
}

// Read asks for the power state.
func (p *fakePower) Read(ctx context.Context) (bmc.Reading, error) {
	m := p.bmc.mutant
	if m == "a reading is given again" && time.Since(p.cached.At) < time.Hour {
		r := p.cached
		r.At = time.Now()
		return r, nil
	}
	if err := p.reach(ctx, "read power state"); err != nil {
		if m == "no answer is off" {
			return bmc.Reading{State: bmc.Off, At: time.Now()}, nil
		}
		return bmc.Reading{}, err
	}
	p.bmc.mu.Lock()
	defer p.bmc.mu.Unlock()
	state, raw := p.bmc.says()
	r := bmc.Reading{State: state, Raw: raw, At: time.Now(), Session: p.session, Identity: bmc.Identity{UUID: p.bmc.uuid}}
	return p.spoil(r)
}

// spoil is what a mutant makes of an honest reading.
func (p *fakePower) spoil(r bmc.Reading) (bmc.Reading, error) {
	m := p.bmc.mutant
	switch moving := r.State == bmc.Unknown; {
	case moving && m == "on its way is an error":
		return bmc.Reading{}, fakeError("read power state", bmc.KindProtocol, bmc.SentNo, errors.New(r.Raw))
	case moving && m == "on its way is off":
		r.State = bmc.Off
	case moving && m == "on its way without its words":
		r.Raw = ""
	}
	if m == "accepted is off" && p.sentOff {
		r.State = bmc.Off
	}
	if m == "a restart is not told" {
		r.Session = 1
	}
	if m == "each reading is a session" || m == "a connection is a session" && p.bmc.endsSilently {
		p.bmc.serial++
		r.Session = p.bmc.serial
	}
	if m == "a reading is older than told" {
		r.At = r.At.Add(-time.Second)
	}
	if m == "no identity" {
		r.Identity = bmc.Identity{}
	}
	if m == "endless raw text" {
		r.Raw = string(make([]byte, 1000))
	}
	if p.identity == "" {
		p.identity = r.Identity.UUID
	}
	if m == "the first identity for ever" {
		r.Identity.UUID, r.Session = p.identity, 1
	}
	p.cached = r
	return r, nil
}

// Send gives an absolute command.
func (p *fakePower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	m, op := p.bmc.mutant, "send "+c.String()
	if c != bmc.CommandOff && c != bmc.CommandOn && m != "anything is on" {
		return bmc.Receipt{}, fakeError(op, bmc.KindUnsupported, bmc.SentNo, errors.New("no command"))
	}
	if err := p.reach(ctx, op); err != nil {
		return bmc.Receipt{}, err
	}
	if err := bmc.Over(ctx, time.Now()); err != nil && m != "a process that was frozen goes on" {
		return bmc.Receipt{}, p.fail(op, bmc.KindUnreachable, bmc.SentNo, err)
	}
	err := p.bmc.control(c)
	p.bmc.mu.Lock()
	lost, cut := p.bmc.loseAnswer, p.bmc.cutBodies
	p.bmc.mu.Unlock()
	switch {
	case cut && m == "a status needs a body":
		return bmc.Receipt{}, p.fail(op, bmc.KindUnreachable, bmc.SentMaybe, io.ErrUnexpectedEOF)
	case lost:
		<-ctx.Done()
		sent := bmc.SentMaybe
		if m == "a lost answer is told as not sent" {
			sent = bmc.SentNo
		}
		return bmc.Receipt{}, p.fail(op, bmc.KindUnreachable, sent, ctx.Err())
	case err != nil && m == "already there fails":
		return bmc.Receipt{}, p.fail(op, bmc.KindProtocol, bmc.SentYes, err)
	}
	p.sentOff = c == bmc.CommandOff
	return bmc.Receipt{Already: err != nil && m != "already there is not told"}, nil
}

// reach brings a request to the BMC, over a session.
func (p *fakePower) reach(ctx context.Context, op string) error {
	m := p.bmc.mutant
	if p.broken != nil {
		return p.broken
	}
	if m == "ctx is not honoured" {
		ctx = context.WithoutCancel(ctx)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 6*time.Second)
		defer cancel()
	}
	err := p.bmc.arrive(ctx)
	if err == nil {
		err = p.logIn()
	} else if m == "a cut login leaves its session" {
		_, _ = p.bmc.login(p.password)
	}
	if err == nil {
		return nil
	}
	p.bmc.mu.Lock()
	mute := m == "a refused account is a dead BMC" || m == "a status needs a body" && p.bmc.cutBodies
	p.bmc.mu.Unlock()
	kind := bmc.KindUnreachable
	if errors.Is(err, errPassword) && !mute {
		kind = bmc.KindAuth
	}
	err = p.fail(op, kind, bmc.SentNo, err)
	if m == "one error is the end" || m == "a lost request is the end" {
		p.broken = err
	}
	return err
}

// logIn opens a session unless the BMC still knows the one there is.
func (p *fakePower) logIn() (err error) {
	m := p.bmc.mutant
	p.bmc.mu.Lock()
	known := p.bmc.sessions[p.session]
	p.bmc.mu.Unlock()
	switch {
	case m == "a lost session is the end" && p.session != 0 && !known:
		return errors.New("the session is gone")
	case known && m != "a session for each read":
		return nil
	}
	tries := 1
	if m == "a wrong password is tried on" {
		tries = 5
	}
	for range tries {
		if p.session, err = p.bmc.login(p.password); err == nil {
			return nil
		}
	}
	return err
}

func (p *fakePower) fail(op string, k bmc.Kind, sent bmc.Sent, err error) error {
	switch m := p.bmc.mutant; {
	case m == "errors have no type":
		return err
	case m == "the password is in the error":
		err = errors.New("login with " + p.password)
	}
	return fakeError(op, k, sent, err)
}

// Close ends the session on the BMC.
func (p *fakePower) Close(ctx context.Context) error {
	m := p.bmc.mutant
	if p.closed && m == "close is possible once" {
		return fakeError("close session", bmc.KindProtocol, bmc.SentNo, errors.New("closed twice"))
	}
	p.closed = true
	if m == "close tries the password" {
		_, _ = p.bmc.login(p.password)
	}
	p.bmc.mu.Lock()
	hung := p.bmc.hung
	p.bmc.mu.Unlock()
	if hung && m == "close waits for the BMC" {
		time.Sleep(7 * time.Second)
	}
	if m == "the session stays" || ctx.Err() != nil && m == "the session stays when ctx ended" {
		return nil
	}
	return p.bmc.change(func() { delete(p.bmc.sessions, p.session) })
}

func TestFakePassesTheSuite(t *testing.T) {
	honest := Driver{New: func(*testing.T) *World { return fakeWorld("") }}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runCase(t, c, honest) })
		})
	}
}

// record is a T that remembers whether the case failed.
type record struct {
	ctx    context.Context
	mu     sync.Mutex
	failed []string
}

func (r *record) Helper()                  {}
func (r *record) Context() context.Context { return r.ctx }
func (r *record) FailNow()                 { runtime.Goexit() }

func (r *record) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

// TestSuiteCatches: a driver with any of these faults does not pass, and the case
// that is for it says so.
func TestSuiteCatches(t *testing.T) {
	idle := map[string]bool{} // cases that catch nothing yet
	for _, c := range cases {
		idle[c.name] = true
	}
	for fault, by := range map[mutant][]string{
		"no answer is off":                  {"hang", "hang of an open session"},
		"accepted is off":                   {"accepted is no proof", "late off", "off, then on again"},
		"on its way is off":                 {"on its way is unknown"},
		"on its way is an error":            {"on its way is unknown"},
		"on its way without its words":      {"on its way is unknown"},
		"a restart is not told":             {"restart voids the proof"},
		"each reading is a session":         {"restart voids the proof", "off, proof, on"},
		"a reading is given again":          {"reads are exact"},
		"a reading is older than told":      {"reads are exact"},
		"no identity":                       {"reads are exact"},
		"the first identity for ever":       {"identity"},
		"endless raw text":                  {"reads are exact"},
		"off is a toggle":                   {"commands are absolute"},
		"anything is on":                    {"commands are absolute"},
		"already there fails":               {"already there is no failure"},
		"already there is not told":         {"already there is no failure"},
		"ctx is not honoured":               {"hang", "half-open connection"},
		"a refused account is a dead BMC":   {"wrong password"},
		"the password is in the error":      {"wrong password", "hang"},
		"errors have no type":               {"hang"},
		"a wrong password is tried on":      {"password tries"},
		"close tries the password":          {"password tries"},
		"a lost answer is told as not sent": {"lost answer"},
		"a process that was frozen goes on": {"time is over"},
		"one error is the end":              {"hang"},
		"a lost request is the end":         {"bad network"},
		"a lost session is the end":         {"restart in mid-command"},
		"a status needs a body":             {"status without a body", "refusal without a body"},
		"a connection is a session":         {"connections end without a word"},
		"the session stays":                 {"close leaves no session"},
		"the session stays when ctx ended":  {"close leaves no session"},
		"a cut login leaves its session":    {"cut logins leave no session"},
		"a session for each read":           {"close leaves no session", "many users"},
		"close is possible once":            {"close"},
		"close waits for the BMC":           {"close while the BMC hangs"},
	} {
		for _, name := range by {
			c := caseNamed(t, name)
			delete(idle, name)
			synctest.Test(t, func(t *testing.T) {
				r := &record{ctx: t.Context()}
				var wait sync.WaitGroup
				wait.Go(func() { // FailNow ends this goroutine
					d := Driver{Patience: 3 * time.Second, Slack: 4 * time.Second} // less than a mutant is late
					c.run(r, d.withDefaults(), fakeWorld(fault))
				})
				wait.Wait()
				assert.NotEmpty(t, r.failed, "%s: %q lets it pass", fault, name)
			})
		}
	}
	assert.Empty(t, idle, "a case that no fault fails proves nothing")
}

func caseNamed(t *testing.T, name string) suiteCase {
	for _, c := range cases {
		if c.name == name {
			return c
		}
	}
	require.Fail(t, "no such case", name)
	return suiteCase{}
}
