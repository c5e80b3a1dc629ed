package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// listedMachine is a world whose first Machine never joined. Only an entry of hosts.d with
// machine: names its BMC.
func listedMachine(w *world, uuid string) {
	entry := w.Entry()
	entry.Name, entry.PinnedUUID = bmc.EntryName("c", "ns/m-1"), uuid
	w.DropEntry()
	w.Do(func(s *fake.State) {
		s.NeverJoined("n-1", time.Now().Add(-time.Hour))
		s.Entries["ns/m-1"] = entry
	})
	w.changeCheck(func(c *policy.Check) { c.StartupTimeout = 10 * time.Minute })
	w.ownMachines()
}

// runOfMachine waits ten minutes and returns the only run.
func runOfMachine(t *testing.T, w *world, runs func(string) []remediate.Run) remediate.Run {
	t.Helper()
	time.Sleep(10 * time.Minute)
	list := runs("c")
	require.Len(t, list, 1)
	assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, w.Commands())
	return list[0]
}

// An entry with machine: and the uuid identifies the BMC of a Machine without a Node. // I8
func TestEntryOfAMachineIdentifiesItsBMC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		e, _, stop := start(t, w, store, nil)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		assert.Equal(t, "c/machine/ns/m-1", r.Target.Host)
		assert.False(t, r.Target.ByHardware)
		assert.Equal(t, hostUUID, r.Target.ReportedUUID)
		assert.Equal(t, 1, r.Limits.MaxAttempts)
		stop()
	})
}

// Without the uuid a person enrolls the BMC by the name of the Machine. // I8, I10
func TestBMCIsEnrolledForAMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, "")
		e, events, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Equal(t, reason.IdentityUnknown, gateOfMachine(t, e).Reason)
		told := eventsOf(t, events, func(ev event.Event) bool { return ev.Reason == reason.IdentityUnknown })
		require.Len(t, told, 1)
		assert.Contains(t, told[0].Message, "fencectl bmc enroll --machine ns/m-1, or write its uuid into hosts.d")
		_, err := e.Enroll(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "by the name of the Node"})
		refusedFor(t, err, reason.NoSuchNode)

		x, err := e.Enroll(t.Context(), dryRun(byMachine))
		require.NoError(t, err)
		assert.Equal(t, hostUUID, x.Pin.SystemUUID, "what answers now")
		assert.Equal(t, "m-m-1", x.Pin.MachineUID)
		time.Sleep(time.Minute)
		assert.Empty(t, w.Commands(), "a dry run stores nothing")
		_, err = e.Enroll(t.Context(), byMachine)
		require.NoError(t, err)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		stop()
	})
}

// The name of a Machine may be given again, to one on another host: an enrolment does not
// follow the name. // I8
func TestEnrolmentOfAMachineEndsWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, "")
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		_, err := e.Enroll(t.Context(), byMachine)
		require.NoError(t, err)
		o := dryRun(byMachine)
		_, err = e.Fence(t.Context(), o)
		require.NoError(t, err)
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.UID = "another" }) })
		time.Sleep(2 * time.Second)
		_, err = e.Fence(t.Context(), o)
		refusedFor(t, err, reason.IdentityUnknown)
		stop()
	})
}

// What a person cannot know by the report of a BMC is not enrolled. // I8, I9, I13
func TestEnrollOfAMachineRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		code  reason.Code
	}{
		"no UUID":                  {func(w *world) { w.SetBMCUUID("") }, reason.IdentityUnknown},
		"a placeholder":            {func(w *world) { w.SetBMCUUID(zeroUUID) }, reason.IdentityUnknown},
		"the UUID of another Node": {func(w *world) { w.duplicateUUID() }, reason.DuplicateUUID},
		"no such Machine":          {func(w *world) { w.Do(func(s *fake.State) { delete(s.Entries, "ns/m-1"); s.RemoveMachine("n-1") }) }, reason.NoSuchMachine},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				listedMachine(w, "")
				c.spoil(w)
				e, _, stop := start(t, w, store, nil)
				time.Sleep(2 * time.Second)
				_, err := e.Enroll(t.Context(), byMachine)
				refusedFor(t, err, c.code)
				stop()
			})
		})
	}
}

// Two entries for one host are refused: one names its Node, one its Machine. // I9
func TestEntriesOfANodeAndItsMachineAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) {
			entry := s.Entries["n-1"]
			entry.Name = bmc.EntryName("c", "ns/m-1")
			s.Entries["ns/m-1"] = entry
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.DuplicateHost)
		stop()
	})
}

// A hold of a Machine binds checks and people, and goes on to bind when the Machine gets a
// Node. // I23
func TestHoldOfAMachineBinds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.LastUpdated = time.Now() }) })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		out, err := e.Hold(t.Context(), byMachine)
		require.NoError(t, err)
		assert.False(t, out.Unseen)
		time.Sleep(20 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Equal(t, reason.Hold, gateOfMachine(t, e).Reason)
		_, err = e.Fence(t.Context(), byMachine)
		refusedFor(t, err, reason.Hold)
		stop()

		w.Do(func(s *fake.State) { s.Host("n-1").Boot() }) // it joins by itself, and dies
		e, _, stop = start(t, w, store, nil)
		time.Sleep(time.Minute)
		require.True(t, w.Ready())
		w.Hang()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.Hold)
		_, err = e.ReleaseHold(t.Context(), byMachine)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// A hold that comes during a run on a Machine without a Node brings the host back. // I23
func TestHoldOfAMachineStopsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, nil)
		for len(w.Commands()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		_, err := e.Hold(t.Context(), byMachine)
		require.NoError(t, err)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, reason.Paused, r.Reason)
		stop()
	})
}

// People fence, and bring back, by the name of the Machine. A Machine that has a Node is
// fenced with it.
func TestOrdersByMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.pauseCheck()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		o := byMachine
		o.OffOnly = true
		out, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		again, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, order.Outcome{Run: out.Run, Joined: true}, again)
		time.Sleep(time.Minute)
		assert.Equal(t, reason.OperatorOff, e.Runs("c")[0].Reason)
		_, err = e.Unfence(t.Context(), byMachine)
		require.NoError(t, err)
		r := runOfMachine(t, w, e.Runs)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		require.True(t, w.Ready())
		x, err := e.ExplainMachine(t.Context(), "c", "ns/m-1")
		require.NoError(t, err)
		require.NotNil(t, x.Run, "it is shown after the Machine has got a Node, too")
		assert.Equal(t, out.Run, x.Run.ID)

		unknown := byMachine
		unknown.Machine = "ns/m-9"
		_, err = e.Fence(t.Context(), unknown)
		refusedFor(t, err, reason.NoSuchMachine)
		w.Hang()
		_, err = e.Fence(t.Context(), byMachine) // its Node is there by now
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 1, w.Isolations())
		assert.Equal(t, "n-1", e.Runs("c")[0].Target.Node)
		stop()
	})
}

// A host marked protected is not fenced by itself, whichever name its entry has. // I13
func TestEntryOfAMachineProtects(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		listedMachine(w, hostUUID)
		w.Do(func(s *fake.State) {
			entry := s.Entries["ns/m-1"]
			entry.Protected = true
			s.Entries["ns/m-1"] = entry
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Equal(t, reason.Protected, gateOfMachine(t, e).Reason)
		stop()
	})
}
