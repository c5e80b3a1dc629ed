package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// outletReads lets a health check find the outlet of n-1 in this state.
func outletReads(t *testing.T, e *engine.Engine, s bmc.PowerState) {
	t.Helper()
	e.Checked(t.Context(), outletOf(t, e, s))
}

// outletOf is a health check of the outlet of n-1.
func outletOf(t *testing.T, e *engine.Engine, s bmc.PowerState) hosts.Checked {
	t.Helper()
	subject, err := e.SubjectOf(t.Context(), "c", "n-1")
	require.NoError(t, err)
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
		_, err := e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
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

		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, []reason.Refusal{{Reason: reason.NotEnrolled, Message: why}}, e.Forbidden(t.Context(), s))
		checkHealthy(t, e)
		outletReads(t, e, bmc.Off)
		assert.Equal(t, []string{why}, told(t, events, reason.NotEnrolled), "once")
		stop()

		e, _, stop = start(t, w, store, levels)
		time.Sleep(time.Second)
		assert.Equal(t, why, e.Forbidden(t.Context(), s)[0].Message, "a restart forgets nothing")
		w.Hang()
		w.SetLeaseMoving(false)
		w.FailReads(noAnswer())
		time.Sleep(5 * time.Minute)
		assert.Empty(t, p.Commands())
		assert.Empty(t, e.Runs("c"))
		_, err = e.Enroll(t.Context(), byHand)
		refusedFor(t, err, "BMCUnreachable")
		w.FailReads(nil)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		assert.Empty(t, e.Forbidden(t.Context(), s))
		stop()
	})
}

// told are the messages of the refusals for a reason.
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.SetReady("True")
				_, levels := withOutlet(w)
				e, stop := enrolled(t, w, store, levels)
				outletReads(t, e, bmc.Off)
				w.SetLeaseMoving(true)
				between(t, e, w)
				time.Sleep(time.Minute)
				outletReads(t, e, bmc.Off)
				assert.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
				stop()
			})
		})
	}
}

// A failed reading contradicts nothing, and does not separate two readings of Off.
func TestFailedReadingIsNeitherOffNorOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
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
		stop()
	})
}

// A BMC that reports the host's identity belongs to the host, whatever power state it
// reads.
func TestOffOfAnIdentifiedBMCEndsNoEnrolment(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		lives(w)
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "pinned" })
		e, stop := enrolled(t, w, store, nil)
		for range 3 {
			k := checked(t, e, hostUUID, "")
			k.Reading.State = bmc.Off
			e.Checked(t.Context(), k)
			time.Sleep(time.Minute)
		}
		assert.NotEmpty(t, pinOf(t, store, "c/n-1").EnrolledBy)
		stop()
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.SetReady(c.ready)
				p, levels := withOutlet(w)
				p.Change(func(o *fake.Outlet) { o.FixedReading = new(c.reads) })
				e, _, stop := start(t, w, store, levels)
				time.Sleep(time.Second)
				_, err := e.Enroll(t.Context(), byHand)
				refusedFor(t, err, c.want)
				p.Change(func(o *fake.Outlet) { o.FixedReading = nil })
				_, err = e.Enroll(t.Context(), byHand)
				require.NoError(t, err)
				stop()
			})
		})
	}
}
