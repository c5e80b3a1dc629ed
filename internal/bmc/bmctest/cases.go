package bmctest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/test/must"
)

func readsAreExact(t T, d Driver, w *World) {
	u := use(t, d, w)
	defer u.close()
	for _, on := range []bool{true, false, true} {
		require.NoError(t, w.SetPower(on))
		r := u.read()
		assert.Equal(t, w.state(), r.State)
		assert.Empty(t, r.Fault)
		assert.False(t, r.Partial)
		if w.UUID == "" {
			assert.Empty(t, r.Identity.UUID, "a device that does not tell whose it is")
		} else {
			assert.True(t, bmc.UUIDsMatch(w.UUID, r.Identity.UUID), "%q is not %q", r.Identity.UUID, w.UUID) // I8
		}
	}
}

func offProofOn(t T, d Driver, w *World) {
	u := use(t, d, w)
	defer u.close()
	assert.Equal(t, bmc.On, u.read().State)
	must.Do(u.send(bmc.CommandOff, d.Patience))(t)
	u.prove()
	must.Do(u.send(bmc.CommandOn, d.Patience))(t)
	u.until("on", func() bool { return u.read().State == bmc.On })
	assert.True(t, w.On())
}

func commandsAreAbsolute(t T, d Driver, w *World) { // I3
	u := use(t, d, w)
	defer u.close()
	for _, c := range []bmc.Command{bmc.CommandOn, bmc.CommandOff, bmc.CommandOff, bmc.CommandOff, bmc.CommandOn, bmc.CommandOn} {
		must.Do(u.send(c, d.Patience))(t)
		u.until(c.String(), func() bool { return w.On() == (c == bmc.CommandOn) })
		assert.Equal(t, w.state(), u.read().State)
	}
	_, err := u.send(bmc.Command(0), d.Patience)
	require.Error(t, err, "no command is no command")
	assert.Equal(t, bmc.SentNo, u.typed(err).Sent)
	assert.True(t, w.On())
}

func alreadyThere(t T, d Driver, w *World) {
	require.NoError(t, w.RefuseSame(true))
	u := use(t, d, w)
	defer u.close()
	for _, on := range []bool{true, false} {
		require.NoError(t, w.SetPower(on))
		command := bmc.CommandOff
		if on {
			command = bmc.CommandOn
		}
		receipt, err := u.send(command, d.Patience)
		require.NoError(t, err, "the host is where it should be")
		assert.True(t, on || receipt.Already, "an Off that was not needed is told as such")
		assert.Equal(t, on, w.On())
		assert.Equal(t, w.state(), u.read().State)
	}
}

func acceptedIsNoProof(t T, d Driver, w *World) {
	require.NoError(t, w.IgnoreOff(true))
	u := use(t, d, w)
	defer u.close()
	assert.Equal(t, bmc.On, u.read().State)
	p := proof()
	for range 3 {
		_, _ = u.send(bmc.CommandOff, d.Patience) // a driver may notice
		for end := time.Now().Add(spacing + 2*pace); time.Now().Before(end); time.Sleep(pace) {
			r := u.read()
			assert.Equal(t, bmc.On, r.State, "a command that was accepted is not an off")
			p = p.Add(r)
			require.False(t, p.Proven(time.Now()), "a host that is on was proven off") // I1
		}
	}
}

// overtime is the ctx of a process that was frozen: its time is over, and nothing has noticed that yet.
type overtime struct {
	context.Context
	over time.Time
}

func (o overtime) Deadline() (time.Time, bool) { return o.over, true }

// timeIsOver: another process may own the host by now, and have switched it on. // I19
func timeIsOver(t T, d Driver, w *World) {
	u := use(t, d, w)
	defer u.close()
	assert.Equal(t, bmc.On, u.read().State) // a session is open
	ctx, cancel := context.WithTimeout(t.Context(), d.Patience)
	defer cancel()
	_, err := u.p.Send(overtime{ctx, time.Now().Add(-time.Second)}, bmc.CommandOff)
	require.Error(t, err)
	assert.Equal(t, bmc.SentNo, u.typed(err).Sent)
	assert.Equal(t, bmc.KindUnreachable, u.typed(err).Kind)
	assert.Equal(t, bmc.On, u.read().State)
	assert.True(t, w.On())
}

func lateOff(t T, d Driver, w *World) {
	const late = time.Second
	require.NoError(t, w.LateOff(late))
	u := use(t, d, w)
	defer u.close()
	u.read()
	start := time.Now()
	must.Do(u.send(bmc.CommandOff, d.Patience))(t)
	p := proof()
	u.until("proof of off", func() bool {
		on := w.On() // before the read: what is read Off then was off
		r := u.read()
		p = p.Add(r)
		if r.State == bmc.Off && on {
			assert.False(t, w.On(), "read off, and is on")
		}
		return p.Proven(time.Now())
	})
	assert.False(t, w.On())
	assert.GreaterOrEqual(t, time.Since(start), late)
}

func offThenOn(t T, d Driver, w *World) {
	u := use(t, d, w)
	defer u.close()
	begun := time.Now()
	u.read()
	back := 2*time.Second + 3*time.Since(begun) // it must be seen off meanwhile
	p, seen := proof(), false
	for ; ; back *= 2 { // until the machine is fast enough to see it
		require.Less(t, back, 8*d.Patience, "not seen off")
		require.NoError(t, w.BackOn(back))
		sent := time.Now()
		must.Do(u.send(bmc.CommandOff, d.Patience))(t)
		for !seen && time.Since(sent) < back+pace {
			r := u.read()
			p = p.Add(r)
			seen = r.State == bmc.Off || !w.On() // else nothing could be left of a proof
		}
		if seen {
			break
		}
	}
	u.within(back+d.Patience, "on again", func() bool {
		on := w.On()
		r := u.read()
		p = p.Add(r)
		return on && r.State == bmc.On && w.On()
	})
	assert.Equal(t, proof(), p, "nothing is left of a proof when the host came on") // I1
}

