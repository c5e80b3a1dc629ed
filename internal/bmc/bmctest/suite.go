package bmctest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/must"
)

// Driver is a driver under test.
type Driver struct {
	// New starts a world for one case; it ends with t.
	New func(t *testing.T) *World
	// Cannot names the fields of World that stay nil, each with the reason.
	Cannot map[string]string
	// Slack is how long after the end of its ctx an operation may return. 0 is
	// half a minute, which is for the machine that runs the test.
	Slack time.Duration
	// Patience is how long what must come is waited for; 0 is a minute.
	Patience time.Duration
	// Refusal is the kind of error that a wrong password gives; empty is KindAuth.
	Refusal bmc.Kind
	// Blind: the driver cannot tell that a command whose account was refused was not
	// carried out, and says Maybe.
	Blind bool
	// Programs: each operation starts a program, which costs a hundred times what a datagram does. The suite gives fewer where their number shows nothing.
	Programs bool
}

// World is a simulated BMC and the host behind it, which is on. A nil function
// is something that it cannot do.
type World struct {
	// Open is the driver.
	Open bmc.Opener
	// Device is the BMC, with an account that works.
	Device bmc.Device
	// UUID is whom the BMC says it is, in any byte order; empty when it does not tell.
	UUID string

	// On is the truth about the host, and SetPower switches it behind the BMC's back.
	On       func() bool
	SetPower func(on bool) error

	// IgnoreOff accepts a power off and does nothing. LateOff lets the host go off
	// only d after the command, BackOn lets it come on again d after it went off.
	IgnoreOff      func(ignore bool) error
	LateOff        func(d time.Duration) error
	BackOn         func(d time.Duration) error
	RefuseSame     func(refuse bool) error // refuses a command to where the host is
	Transitional   func(say bool) error    // says that the host is on its way, in its words
	Hang           func(hang bool) error   // answers nothing
	HalfOpen       func(open bool) error   // connections stay, nothing passes
	Bad            func(bad bool) error    // the network loses, doubles and reorders 1 in 10
	LoseAnswer     func(lose bool) error   // carries commands out and does not say so
	Restart        func() error            // of the BMC: its sessions are gone
	Logins         func() int              // tries of a password so far
	Sessions       func() int              // open now
	CutLogins      func() int              // what logins left that were cut off, now
	ChangeIdentity func() error            // another machine answers
	CutBodies      func(cut bool) error    // ends each answer but a reading after its status
	CloseSilently  func(end bool) error    // ends each connection after an answer, without a word
}

// T is what a case needs of a *testing.T.
type T interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// suiteCase is one thing that a driver must do.
type suiteCase struct {
	name  string
	needs []string // fields of World
	run   func(t T, d Driver, w *World)
}

// cases are the suite.
var cases = []suiteCase{
	{"reads are exact", nil, readsAreExact},
	{"off, proof, on", nil, offProofOn},
	{"commands are absolute", nil, commandsAreAbsolute},
	{"already there is no failure", []string{"RefuseSame"}, alreadyThere},
	{"accepted is no proof", []string{"IgnoreOff"}, acceptedIsNoProof},
	{"late off", []string{"LateOff"}, lateOff},
	{"off, then on again", []string{"BackOn"}, offThenOn},
	{"on its way is unknown", []string{"Transitional"}, onItsWay},
	{"hang", []string{"Hang"}, hang},
	{"hang of an open session", []string{"Hang"}, hangOpen},
	{"half-open connection", []string{"HalfOpen"}, halfOpen},
	{"bad network", []string{"Bad"}, badNetwork},
	{"status without a body", []string{"CutBodies"}, statusWithoutBody},
	{"refusal without a body", []string{"CutBodies"}, refusalWithoutBody},
	{"connections end without a word", []string{"CloseSilently"}, silentEnds},
	{"time is over", nil, timeIsOver},
	{"lost answer", []string{"LoseAnswer"}, lostAnswer},
	{"wrong password", nil, wrongPassword},
	{"password tries", []string{"Logins"}, passwordTries},
	{"restart voids the proof", []string{"Restart"}, restartVoids},
	{"restart in mid-command", []string{"Restart"}, restartInCommand},
	{"identity", []string{"ChangeIdentity"}, identityChanges},
	{"close", nil, closes},
	{"close leaves no session", []string{"Sessions"}, closeLeavesNothing},
	{"cut logins leave no session", []string{"CutLogins"}, cutLogins},
	{"close while the BMC hangs", []string{"Hang"}, closeHung},
	{"many users", nil, manyUsers},
}

