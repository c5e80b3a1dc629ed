package engine_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
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
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// outletReads lets a health check find the outlet of n-1 in this state.
func outletReads(t *testing.T, e *engine.Engine, s bmc.PowerState) {
	t.Helper()
	e.Checked(t.Context(), outletOf(t, e, s))
}

// outletOf is a health check of the outlet of n-1.
func outletOf(t *testing.T, e *engine.Engine, s bmc.PowerState) hosts.Checked {
	t.Helper()
	subject := subject(t, e)
	r := bmc.Reading{State: s, At: time.Now(), Session: 1}
	return hosts.Checked{Subject: subject, Level: 1, At: r.At, Reading: r, Identity: e.Identify(t.Context(), subject, 1, 0, r)}
}

// lives has n-1 be Ready, with a kubelet that renews its Lease.
func lives(w *world) { w.SetReady("True"); w.SetLeaseMoving(true) }

// An outlet that reads Off while the Node that it should feed is alive feeds another host,
// or none. Its Off is no proof until a person enrols it again. // I1, I8
func TestOffOfALiveNodeEndsTheEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		p, levels := withOutlet(w)
		e, events, stop := start(t, w, store, levels)
		time.Sleep(time.Second)
		enroll(t, e)
		outletReads(t, e, bmc.Off)
		time.Sleep(59 * time.Second)
		outletReads(t, e, bmc.Off)
		require.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy, "it may have died in that second")
		time.Sleep(time.Second)
		store.set(true)
		outletReads(t, e, bmc.Off)
		store.set(false)
		require.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy, "nothing is known that is not stored")
		outletReads(t, e, bmc.Off)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		const why = "fence_apc_snmp://192.0.2.200#7 read Off while Node n-1 was Ready; enroll again after checking the outlet"
		assert.Equal(t, []string{why}, told(t, events, reason.NotEnrolled))

		s := subject(t, e)
		assert.Equal(t, []reason.Refusal{{Reason: reason.NotEnrolled, Message: why}}, e.Forbidden(t.Context(), s))
		checkHealthy(t, e)
		outletReads(t, e, bmc.Off)
		assert.Equal(t, []string{why}, told(t, events, reason.NotEnrolled), "once")
		stop()

		e = running(t, w, store, levels)
		time.Sleep(time.Second)
		assert.Equal(t, why, e.Forbidden(t.Context(), s)[0].Message, "a restart forgets nothing")
		w.Hang()
		w.SetLeaseMoving(false)
		w.FailReads(noAnswer())
		time.Sleep(5 * time.Minute)
		assert.Empty(t, p.Commands())
		assert.Empty(t, e.Runs("c"))
		notEnrolled(t, e, "BMCUnreachable")
		w.FailReads(nil)
		enroll(t, e)
		assert.Empty(t, e.Forbidden(t.Context(), s))
	})
}

func told(t *testing.T, events *event.Stream, code reason.Code) (messages []string) {
	t.Helper()
	contradicts := func(ev event.Event) bool {
		return ev.Type == event.Refused && ev.Reason == code && strings.Contains(ev.Message, "read Off")
	}
	for _, ev := range eventsOf(t, events, contradicts) {
		messages = append(messages, ev.Message)
	}
	return messages
}

// An Off does not contradict an enrolment if the Node has died, if only the view shows it
// Ready, if no kubelet renews its Lease, or if an On reading, a run or an unhealthy Node
// came in between.
func TestWhatEndsNoEnrolment(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, e *engine.Engine, w *world){
		"the Node died": func(_ *testing.T, _ *engine.Engine, w *world) {
			w.SetReady("Unknown")
			w.SetLeaseMoving(false)
		},
		"only the view says Ready": func(_ *testing.T, _ *engine.Engine, w *world) {
			w.OnLook(func(int) { w.SetReady("Unknown") })
		},
		"the Lease stands still": func(_ *testing.T, _ *engine.Engine, w *world) {
			w.SetLeaseMoving(false)
		},
		"it read On between": func(t *testing.T, e *engine.Engine, _ *world) { outletReads(t, e, bmc.On) },
		"a run switched it between": func(t *testing.T, e *engine.Engine, _ *world) {
			k := outletOf(t, e, bmc.Off)
			k.Subject.Healthy = false
			e.Checked(t.Context(), k)
		},
		"the Node was sick between": func(t *testing.T, e *engine.Engine, w *world) {
			w.SetReady("Unknown")
			time.Sleep(2 * time.Second)
			outletReads(t, e, bmc.Unknown)
			w.SetReady("True")
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			_, levels := withOutlet(w)
			e, _ := enrolled(t, w, store, levels)
			outletReads(t, e, bmc.Off)
			w.SetLeaseMoving(true)
			between(t, e, w)
			time.Sleep(time.Minute)
			outletReads(t, e, bmc.Off)
			assert.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		})
	}
}

