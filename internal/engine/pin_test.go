package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// checked is a health check of n-1's first device that read this UUID and serial.
func checked(t *testing.T, e *engine.Engine, uuid, serial string) hosts.Checked {
	t.Helper()
	s, err := e.SubjectOf(t.Context(), "c", "n-1")
	require.NoError(t, err)
	require.NoError(t, s.Err)
	r := bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: uuid, Serial: serial}}
	return hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(t.Context(), s, 0, 0, r)}
}

// checkHealthy lets a health check find n-1's own BMC.
func checkHealthy(t *testing.T, e *engine.Engine) {
	t.Helper()
	k := checked(t, e, hostUUID, "ABC1234")
	require.Equal(t, guard.IdentityMatches, k.Identity)
	e.Checked(t.Context(), k)
}

func pinOf(t *testing.T, store state.Store, host string) state.Pin {
	t.Helper()
	p, err := state.LoadPin(t.Context(), store, host)
	if err != nil {
		require.ErrorIs(t, err, state.ErrNotFound)
	}
	return p
}

// The identity is pinned once while the host is healthy. It identifies the host when its
// Node is gone. // I10
func TestIdentityIsPinnedWhileHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		checkHealthy(t, e)
		assert.Empty(t, pinOf(t, store, "c/n-1").SystemUUID, "its Node is not Ready")
		w.SetReady("True")
		time.Sleep(2 * time.Second)
		wrong := checked(t, e, "4c4c4544-0042-3510-8054-b4c04f4d9999", "")
		e.Checked(t.Context(), wrong)
		assert.Equal(t, guard.IdentityDiffers, wrong.Identity)
		assert.Empty(t, pinOf(t, store, "c/n-1").SystemUUID, "another machine answers")
		checkHealthy(t, e)
		first := pinOf(t, store, "c/n-1")
		assert.Equal(t, hostUUID, first.SystemUUID)
		assert.Equal(t, "ABC1234", first.Serial)
		assert.Equal(t, "192.0.2.1", first.Devices)
		time.Sleep(time.Minute)
		checkHealthy(t, e)
		assert.Equal(t, first, pinOf(t, store, "c/n-1"), "written on a change only")
		stop()
	})
}

// The serial number that was pinned with this UUID is the second factor. // I8
func TestOtherSerialIsAnotherMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		checkHealthy(t, e)
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "").Identity, "not told is not contradicted")
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "To be filled by O.E.M.").Identity)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, hostUUID, "XYZ9876").Identity)
		stop()
	})
}

// If the address of a BMC changes in hosts.d, fenced follows it, but a device at the new
// address is no longer enrolled.
func TestEnrolmentEndsWithTheDevices(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		assert.Equal(t, "ada (uid 1000)", pinOf(t, store, "c/n-1").EnrolledBy)
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Empty(t, e.Forbidden(t.Context(), s))
		assert.Equal(t, guard.IdentityMatches, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[1].Devices[0].Parameters = map[string]string{"plug": "8"} })
		s, err = e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		checkHealthy(t, e)
		p := pinOf(t, store, "c/n-1")
		assert.Empty(t, p.EnrolledBy)
		assert.Contains(t, p.Devices, " 8")
		s, err = e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		assert.Equal(t, reason.NotEnrolled, e.Forbidden(t.Context(), s)[0].Reason)
		stop()
	})
}

// An outlet is enrolled for a machine, not for a name: if another machine gets the name,
// the outlet is not switched for it. // I8
func TestEnrolmentIsForOneMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		s.SystemUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		stop()
	})
}

// An enrolment is refused if the devices contradict it.
func TestEnrollRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world, p *fake.OutletHandle)
		want  reason.Code
	}{
		"another machine answers": {func(w *world, _ *fake.OutletHandle) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") }, reason.IdentityMismatch},
		"no UUID, and reads Off":  {func(w *world, _ *fake.OutletHandle) { w.SetBMCUUID(""); w.SetPower(false) }, reason.IdentityUnknown},
		"the BMC is silent":       {func(w *world, _ *fake.OutletHandle) { w.FailReads(noAnswer()) }, "BMCUnreachable"},
		"an outlet of another one": {func(w *world, p *fake.OutletHandle) {
			w.SetReady("True")
			p.Change(func(o *fake.Outlet) { o.On = false })
		}, "BMCUnreachable"},
		"the outlet reads Off": {func(w *world, p *fake.OutletHandle) { w.SetReady("True"); w.SetPower(false) }, reason.IdentityMismatch},
		"no Node":              {func(w *world, _ *fake.OutletHandle) { w.RemoveNode() }, reason.IdentityUnknown},
		"no host":              {func(w *world, _ *fake.OutletHandle) { w.DropEntry() }, reason.NoHost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				p, levels := withOutlet(w)
				c.spoil(w, p)
				e, _, stop := start(t, w, store, levels)
				time.Sleep(time.Second)
				_, err := e.Enroll(t.Context(), byHand)
				refusedFor(t, err, c.want)
				assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
				stop()
			})
		})
	}
}

// In identity mode pinned only what a person has enrolled counts.
func TestPinnedModeRequiresAnEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "pinned" })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.NotEnrolled)
		x, err := e.Enroll(t.Context(), dryRun(byHand))
		require.NoError(t, err)
		assert.Equal(t, hostUUID, x.Devices[0].UUID)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// An enrolment replaces the identity of a device that reports none. If a device reports
// that it belongs to another machine, that counts: its address has changed since. // I8
func TestReportedIdentityOverridesTheEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const other = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		w.ChangeEntry(func(h *bmc.Host) {
			h.Levels[0].Devices[0].Driver, h.Levels[0].Devices[0].Provider = bmc.DriverBMCLib, "gofish"
		})
		e, stop := enrolled(t, w, store, nil)
		w.SetBMCUUID(other)
		assert.Equal(t, guard.IdentityDiffers, checked(t, e, other, "").Identity)
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff), "another machine was switched off")
		_, err := e.Enroll(t.Context(), byHand)
		refusedFor(t, err, reason.IdentityMismatch)
		stop()
	})
}

// If the answer of the store was lost, an enrolment that was ended no longer counts, and
// one that was made can be made again. // I8
func TestPinSavedWithoutAnAnswerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		lives(w)
		store := &muteStore{Store: inner, kind: state.KindPin}
		lose := func() { store.mu.Lock(); store.mute = 1; store.mu.Unlock() }
		_, levels := withOutlet(w)
		e, _, stop := start(t, w, store, levels)
		time.Sleep(time.Second)
		lose()
		_, err := e.Enroll(t.Context(), byHand)
		require.Error(t, err)
		_, err = e.Enroll(t.Context(), byHand)
		require.Error(t, err, "another pin stands by now")
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		outletReads(t, e, bmc.Off)
		time.Sleep(time.Minute)
		lose()
		for range 2 {
			outletReads(t, e, bmc.Off)
		}
		require.Empty(t, pinOf(t, inner, "c/n-1").EnrolledBy)
		subject, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		var reasons []reason.Code
		for _, r := range e.Forbidden(t.Context(), subject) {
			reasons = append(reasons, r.Reason)
		}
		assert.Contains(t, reasons, reason.NotEnrolled)
		stop()
	})
}
