package bmctest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

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
	p, err := w.Open(device)
	require.NoError(t, err)
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
	r, err := u.try(u.d.Patience)
	require.NoError(u.t, err)
	return r
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
