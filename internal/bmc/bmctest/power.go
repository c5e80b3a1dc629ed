package bmctest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
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
	_, err := u.send(bmc.CommandOff, d.Patience)
	require.NoError(t, err)
	u.prove()
	_, err = u.send(bmc.CommandOn, d.Patience)
	require.NoError(t, err)
	u.until("on", func() bool { return u.read().State == bmc.On })
	assert.True(t, w.On())
}

func commandsAreAbsolute(t T, d Driver, w *World) { // I3
	u := use(t, d, w)
	defer u.close()
	for _, c := range []bmc.Command{bmc.CommandOn, bmc.CommandOff, bmc.CommandOff, bmc.CommandOff, bmc.CommandOn, bmc.CommandOn} {
		_, err := u.send(c, d.Patience)
		require.NoError(t, err)
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
		_, err := u.send(command, d.Patience)
		require.NoError(t, err, "the host is where it should be")
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

func lateOff(t T, d Driver, w *World) {
	const late = time.Second
	require.NoError(t, w.LateOff(late))
	u := use(t, d, w)
	defer u.close()
	u.read()
	start := time.Now()
	_, err := u.send(bmc.CommandOff, d.Patience)
	require.NoError(t, err)
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
		_, err := u.send(bmc.CommandOff, d.Patience)
		require.NoError(t, err)
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
