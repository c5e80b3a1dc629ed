package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

const zeroUUID = "00000000-0000-0000-0000-000000000000"

// reports is a health check in which the first device of n-1 reports this, and its
// description these MAC addresses.
func reports(t *testing.T, e *engine.Engine, id bmc.Identity, macs ...string) hosts.Checked {
	t.Helper()
	s := subject(t, e)
	r := bmc.Reading{State: bmc.On, At: time.Now(), Session: 1, Identity: id}
	k := hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(t.Context(), s, 0, 0, r), Description: bmc.Description{MACs: macs}}
	e.Checked(t.Context(), k)
	return k
}

func isEnrolled(t *testing.T, store *failingStore) bool {
	t.Helper()
	return pinOf(t, store, "c/n-1").EnrolledBy != ""
}

// described is a BMC that tells the MAC addresses of its host.
type described struct {
	bmc.Power
	macs []string
	some bool // not of all its interfaces
}

func (d described) Describe(context.Context) (bmc.Description, error) {
	return bmc.Description{MACs: d.macs, SomeMACs: d.some}, nil
}

// A BMC whose UUID identifies no host, like OpenBMC as it comes and Cray EX, fences
// nothing before a person has enrolled it, and then it does. // I8
func TestBMCWithoutUUIDIsEnrolled(t *testing.T) {
	for _, uuid := range []string{"", zeroUUID} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetBMCUUID(uuid)
			w.SetBMCSerial("SRV1234")
			macs := []string{"b8:ca:3a:00:00:01"}
			e := running(t, w, store, func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return described{w.bmc(), macs, false}, nil }
			})
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			gate(t, e, reason.IdentityUnknown)
			assert.Zero(t, w.Count(bmc.CommandOff))

			x := must.Do(e.Enroll(t.Context(), dryRun(byHand)))(t)
			assert.Equal(t, []hosts.EnrolledDevice{{
				Device: "ipmi://192.0.2.1:623", Driver: bmc.DriverIPMI, Power: bmc.On, Serial: "SRV1234", MACs: macs,
				Identity: x.Devices[0].Identity, Assurance: bmc.AssuranceLower,
			}}, withoutReports(x.Devices))
			assert.NotEqual(t, guard.IdentityMatches, x.Devices[0].Identity, "nothing but the person says so")
			assert.False(t, isEnrolled(t, store))

			enroll(t, e)
			assert.Equal(t, bmc.AssuranceLower, subject(t, e).Host.Levels[0].Devices[0].Assurance())
			time.Sleep(2 * time.Minute)
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			assert.Len(t, e.Runs("c"), 1)
		})
	}
}

// withoutReports is the list without what is not exported.
func withoutReports(list []hosts.EnrolledDevice) (out []hosts.EnrolledDevice) {
	for _, d := range list {
		out = append(out, hosts.EnrolledDevice{Level: d.Level, Device: d.Device, Driver: d.Driver, Power: d.Power, UUID: d.UUID,
			Serial: d.Serial, System: d.System, MACs: d.MACs, Identity: d.Identity, Assurance: d.Assurance})
	}
	return out
}