// atOnce is how many cases run at a time: most of them wait most of the time.
const atOnce = 8

// Run puts the driver to every case, each in a world of its own.
func Run(t *testing.T, d Driver) {
	var wait sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for _, c := range cases {
		wait.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			t.Run(c.name, func(t *testing.T) { runCase(t, c, d) })
		})
	}
	wait.Wait()
}

func runCase(t *testing.T, c suiteCase, d Driver) {
	for _, need := range c.needs {
		if why, cannot := d.Cannot[need]; cannot {
			require.NotEmpty(t, why, "%s: the reason is missing", need)
			t.Skip(need + ": " + why)
		}
	}
	w := d.New(t)
	for _, need := range c.needs {
		require.False(t, reflect.ValueOf(w).Elem().FieldByName(need).IsNil(), "the world has no %s, and Cannot gives no reason", need)
	}
	c.run(t, d.withDefaults(), w)
}

func (d Driver) withDefaults() Driver {
	d.Slack = cmp.Or(d.Slack, 30*time.Second) // a busy machine takes no such time
	d.Patience = cmp.Or(d.Patience, time.Minute)
	d.Refusal = cmp.Or(d.Refusal, bmc.KindAuth)
	return d
}

const (
	wrong = "bmctest-wrong-pw" // short enough for IPMI

	pace    = 50 * time.Millisecond
	spacing = 300 * time.Millisecond // of proofs, for the suite's time
)

// user is a Power with the checks that hold for every operation.
type user struct {
	t    T
	d    Driver
	w    *World
	p    bmc.Power
	last time.Time // of the last reading
}

// use opens the world's device.
func use(t T, d Driver, w *World) *user { return useAs(t, d, w, w.Device) }

func useAs(t T, d Driver, w *World, device bmc.Device) *user {
	t.Helper()
	p := must.Do(w.Open(device))(t)
	return &user{t: t, d: d, w: w, p: p}
}

// try reads within limit, and checks whatever comes back.
func (u *user) try(limit time.Duration) (bmc.Reading, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), limit)
	defer cancel()
	start := time.Now()
	r, err := u.p.Read(ctx)
	end := time.Now()
	assert.Less(u.t, end.Sub(start), limit+u.d.Slack, "a read outlived its ctx")
	if err != nil {
		u.typed(err)
		return r, err
	}
	assert.False(u.t, r.At.Before(start) || r.At.After(end), "read at %v, between %v and %v", r.At, start, end)
	assert.False(u.t, r.At.Before(u.last), "time goes on")
	u.last = r.At
	assert.LessOrEqual(u.t, len(r.Raw), 64)
	return r, nil
}

// read reads, and fails the case when that is not possible.
func (u *user) read() bmc.Reading {
	u.t.Helper()
	return must.Do(u.try(u.d.Patience))(u.t)
}

// send gives a command within limit.
func (u *user) send(c bmc.Command, limit time.Duration) (bmc.Receipt, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), limit)
	defer cancel()
	start := time.Now()
	receipt, err := u.p.Send(ctx, c)
	assert.Less(u.t, time.Since(start), limit+u.d.Slack, "a command outlived its ctx")
	if err != nil {
		u.typed(err)
	}
	return receipt, err
}

