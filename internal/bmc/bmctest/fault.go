package bmctest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

const short = 400 * time.Millisecond // a deadline that passes

func hang(t T, d Driver, w *World) { silent(t, d, w, w.Hang, false) }

func hangOpen(t T, d Driver, w *World) { silent(t, d, w, w.Hang, true) }

func halfOpen(t T, d Driver, w *World) { silent(t, d, w, w.HalfOpen, true) }

// silent is a BMC from which nothing comes, at the first contact or later.
func silent(t T, d Driver, w *World, mute func(bool) error, open bool) {
	u := use(t, d, w)
	defer u.close()
	if open {
		assert.Equal(t, bmc.On, u.read().State)
	}
	require.NoError(t, mute(true))
	r, err := u.try(short)
	require.Error(t, err, "nothing was answered, and %+v was read", r)
	assert.Equal(t, bmc.KindUnreachable, u.typed(err).Kind, "%v", err)
	assert.Equal(t, bmc.Unknown, r.State)

	_, err = u.send(bmc.CommandOff, short)
	require.Error(t, err, "nothing was answered, and the command was accepted")
	maybe := u.typed(err).Sent != bmc.SentNo

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(short/2, cancel)
	start := time.Now()
	_, err = u.p.Read(ctx)
	cancel()
	require.Error(t, err)
	u.typed(err)
	assert.Less(t, time.Since(start), short/2+d.Slack, "cancelled, and not honoured at once")

	require.NoError(t, mute(false))
	u.until("recovery", func() bool {
		r, err = u.try(d.Patience)
		return err == nil
	})
	assert.True(t, maybe || w.On(), "a command that was carried out was told as never sent") // I2
	if !maybe {
		assert.Equal(t, bmc.On, r.State)
	}
	_, err = u.send(bmc.CommandOff, d.Patience)
	require.NoError(t, err)
	u.prove()
}

// badNetwork: everything still works, if not at the first try.
func badNetwork(t T, d Driver, w *World) {
	require.NoError(t, w.Bad(true))
	u := use(t, d, w)
	tries := func(what string, f func() error) {
		u.until(what, func() bool { return f() == nil })
	}
	for _, on := range []bool{false, true} {
		command := bmc.CommandOff
		if on {
			command = bmc.CommandOn
		}
		tries(command.String(), func() error { _, err := u.send(command, d.Patience/3); return err })
		tries("read", func() error {
			r, err := u.try(d.Patience / 3)
			if err == nil {
				assert.Equal(t, w.state(), r.State)
			}
			return err
		})
		if !on {
			u.prove()
		}
	}
	assert.True(t, w.On())
	require.NoError(t, w.Bad(false))
	u.close()
}

// lostAnswer: a command that was carried out is never told as not sent.
func lostAnswer(t T, d Driver, w *World) { // I2
	u := use(t, d, w)
	defer u.close()
	u.read()
	require.NoError(t, w.LoseAnswer(true))
	u.until("the command to be carried out", func() bool { // it may not arrive in time on a busy machine
		_, err := u.send(bmc.CommandOff, d.Patience/3)
		off := !w.On()
		if off && err != nil {
			assert.NotEqual(t, bmc.SentNo, u.typed(err).Sent, "%v", err)
		}
		return off
	})
	require.NoError(t, w.LoseAnswer(false))
	u.prove()
}

// statusWithoutBody: what the status says is done, also by a session that has run out.
func statusWithoutBody(t T, d Driver, w *World) {
	require.NoError(t, w.CutBodies(true))
	u := use(t, d, w)
	defer u.close()
	assert.Equal(t, bmc.On, u.read().State)
	u.proveAccepted()
	if w.Restart != nil {
		require.NoError(t, w.Restart())
	}
	u.until("on", func() bool { // a command may meet the end of its connection
		_, err := u.send(bmc.CommandOn, d.Patience)
		return err == nil
	})
	assert.True(t, w.On())
}

// refusalWithoutBody: BMCs lock accounts, and only what is told as refused is not tried again.
func refusalWithoutBody(t T, d Driver, w *World) {
	require.NoError(t, w.CutBodies(true))
	wrongPassword(t, d, w)
	if w.Logins != nil {
		assert.LessOrEqual(t, w.Logins(), 2*d.Logins, "a reading and a command")
	}
}

// silentEnds: a connection that ends says nothing about the BMC, if each one does.
func silentEnds(t T, d Driver, w *World) {
	require.NoError(t, w.CloseSilently(true))
	u := use(t, d, w)
	defer u.close()
	assert.Equal(t, bmc.On, u.read().State)
	u.proveAccepted()
	u.until("on", func() bool { // a command may meet the end of its connection
		_, err := u.send(bmc.CommandOn, d.Patience)
		return err == nil
	})
	assert.True(t, w.On())
}

func wrongPassword(t T, d Driver, w *World) {
	device := w.Device
	device.Password = bmc.NewSecret(wrong)
	u := useAs(t, d, w, device)
	r, err := u.try(d.Patience)
	require.Error(t, err)
	assert.Equal(t, d.Refusal, u.typed(err).Kind, "%v", err)
	assert.Equal(t, bmc.Unknown, r.State)
	_, err = u.send(bmc.CommandOff, d.Patience)
	require.Error(t, err)
	assert.Equal(t, d.Refusal, u.typed(err).Kind, "%v", err)
	if !d.Blind {
		assert.Equal(t, bmc.SentNo, u.typed(err).Sent)
	}
	assert.True(t, w.On())
	assert.NoError(t, u.p.Close(context.Background()))
}

// passwordTries: BMCs lock accounts.
func passwordTries(t T, d Driver, w *World) {
	device := w.Device
	device.Password = bmc.NewSecret(wrong)
	u := useAs(t, d, w, device)
	_, err := u.try(d.Patience)
	require.Error(t, err)
	tries := w.Logins()
	assert.Positive(t, tries, "the world does not count")
	assert.LessOrEqual(t, tries, d.Logins)
	assert.NoError(t, u.p.Close(context.Background()))
	assert.Equal(t, tries, w.Logins(), "close tries no password")
}

func restartVoids(t T, d Driver, w *World) { // I1
	u := use(t, d, w)
	defer u.close()
	require.NoError(t, w.SetPower(false))
	var before bmc.Reading
	u.until("two readings in one session, without which nothing is ever proven", func() bool {
		before = u.read()
		return before.Session == u.read().Session // but for a BMC that a busy machine delays
	})
	require.NoError(t, w.Restart())
	var after bmc.Reading
	recovered := func() bool {
		r, err := u.try(d.Patience / 3)
		after = r
		return err == nil && after.State == bmc.Off
	}
	u.until("recovery", recovered)
	if d.LaterSession {
		u.until("recovery", recovered)
	}
	assert.NotEqual(t, before.Session, after.Session)
	p := proof().Add(before)
	after.At = before.At.Add(spacing)
	assert.False(t, p.Add(after).Proven(after.At), "readings from before and after a restart made a proof")
}

func restartInCommand(t T, d Driver, w *World) { // I2
	u := use(t, d, w)
	defer u.close()
	u.read()
	var wait sync.WaitGroup
	wait.Go(func() { assert.NoError(t, w.Restart()) })
	_, err := u.send(bmc.CommandOff, 3*time.Second)
	wait.Wait()
	if err != nil && u.typed(err).Sent == bmc.SentNo {
		time.Sleep(spacing)
		assert.True(t, w.On(), "carried out, and told as never sent: %v", err)
	}
	u.until("off", func() bool {
		_, err := u.send(bmc.CommandOff, d.Patience/3)
		return err == nil
	})
	u.prove()
}