// A failed reading contradicts nothing, and does not separate two readings of Off.
func TestFailedReadingIsNeitherOffNorOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		_, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		for range 3 {
			outletReads(t, e, bmc.Unknown)
			time.Sleep(time.Minute)
		}
		require.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		outletReads(t, e, bmc.Off)
		time.Sleep(30 * time.Second)
		outletReads(t, e, bmc.Unknown)
		time.Sleep(30 * time.Second)
		outletReads(t, e, bmc.Off)
		assert.Empty(t, pinOf(t, store, "c/n-1").EnrolledBy)
	})
}

// A BMC that reports the host's identity belongs to the host, whatever power state it
// reads.
func TestOffOfAnIdentifiedBMCEndsNoEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "pinned" })
		e, _ := enrolled(t, w, store, nil)
		for range 3 {
			k := checked(t, e, hostUUID, "")
			k.Reading.State = bmc.Off
			e.Checked(t.Context(), k)
			time.Sleep(time.Minute)
		}
		assert.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
	})
}

// Agents read Off for an outlet that does not exist. So a device that reports no identity
// is enrolled only while it reads On. // I8
func TestOnlyADeviceThatReadsOnIsEnrolled(t *testing.T) {
	for name, c := range map[string]struct {
		ready string
		reads bmc.PowerState
		want  reason.Code
	}{
		"Off while the Node is Ready":     {"True", bmc.Off, reason.IdentityMismatch},
		"Off while it is not":             {"Unknown", bmc.Off, reason.IdentityUnknown},
		"Unknown while the Node is Ready": {"True", bmc.Unknown, reason.IdentityUnknown},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady(c.ready)
			p, levels := withOutlet(w)
			p.Change(func(o *fake.Outlet) { o.FixedReading = new(c.reads) })
			e := running(t, w, store, levels)
			time.Sleep(time.Second)
			notEnrolled(t, e, c.want)
			p.Change(func(o *fake.Outlet) { o.FixedReading = nil })
			enroll(t, e)
		})
	}
}

// withLPAR gives the host a second level whose plug is one of several systems'.
func withLPAR(w *world) (*fake.OutletHandle, func(*engine.Options)) {
	p, levels := withOutlet(w)
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[1].Devices[0]
		d.Agent, d.Parameters = "fence_lpar", map[string]string{"plug": "node1", "managed": "system-a"}
	})
	return p, levels
}

// choose changes a parameter of the second level's device.
func (w *world) choose(name, value string) {
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[1].Devices[0]
		d.Parameters = maps.Clone(d.Parameters)
		d.Parameters[name] = value
	})
}

// The parameters that select the machine behind an address are part of the enrolment,
// whatever the agent calls them: managed of fence_lpar, zone of fence_gce, target of
// fence_ipmilan. // I8, I10
func TestEnrolmentEndsWithTheParameters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, levels := withLPAR(w)
		e, _ := enrolled(t, w, store, levels)
		verdict := func() guard.IdentityVerdict {
			s := subject(t, e)
			return e.Identify(t.Context(), s, 1, 0, bmc.Reading{})
		}
		require.Equal(t, guard.IdentityMatches, verdict())
		w.choose("managed", "system-b")
		assert.Equal(t, guard.IdentityNotEnrolled, verdict(), "node1 of system-b was never enrolled")
		enroll(t, e)
		assert.Equal(t, guard.IdentityMatches, verdict())
	})
}

// A run continues with the parameters with which it started, and with no others, even if
// others are enrolled meanwhile. // I10
func TestRunDoesNotFollowOtherParameters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withLPAR(w)
		w.SetFault(fake.IgnoresOff)
		e, _ := enrolled(t, w, store, levels)
		time.Sleep(untilOff)
		require.Zero(t, only(t, e).Level)
		w.choose("managed", "system-b")
		enroll(t, e)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Held, only(t, e).Step)
		assert.Empty(t, p.Commands(), "node1 of system-b is another machine")
	})
}

const otherUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"

// A Node's power was pinned at one BMC. A BareMetalHost that names another BMC, and a Machine that names another
// BareMetalHost, change the address, and are not followed: only a person may confirm the change. // I10
func TestChangedAddressIsNotFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		moves        func(m metal)
		host, pinned string
	}{
		"the BareMetalHost names another BMC": {func(m metal) {
			m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.66" })
		}, "ns/h-1", "ipmi://192.0.2.10:623"},
		"the Machine names another BareMetalHost": {func(m metal) {
			m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://203.0.113.66" })
			m.drop("h-1")
			m.use("h-2")
		}, "ns/h-2", ""},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := newMetal(w)
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			require.Equal(t, "ipmi://192.0.2.10:623", pinOf(t, store, "c/ns/h-1").Address)
			c.moves(m)
			time.Sleep(5 * time.Second)
			require.Equal(t, c.host, subject(t, e).BareMetalHost)
			reads := w.Reads()
			refusedByHand(t, e, reason.AddressChanged)
			checkHealthy(t, e)
			assert.Equal(t, c.pinned, pinOf(t, store, "c/"+c.host).Address, "no health check follows it, though the right machine answers there")
			stop()
			w.Hang()
			e = running(t, w, store, nil) // nor does a restart forget
			time.Sleep(5 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			refused(t, reason.AddressChanged)(e.Fence(t.Context(), byHand))
			assert.Equal(t, reads, w.Reads(), "the new address is not even asked")
			enroll(t, e)
			accepted(t)(e.Fence(t.Context(), dryRun(byHand)))
		})
	}
}