// close ends the session. A BMC that does not answer in the time that a Close may take
// may have been delayed by the machine.
func (u *user) close() {
	u.t.Helper()
	start := time.Now()
	err := u.p.Close(context.Background())
	if err != nil && u.typed(err).Kind == bmc.KindUnreachable && time.Since(start) >= closeLimit {
		return
	}
	assert.NoError(u.t, err)
}

// typed checks an error: of the one type, and without a secret in any form.
func (u *user) typed(err error) *bmc.Error {
	u.t.Helper()
	e, ok := errors.AsType[*bmc.Error](err)
	require.True(u.t, ok, "%T is not a *bmc.Error: %v", err, err)
	assert.NotEmpty(u.t, e.Kind)
	for _, secret := range []string{u.w.Device.Password.Reveal(), wrong} {
		assert.NotContains(u.t, fmt.Sprintf("%v %+v %#v", err, err, e), secret) // I25
	}
	return e
}

// until repeats f until it says true, as long as patience lasts.
func (u *user) until(what string, f func() bool) {
	u.t.Helper()
	u.within(u.d.Patience, what, f)
}

// within repeats f until it says true, as long as limit.
func (u *user) within(limit time.Duration, what string, f func() bool) {
	u.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(pace) {
		require.True(u.t, time.Now().Before(end), "%s: not within %v", what, limit)
	}
}

// proof is an empty proof of the suite.
func proof() bmc.Proof { return bmc.Proof{Spacing: spacing, MaxAge: 10 * time.Second} }

// prove reads until the host is proven off.
func (u *user) prove() {
	u.t.Helper()
	p := proof()
	u.until("proof of off", func() bool {
		r, err := u.try(u.d.Patience)
		if err != nil {
			p = p.Reset()
			return false
		}
		p = p.Add(r)
		return p.Proven(time.Now())
	})
	assert.False(u.t, u.w.On(), "a host that is on was proven off")
}

// proveAccepted does what a run does: it sends Off until one that was accepted and the
// proof after it belong to one session. // I1
func (u *user) proveAccepted() {
	u.t.Helper()
	p, accepted := proof(), bmc.Acceptance{}
	u.until("an accepted off and its proof", func() bool {
		r, err := u.try(u.d.Patience)
		if err != nil {
			p = p.Reset()
			return false
		}
		if accepted = accepted.AddReading(r); accepted.OffAccepted() {
			p = p.Add(r)
			return p.Proven(time.Now())
		}
		_, err = u.send(bmc.CommandOff, u.d.Patience)
		accepted, p = accepted.AddCommand(bmc.CommandOff, err), p.Reset()
		return false
	})
	assert.False(u.t, u.w.On(), "a host that is on was proven off")
}

// state is the truth in the words of a reading.
func (w *World) state() bmc.PowerState {
	if w.On() {
		return bmc.On
	}
	return bmc.Off
}

// Missing skips a test without a peer that it needs; CI has them all.
func Missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Read returns a reading that must succeed.
func Read(t *testing.T, p bmc.Power) bmc.Reading {
	t.Helper()
	return must.Do(p.Read(t.Context()))(t)
}

// Send gives a command that must be accepted.
func Send(t *testing.T, p bmc.Power, c bmc.Command) bmc.Receipt {
	t.Helper()
	return must.Do(p.Send(t.Context(), c))(t)
}

// Failed asserts that err is a typed error of this kind, and returns it. The passwords of the tests
// contain "secret", and no error may. // I25
func Failed(t *testing.T, err error, kind bmc.Kind) *bmc.Error {
	t.Helper()
	require.Error(t, err)
	e, ok := errors.AsType[*bmc.Error](err)
	require.True(t, ok, "%T is not a *bmc.Error", err)
	assert.Equal(t, kind, e.Kind, "%v", err)
	assert.NotContains(t, err.Error(), "\n", "one line of a table")
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		assert.NotContains(t, cause.Error(), "secret", "I25")
	}
	return e
}