// What it reported is what it must report, or the enrolment ends. // I8
func TestChangeOfWhatIsReportedEndsTheEnrolment(t *testing.T) {
	const (
		other = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		mac   = "b8:ca:3a:00:00:01"
	)
	was := bmc.Identity{UUID: zeroUUID, Serial: "SRV1234", System: "/redfish/v1/Systems/system"}
	with := func(change func(*bmc.Identity)) bmc.Identity { id := was; change(&id); return id }
	for name, c := range map[string]struct {
		now     bmc.Identity
		macs    []string
		want    guard.IdentityVerdict
		remains bool
	}{
		"the same":             {was, []string{mac}, guard.IdentityMatches, true},
		"no description":       {was, nil, guard.IdentityMatches, true},
		"another way to blank": {with(func(id *bmc.Identity) { id.UUID = "" }), nil, guard.IdentityMatches, true},
		"its own UUID by now":  {bmc.Identity{UUID: hostUUID, Serial: "SRV1234"}, nil, guard.IdentityMatches, true},
		"no serial this time":  {with(func(id *bmc.Identity) { id.Serial = "" }), nil, guard.IdentityUnproven, true},
		"another serial":       {with(func(id *bmc.Identity) { id.Serial = "SRV9999" }), nil, guard.IdentityDiffers, false},
		"another system":       {with(func(id *bmc.Identity) { id.System = "/redfish/v1/Systems/2" }), nil, guard.IdentityDiffers, false},
		"another's UUID":       {bmc.Identity{UUID: other, Serial: "SRV1234"}, nil, guard.IdentityDiffers, false},
		"other MAC addresses":  {was, []string{"b8:ca:3a:00:00:99"}, guard.IdentityMatches, false},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			p := described{stubbed{w.bmc(), was}, []string{mac}, false}
			e, events, _ := start(t, w, store, func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return p, nil }
			})
			time.Sleep(time.Second)
			enroll(t, e)
			k := reports(t, e, c.now, c.macs...)
			assert.Equal(t, c.want, k.Identity)
			assert.Equal(t, c.remains, isEnrolled(t, store))
			if !c.remains {
				ended := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Refused && ev.Reason == reason.NotEnrolled })
				require.Len(t, ended, 1)
				assert.Contains(t, ended[0].Message, "enroll again after checking the device")
				s := subject(t, e)
				assert.Equal(t, []reason.Refusal{{Reason: reason.NotEnrolled, Message: ended[0].Message}}, e.Forbidden(t.Context(), s))
				assert.NotEqual(t, guard.IdentityMatches, reports(t, e, was).Identity, "not even as it was: a person looks first")
			}
		})
	}
}

// stubbed is a BMC that reports another identity.
type stubbed struct {
	bmc.Power
	id bmc.Identity
}

func (s stubbed) Read(ctx context.Context) (bmc.Reading, error) {
	r, err := s.Power.Read(ctx)
	r.Identity = s.id
	return r, err
}

// A run sees the change itself, before any health check, and sends nothing. // I8
func TestRunSeesTheOtherSerial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID("")
		w.SetBMCSerial("SRV1234")
		e, _ := enrolled(t, w, store, nil)
		w.SetBMCSerial("SRV9999")
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff), "another machine was switched off")
		gate(t, e, reason.IdentityMismatch)
	})
}

// An Off of it while its Node lives ends the enrolment, as that of an outlet. // I1, I8
func TestOffOfALiveNodeEndsTheEnrolmentWithoutUUID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		w.SetBMCUUID("")
		e, _ := enrolled(t, w, store, nil)
		off := func() {
			s := subject(t, e)
			r := bmc.Reading{State: bmc.Off, At: time.Now(), Session: 1}
			e.Checked(t.Context(), hosts.Checked{Subject: s, At: r.At, Reading: r, Identity: e.Identify(t.Context(), s, 0, 0, r)})
		}
		off()
		assert.True(t, isEnrolled(t, store), "it may have died in that second")
		time.Sleep(time.Minute)
		off()
		assert.False(t, isEnrolled(t, store))
	})
}

// The GUID of virtualbmc is a new one at each start. Only an entry that says so lets
// a person enroll it, and then it says nothing.
func TestUUIDThatIsToBeIgnored(t *testing.T) {
	const first, second = "0d2f3f46-7e1b-4c53-9d3b-2f2d9a1c7e11", "7c1e5d9a-52f0-4f0e-8f5e-64f0f1f7a2b3"
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID(first)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.IdentityMismatch)
		notEnrolled(t, e, reason.IdentityMismatch)

		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].IgnoreUUID = true })
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.NotEnrolled)
		x := enroll(t, e)
		assert.Empty(t, x.Devices[0].UUID, "it is not stored")
		assert.Equal(t, bmc.AssuranceLower, x.Devices[0].Assurance)
		w.SetBMCUUID(second)
		assert.Equal(t, guard.IdentityMatches, reports(t, e, bmc.Identity{UUID: second}).Identity)
		assert.True(t, isEnrolled(t, store))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}