func onItsWay(t T, d Driver, w *World) {
	require.NoError(t, w.Transitional(true))
	u := use(t, d, w)
	defer u.close()
	r := u.read()
	assert.Equal(t, bmc.Unknown, r.State, "%q is neither on nor off", r.Raw)
	assert.NotEmpty(t, r.Raw, "what it said is for people")
	require.NoError(t, w.Transitional(false))
	assert.Equal(t, bmc.On, u.read().State)
}

func identityChanges(t T, d Driver, w *World) { // I8
	u := use(t, d, w)
	defer u.close()
	require.NoError(t, w.SetPower(false))
	first := u.read()
	require.NoError(t, w.ChangeIdentity())
	var second bmc.Reading
	u.until("the other identity", func() bool {
		r, err := u.try(d.Patience)
		second = r
		return err == nil
	})
	p := proof().Add(first).Add(second)
	assert.False(t, p.Proven(first.At.Add(time.Hour)))
	second.At = first.At.Add(spacing)
	assert.False(t, proof().Add(first).Add(second).Proven(second.At), "two machines do not make one proof")
	assert.False(t, bmc.UUIDsMatch(w.UUID, second.Identity.UUID))
}

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
	must.Do(u.send(bmc.CommandOff, d.Patience))(t)
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
		assert.LessOrEqual(t, w.Logins(), 2, "a reading and a command")
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
	assert.Equal(t, 1, tries)
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
	u.until("recovery", func() bool {
		r, err := u.try(d.Patience / 3)
		after = r
		return err == nil && after.State == bmc.Off
	})
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

// closeLimit is how long the end of a session may take.
const closeLimit = 2 * time.Second

func closes(t T, d Driver, w *World) {
	u := use(t, d, w)
	u.close() // of what was never used
	u = use(t, d, w)
	u.read()
	for range 3 {
		start := time.Now()
		u.close()
		assert.Less(t, time.Since(start), closeLimit+d.Slack)
	}
	u = use(t, d, w)
	u.read()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, u.p.Close(ended), "the caller's time is over; that is no failure of the BMC")
}

func closeLeavesNothing(t T, d Driver, w *World) {
	noneLeft(t, d, w, "no session left", func(u *user) {
		u.read()
		u.read()
		few(t, d, w)
		u.close()
	})
	noneLeft(t, d, w, "no session left after a cancelled read", func(u *user) {
		u.read()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := u.p.Read(ended)
		require.Error(t, err)
		u.typed(err)
		_ = u.p.Close(ended) // the session must end all the same
	})
}

// forgets is less than the minute after which a BMC ends a session that is not used.
func (d Driver) forgets() time.Duration { return min(d.Patience, 30*time.Second) }

// noneLeft asserts that no session is left by what uses the device. It is used several
// times: a delay of the machine may cost one session, which the BMC ends later.
func noneLeft(t T, d Driver, w *World, what string, using func(*user)) {
	t.Helper()
	for tries := 1; ; tries++ {
		using(use(t, d, w))
		for end := time.Now().Add(d.forgets()); time.Now().Before(end); time.Sleep(pace) {
			if w.Sessions() == 0 {
				return
			}
		}
		require.Less(t, tries, leftTries, what)
	}
}

// leftTries is how often a session may be left.
const leftTries = 4

// cutLogins: who gives up in the middle of a login leaves nothing on the BMC.
func cutLogins(t T, d Driver, w *World) {
	u := use(t, d, w)
	for _, limit := range []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		_, _ = u.try(limit)
	}
	u.close()
	u.until("no session left", func() bool { return w.CutLogins() == 0 })
}

// few waits until one session is open, or none: a delay of the machine may open two for a
// moment.
func few(t T, d Driver, w *World) {
	t.Helper()
	end := time.Now().Add(d.forgets())
	for w.Sessions() > 1 && time.Now().Before(end) {
		time.Sleep(pace)
	}
	assert.LessOrEqual(t, w.Sessions(), 1, "one session for all reads")
}

func closeHung(t T, d Driver, w *World) {
	u := use(t, d, w)
	u.read()
	require.NoError(t, w.Hang(true))
	start := time.Now()
	if err := u.p.Close(context.Background()); err != nil {
		u.typed(err)
	}
	assert.Less(t, time.Since(start), closeLimit+d.Slack)
	require.NoError(t, w.Hang(false))
}

// manyUsers share the BMC through actors: nobody fails, and one session serves all.
func manyUsers(t T, d Driver, w *World) {
	a := power.NewActors(w.Open)
	var wait sync.WaitGroup
	var powers []bmc.Power
	users, reads := 6, 4
	if d.Programs {
		users, reads = 3, 2
	}
	for range users {
		p := must.Do(a.Urgent()(w.Device))(t)
		powers = append(powers, p)
	}
	for _, p := range powers {
		wait.Go(func() {
			for range reads {
				r, err := p.Read(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, bmc.On, r.State)
			}
			if w.Sessions != nil {
				few(t, d, w)
			}
			_, err := p.Send(t.Context(), bmc.CommandOn)
			assert.NoError(t, err)
			assert.NoError(t, p.Close(context.Background()))
		})
	}
	wait.Wait()
	if w.Sessions == nil {
		return
	}
	for end := time.Now().Add(d.Patience); w.Sessions() > 0; time.Sleep(pace) {
		require.True(t, time.Now().Before(end), "a session is left")
	}
}