// Another name for the same BMC is no change of address.
func TestRenamedHostWithTheSameBMCIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		m.drop("h-1")
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10" })
		m.use("h-2")
		time.Sleep(5 * time.Second)
		checkHealthy(t, e)
		assert.Equal(t, hostUUID, pinOf(t, store, "c/ns/h-2").SystemUUID)
	})
}

// If the Node is missing, only the pin says which host a BMC belongs to. The BMC of
// another Node's machine is not used for a Machine that names it. // I8, I10
func TestPinnedBMCIsNotUsedForAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.20" })
		m.use("h-2")
		w.RemoveNode()
		w.SetBMCUUID(otherUUID)
		must.Do(state.SavePin(t.Context(), store, state.Pin{Host: "c/ns/h-2", Node: "n-2", SystemUUID: otherUUID, Address: "ipmi://192.0.2.20:623",
			Devices: bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Host: "192.0.2.20", Port: 623}}.Key()}))(t)
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Second)
		refused(t, reason.AddressChanged)(e.Fence(t.Context(), byHand))
		assert.Zero(t, w.Reads())
	})
}

// If a pin cannot be read, the earlier address of a machine is not known, and no new
// address is followed.
func TestUnreadablePinsForbidNewAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		newMetal(w)
		must.Do(store.Put(t.Context(), state.Record{Kind: state.KindPin, Key: "c/ns/h-9", Data: []byte("{")}))(t)
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Second)
		refused(t, reason.InvalidHost)(e.Fence(t.Context(), byHand))
		enroll(t, e)
		accepted(t)(e.Fence(t.Context(), dryRun(byHand))) // a person has vouched for this one
	})
}

// given is the passwords that BMCs were asked with, by address.
type given struct {
	mu sync.Mutex
	to map[string][]string
}

// at is the last one.
func (g *given) at(host string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.to[host]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

func (g *given) were(host, password string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.to[host], password)
}

// sweeping runs health checks over an engine until stop.
func sweeping(t *testing.T, w *world, e *engine.Engine) (*sweep.Sweep, *given, func()) {
	g := &given{to: map[string][]string{}}
	actors := power.NewActors(func(d bmc.Device) (bmc.Power, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.to[d.Endpoint.Host] = append(g.to[d.Endpoint.Host], cmp.Or(d.Password.Reveal(), "none"))
		return w.bmc(), nil
	})
	s := sweep.New(sweep.Options{Engine: e, Open: actors.Patient(), Urgent: actors.Urgent(), LockOut: e.LockOut, Every: time.Minute,
		ReadTimeout: 5 * time.Second, Concurrency: sweep.DefaultConcurrency, OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, g, func() {
		cancel()
		require.NoError(t, <-done)
		time.Sleep(time.Minute) // until the clients are closed
	}
}

// The health check, too, sends the password of a BareMetalHost only to the BMC with which
// it was pinned. Otherwise anyone who may write that object could choose where the
// password goes. // I10
func TestPasswordDoesNotFollowABareMetalHost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const otherAddress = "203.0.113.66"
		m := newMetal(w)
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		s, passwords, end := sweeping(t, w, e)
		time.Sleep(3 * time.Minute)
		require.Equal(t, "hush", passwords.at("192.0.2.10"))

		m.set("h-1", func(h *policy.Host) { h.Address = "redfish://" + otherAddress + "/redfish/v1/Systems/1" })
		time.Sleep(15 * time.Minute)
		assert.Empty(t, passwords.at(otherAddress), "nobody has vouched for that address")
		assert.True(t, subjectOf(t, e, "ns/h-1").Host.Levels[0].Devices[0].Password.Empty())
		list := must.Do(s.Results(t.Context(), "c"))(t)
		require.Len(t, list, 1)
		assert.Equal(t, reason.AddressChanged, list[0].Reason)
		assert.False(t, list[0].Dependable)

		_, err := s.Test(t.Context(), "c", "n-1")
		refusedFor(t, err, reason.AddressChanged)
		assert.Empty(t, passwords.at(otherAddress), "who wants it asked enrolls it")

		enroll(t, e)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "hush", passwords.at(otherAddress))
		list = must.Do(s.Results(t.Context(), "c"))(t)
		assert.True(t, list[0].Dependable)
		end()
	})
}