// An entry that no longer ignores the UUID is another entry.
func TestEnrolmentEndsWithIgnoreUUID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.SetBMCUUID("")
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].IgnoreUUID = true })
		e, _ := enrolled(t, w, store, nil)
		assert.Equal(t, guard.IdentityMatches, reports(t, e, bmc.Identity{}).Identity)
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].IgnoreUUID = false })
		assert.Equal(t, guard.IdentityUnproven, reports(t, e, bmc.Identity{}).Identity)
	})
}

// A BMC that has lost its UUID for a while is not enrolled without it, and its host
// is not fenced meanwhile.
func TestLostUUIDIsNotEnrolledAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		e := running(t, w, store, nil)
		time.Sleep(time.Second)
		checkHealthy(t, e)
		w.SetBMCUUID("")
		notEnrolled(t, e, reason.IdentityUnknown)
		assert.Equal(t, guard.IdentityUnproven, reports(t, e, bmc.Identity{}).Identity)
	})
}

// The UUID of this daemon's own BMC is not ignored. // I13
func TestOwnBMCIsNotEnrolledByIgnoringItsUUID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const own = "4c4c4544-0042-3510-8054-b4c04f4d7777"
		w.SetBMCUUID(own)
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].IgnoreUUID = true })
		e := running(t, w, store, func(o *engine.Options) { o.Own.UUIDs = []string{own} })
		time.Sleep(time.Second)
		notEnrolled(t, e, reason.OwnHost)
		reports(t, e, bmc.Identity{UUID: own})
		s := subject(t, e)
		var codes []reason.Code
		for _, r := range e.Forbidden(t.Context(), s) {
			codes = append(codes, r.Reason)
		}
		assert.Contains(t, codes, reason.OwnHost)
	})
}

// An Off that such a device reads twice is worth what an outlet's is, and shortens
// no wait.
func TestProofOfABMCWithoutUUIDIsLower(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID("")
		e, _ := enrolled(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.ProofDevice, only(t, e).Proof)
	})
}

// Two hosts lead to one BMC: a person may say whose it is if the BMC bears that out,
// and not if only the other host could tell. // I9
func TestTwinIsNotEnrolledWithoutUUID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		m := newMetal(w)
		m.useOn("other-0", "h-2")
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10:623" })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		o := dryRun(byHand)
		_, err := e.Enroll(t.Context(), o)
		require.NoError(t, err, "the BMC says that it is that of n-1")
		w.SetBMCUUID("")
		_, err = e.Enroll(t.Context(), o)
		refusedFor(t, err, reason.DuplicateHost)
		m.drop("h-2")
		time.Sleep(2 * time.Second)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err, "a BareMetalHost needs no entry in hosts.d for that")
		assert.Equal(t, guard.IdentityMatches, reports(t, e, bmc.Identity{}).Identity)
	})
}

// What would forbid to fence a host by itself is known before its Node fails: its entry protects it, another Node has its system
// UUID, or the owner of its power wants it left alone. None of that keeps its identity from being pinned. // I9, I13, I22
func TestWhatForbidsAFenceIsKnownBefore(t *testing.T) {
	for code, spoil := range map[reason.Code]func(*world){
		reason.Protected:     func(w *world) { w.ChangeEntry(func(h *bmc.Host) { h.Protected = true }) },
		reason.DuplicateUUID: func(w *world) { w.duplicateUUID() },
		reason.PowerOwner: func(w *world) {
			newMetal(w).set("h-1", func(h *policy.Host) { h.Online = false })
		},
	} {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			w.Recover()
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			subject := func() hosts.Subject { return must.Do(e.SubjectOf(t.Context(), "c", "n-1"))(t) }
			require.Empty(t, e.Forbidden(t.Context(), subject()))
			spoil(w)
			time.Sleep(2 * time.Second)
			list := e.Forbidden(t.Context(), subject())
			require.NotEmpty(t, list)
			assert.Equal(t, code, list[0].Reason)
		})
	}
}
