package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// unusable is a hosts.d whose entry of n-1 is refused.
type unusable struct{ hosts.Inventory }

func (unusable) Find(context.Context, string, string) (bmc.Host, bool, error) {
	return bmc.Host{}, false, errors.New("address: no scheme")
}

// A manual confirmation takes the place of a proof where none can be had: the Node is
// isolated, the host is left off, and the record says so permanently. // I26
func TestConfirmOffWithoutARun(t *testing.T) {
	for name, change := range map[string]func(*world, *engine.Options){
		"a dead BMC":         func(w *world, _ *engine.Options) { w.dead() },
		"no BMC":             func(w *world, _ *engine.Options) { w.DropEntry() },
		"an entry of no use": func(w *world, o *engine.Options) { o.Hosts = unusable{w} },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			l := &ledger{}
			e, _, stop := start(t, w, store, func(o *engine.Options) {
				o.Record = l.record
				change(w, o)
			})
			time.Sleep(time.Second)
			dry := dryRun(byHand)
			out := accepted(t)(e.ConfirmOff(t.Context(), dry))
			assert.Len(t, out.Evidence, 3, "power, Node and Lease: %v", out.Evidence)
			require.Empty(t, e.Runs("c"))

			out = accepted(t)(e.ConfirmOff(t.Context(), byHand))
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, out.Run, r.ID)
			assert.Equal(t, remediate.Held, r.Step, r.Note)
			assert.Equal(t, "ConfirmedOff", string(r.Reason), r.Note)
			assert.Equal(t, remediate.ProofHuman, r.Proof)
			assert.Equal(t, byHand.Actor, r.Confirmed.Actor)
			assert.Equal(t, 1, w.Isolations())
			assert.Zero(t, w.Count(bmc.CommandOn))
			stop()
			took := l.all()
			at := slices.IndexFunc(took, func(ev event.Event) bool { return ev.Action == remediate.IsolateNode })
			require.NotEqual(t, -1, at)
			assert.Contains(t, took[at].Inputs, ` proof=Human by="ada (uid 1000)" proven=false`, "nobody takes it for a reading")
		})
	}
}

// A run that is Held because it has no proof accepts the confirmation.
func TestConfirmOffOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var trouble atomic.Value // of the audit log
		trouble.Store("")
		e := running(t, w, store, func(o *engine.Options) { o.AuditTrouble = func() string { return trouble.Load().(string) } })
		r := until(t, e, remediate.PowerOff)
		refused(t, reason.OrderRefused)(e.ConfirmOff(t.Context(), byHand))
		w.dead()
		until(t, e, remediate.Held)
		require.Zero(t, w.Isolations())
		e.ApplyConfig.Policies("c", cluster.Files{Refused: "policies.d/a.yaml:4: spec.limt: unknown key"})
		time.Sleep(time.Second)                                            // the deciding loop takes it
		refused(t, reason.FilesRefused)(e.ConfirmOff(t.Context(), byHand)) // what it protects is not known // I18
		e.ApplyConfig.Policies("c", cluster.Files{})
		trouble.Store("no space left on device")
		time.Sleep(time.Second)
		refused(t, reason.AuditFailed)(e.ConfirmOff(t.Context(), byHand)) // the isolation must be on record first // I24
		trouble.Store("")
		time.Sleep(10 * time.Minute)
		require.Zero(t, w.Isolations(), "a refused confirmation is not kept")
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		got := only(t, e)
		assert.Equal(t, r.ID, got.ID)
		assert.Equal(t, "ConfirmedOff", string(got.Reason), got.Note)
		assert.Equal(t, 1, w.Isolations())

		w.SetPower(true) // somebody mends the mains, and the host boots
		w.FailReads(nil)
		time.Sleep(20 * time.Minute)
		got = stands(t, e, remediate.Done)
		assert.NotNil(t, got.Confirmed, "for ever")
		assert.True(t, w.Restored())
	})
}

// A manual confirmation is refused if evidence contradicts it, or if a gate that is not
// about the BMC fails. // I26
func TestConfirmOffIsRefused(t *testing.T) {
	for code, change := range map[reason.Code]func(t *testing.T, w *world, e *engine.Engine){
		reason.ConfirmedOffContradicted: func(_ *testing.T, w *world, _ *engine.Engine) { w.SetPower(true); w.FailReads(nil) },
		reason.Contested:                func(_ *testing.T, w *world, _ *engine.Engine) { w.setContested(remediate.Yes) },
		reason.NotSynced:                func(_ *testing.T, w *world, _ *engine.Engine) { w.setUnsynced(true) },
		reason.Hold:                     func(t *testing.T, _ *world, e *engine.Engine) { accepted(t)(e.Hold(t.Context(), byHand)) },
		reason.Paused:                   func(t *testing.T, _ *world, e *engine.Engine) { accepted(t)(e.Pause(t.Context(), byHand)) },
	} {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.dead()
			e := running(t, w, store, nil)
			time.Sleep(time.Second)
			change(t, w, e)
			refused(t, code)(e.ConfirmOff(t.Context(), byHand))
			assert.Empty(t, e.Runs("c"))
			assert.Zero(t, w.Isolations())
		})
	}
	for name, seen := range map[string]func(w *world){
		"Ready":     func(w *world) { w.SetReady("True") },
		"renewing":  func(w *world) { w.SetLeaseMoving(true) },
		"coming on": func(w *world) { w.SetBootTime(never); w.SetPower(true); w.FailReads(nil) }, // the BMC alone says so
	} {
		scene(t, "later seen "+name, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.dead()
			e := running(t, w, store, nil)
			time.Sleep(time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			time.Sleep(5 * time.Second) // the Lease must stand still for longer
			seen(w)
			time.Sleep(5 * time.Minute)
			r := only(t, e)
			assert.Equal(t, string(reason.ConfirmedOffContradicted), string(r.Reason), r.Note)
			assert.Zero(t, w.Isolations())
		})
	}
}

// readOnlyBMC is one whose account may read and not switch.
type readOnlyBMC struct{ bmc.Power }

func (readOnlyBMC) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	return bmc.Receipt{}, &bmc.Error{Kind: bmc.KindPrivilege, Op: "send off", Addr: "192.0.2.1"}
}

// A BMC whose account may only read says that the host runs, also right after it refused an Off. // I26
func TestConfirmationAsksABMCThatMayOnlyBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return readOnlyBMC{w.bmc()}, nil }
		})
		await(t, func() bool { return len(e.Runs("c")) == 1 && only(t, e).Step.Idle() })
		w.SetBootTime(never) // the BMC alone says so
		refused(t, reason.ConfirmedOffContradicted)(e.ConfirmOff(t.Context(), byHand))
		assert.Zero(t, w.Isolations())
	})
}

// deadOutlet is one that nobody can reach.
type deadOutlet struct{}

func (deadOutlet) Read(context.Context) (bmc.Reading, error) { return bmc.Reading{}, noAnswer() }

func (deadOutlet) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	return bmc.Receipt{}, noAnswer()
}

func (deadOutlet) Close(context.Context) error { return nil }

// wrongWord is a switch that is down: neither the Node, nor its BMC, nor the PDU answers, and a person
// says that the host is off, which runs.
func wrongWord(t *testing.T, w *world, store state.Store, first bmc.Opener) (e *engine.Engine, stop func()) {
	w.pauseCheck()
	withOutlet(w)
	w.FailReads(noAnswer()) // w.On() stays
	e, _, stop = start(t, w, store, func(o *engine.Options) {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			if d.Driver == bmc.DriverFenceAgent {
				return deadOutlet{}, nil
			}
			return first(d)
		}
	})
	time.Sleep(time.Second)
	accepted(t)(e.ConfirmOff(t.Context(), byHand))
	await(t, func() bool { return only(t, e).Level > 0 })
	require.Equal(t, remediate.PowerOff, only(t, e).Step)
	return e, stop
}

// The BMC returns and reads On before the Node is isolated. // I26
func TestConfirmationIsContradictedByABMCThatReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _ := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return w.bmc(), nil })
		w.FailReads(nil)
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Held, "ConfirmedOffContradicted")
		assert.Regexp(t, "^(power level 1 .*|ipmi://192.0.2.1:623) reads On", r.Note, "asked by the run, or heard by the witness of the level above")
		assert.Contains(t, r.Note, "reads On, although ada (uid 1000) confirmed that the host is off")
		assert.Zero(t, w.Isolations())
	})
}

// heardOnce is a BMC that answers once after it was told to: one question, or all of one
// moment.
type heardOnce struct {
	bmc.Power
	told   *atomic.Bool
	moment *atomic.Int64 // nil for one question
}

func (h heardOnce) Read(ctx context.Context) (bmc.Reading, error) {
	now := time.Now()
	first := h.told.CompareAndSwap(true, false)
	if first && h.moment != nil {
		h.moment.Store(now.UnixNano())
	}
	if first || h.moment != nil && h.moment.Load() == now.UnixNano() {
		return bmc.Reading{State: bmc.On, At: now, Session: 1}, nil
	}
	return h.Power.Read(ctx)
}

// All levels are read once more before the isolation. An On then counts, even if no level
// answers in the next look. // I26
func TestAllLevelsAreReadBeforeAConfirmationCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers atomic.Bool
		var moment atomic.Int64
		e, _ := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardOnce{w.bmc(), &answers, &moment}, nil })
		var isolates atomic.Int32
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) {
				isolates.Add(1)
				answers.Store(true) // its look is over: only the last question hears this
			}
		})
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.EqualValues(t, 1, isolates.Load())
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
	})
}

// If a BMC answers a single read, its On contradicts the confirmation, whether the look
// read it or the witnesses of the level above, whose own reading failed. // I26
func TestOneOnReadingContradictsAConfirmation(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var answers atomic.Bool
			e, _ := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardOnce{w.bmc(), &answers, nil}, nil })
			time.Sleep(after)
			answers.Store(true)
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), "after %s: %s", after, r.Note)
			assert.Zero(t, w.Isolations())
		})
	}
}

// unsureOutlet answers, and does not say whether it is on.
type unsureOutlet struct{ deadOutlet }

func (unsureOutlet) Read(context.Context) (bmc.Reading, error) {
	return bmc.Reading{Raw: "null", At: time.Now(), Session: 1}, nil
}

// slowOutlet is one that takes so long for that that a BMC which takes 8 s answers between two looks.
type slowOutlet struct{ unsureOutlet }

func (o slowOutlet) Read(ctx context.Context) (bmc.Reading, error) {
	time.Sleep(400 * time.Millisecond)
	return o.unsureOutlet.Read(ctx)
}

// One On counts also beside a level that answers and reads Unknown, whether a witness read it or the last question before
// the isolation. // I26
func TestOneOnReadingCountsBesideALevelThatReadsUnknown(t *testing.T) {
	for _, asked := range []string{"as a witness", "last"} {
		scene(t, asked, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			var answers, isolates atomic.Bool
			w.pauseCheck()
			withOutlet(w)
			w.FailReads(noAnswer()) // w.On() stays
			bmcOnce := heardOnce{w.bmc(), &answers, nil}
			if asked == "last" {
				bmcOnce.moment = &atomic.Int64{}
				store.watch(func(run []byte) { // the look is over
					if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) && isolates.CompareAndSwap(false, true) {
						answers.Store(true)
					}
				})
			}
			e := running(t, w, store, opening(bmcOnce, unsureOutlet{}))
			time.Sleep(time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			await(t, func() bool { return only(t, e).Level > 0 })
			if asked != "last" {
				answers.Store(true)
			}
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
			assert.Equal(t, asked == "last", isolates.Load())
			assert.Zero(t, w.Isolations())
		})
	}
}

// dyingBMC is a BMC that from when it is told to reads On once, in another session, and then answers nothing any more.
type dyingBMC struct {
	bmc.Power
	told, dead *atomic.Bool
}

func (d dyingBMC) Read(ctx context.Context) (bmc.Reading, error) {
	switch {
	case d.dead.Load():
		return bmc.Reading{}, noAnswer()
	case d.told.Load():
		d.dead.Store(true)
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 99}, nil
	}
	return d.Power.Read(ctx)
}

// An On that is read while the isolation is under way contradicts a confirmation, also where a BMC has proven the host off, and then
// answers nothing any more: mains that return switch host and BMC on. // I26
func TestOnDuringAnIsolationContradictsAConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var on, dead atomic.Bool
		w.pauseCheck()
		w.SetPower(false)
		k := &deadWebhook{Kube: w, wait: 25 * time.Second, begun: func() { time.AfterFunc(3*time.Second, func() { on.Store(true) }) }}
		e := running(t, w, store, func(o *engine.Options) {
			o.Open, o.Clusters[0].Kube = func(bmc.Device) (bmc.Power, error) { return dyingBMC{w.bmc(), &on, &dead}, nil }, k
		})
		time.Sleep(time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(30 * time.Minute)
		require.True(t, dead.Load())
		r := only(t, e)
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
		assert.EqualValues(t, 1, k.cutOff.Load())
	})
}

// lateBMC takes eight seconds for each question, and reads On in answer to one: when it is told to before it answers.
type lateBMC struct {
	bmc.Power
	told *atomic.Bool
}

func (l lateBMC) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
		return bmc.Reading{}, noAnswer()
	case <-time.After(8 * time.Second):
	}
	if l.told.CompareAndSwap(true, false) {
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 1}, nil
	}
	return bmc.Reading{}, noAnswer()
}

// An On that a witness reads while the run goes on to another power level contradicts a confirmation, although the session that has it ends
// before the next look. // I26
func TestOnOfAWitnessOutlivesItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers, slow atomic.Bool
		w.ChangeEntry(func(h *bmc.Host) {
			for _, pdu := range []string{"192.0.2.200", "192.0.2.201"} {
				h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
					Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: pdu}, Parameters: map[string]string{"plug": "7"}}}})
			}
		})
		w.pauseCheck()
		e := running(t, w, store, opening(lateBMC{deadOutlet{}, &answers}, deadOutlet{})) // w.On() stays
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"level":2`)) && slow.CompareAndSwap(false, true) {
				answers.Store(true)
				time.Sleep(6 * time.Second) // the look before is over, and the next begins when this is saved
			}
		})
		time.Sleep(time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(20 * time.Minute)
		assert.False(t, answers.Load(), "it was asked")
		r := only(t, e)
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
	})
}

// refusingOutlet is one whose PDU refuses the account.
type refusingOutlet struct{ deadOutlet }

func (refusingOutlet) Read(context.Context) (bmc.Reading, error) {
	return bmc.Reading{}, &bmc.Error{Kind: bmc.KindAuth, Op: "read power state", Addr: "pdu-b"}
}

// One outlet that reads On contradicts a confirmation, although the other one of its level refuses the account or cannot be opened, which
// makes the level unreadable. // I26
func TestOutletThatReadsOnBesideARefusedAccountContradicts(t *testing.T) {
	for _, when := range []string{"when it is given", "later", "later, once", "later, alone"} {
		scene(t, when, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.FailReads(noAnswer()) // w.On() stays
			outlet := func(pdu string) bmc.Device {
				return bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: pdu}, Parameters: map[string]string{"plug": "7"}}
			}
			w.ChangeEntry(func(h *bmc.Host) {
				h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{outlet("192.0.2.200"), outlet("192.0.2.201")}})
			})
			var answers atomic.Bool
			answers.Store(when == "when it is given")
			e := running(t, w, store, func(o *engine.Options) {
				o.Open = func(d bmc.Device) (bmc.Power, error) {
					switch d.Endpoint.Host {
					case "192.0.2.200":
						if when == "later, once" {
							return heardOnce{deadOutlet{}, &answers, nil}, nil
						}
						return heardAgain{deadOutlet{}, &answers}, nil
					case "192.0.2.201":
						if when == "later, alone" {
							return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open"}
						}
						return refusingOutlet{}, nil
					}
					return w.bmc(), nil
				}
			})
			time.Sleep(time.Second)
			if when == "when it is given" {
				refused(t, reason.ConfirmedOffContradicted)(e.ConfirmOff(t.Context(), byHand))
				return
			}
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			await(t, func() bool { return only(t, e).Level > 0 })
			answers.Store(true)
			time.Sleep(20 * time.Minute)
			stands(t, e, remediate.Held, "ConfirmedOffContradicted")
			assert.Zero(t, w.Isolations())
		})
	}
}

// One reading of On contradicts a manual confirmation permanently, even if the store could
// not save it at once and the BMC no longer answers. // I26
func TestEvidenceAgainstAConfirmationOutlivesAFailedSave(t *testing.T) {
	for _, outage := range []time.Duration{0, time.Second, 20 * time.Second} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.dead()
			e := running(t, w, store, nil)
			time.Sleep(time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			time.Sleep(5*time.Second + 500*time.Millisecond)
			require.Equal(t, remediate.PowerOff, only(t, e).Step)
			store.set(outage > 0)
			w.SetBootTime(never) // nothing else speaks against the confirmation
			w.SetPower(true)
			w.FailReads(nil)
			time.Sleep(time.Second) // one look
			w.FailReads(noAnswer())
			time.Sleep(outage)
			store.set(false)
			time.Sleep(10 * time.Minute)
			stands(t, e, remediate.Held, "ConfirmedOffContradicted")
			assert.Zero(t, w.Isolations())
		})
	}
}

// An On that the BMC health check reads contradicts a confirmation, although the run's own questions are not answered. One from before, or of
// another machine's BMC that answers at the address, does not. // I26
func TestOnOfTheHealthCheckContradictsAConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration // the confirmation
		reason reason.Code
	}{
		"while it counts": {5 * time.Second, reason.ConfirmedOffContradicted},
		"before":          {-time.Second, reason.ConfirmedOff},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			var read atomic.Pointer[time.Time]
			w.pauseCheck()
			w.dead()
			e := running(t, w, store, func(o *engine.Options) {
				o.LastChecks = func(string, string) []hosts.LastCheck {
					if at := read.Load(); at != nil {
						return []hosts.LastCheck{{At: *at, LastOn: *at}}
					}
					return nil
				}
			})
			time.Sleep(2 * time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			at := time.Now().Add(c.after)
			time.Sleep(5 * time.Second)
			read.Store(&at)
			time.Sleep(20 * time.Minute)
			stands(t, e, remediate.Held, c.reason)
			assert.Equal(t, c.reason == reason.ConfirmedOff, w.Isolations() == 1)
		})
	}
}

// slowly is a BMC that takes three seconds for each question from when it is told to.
type slowly struct {
	bmc.Power
	told *atomic.Bool
}

func (s slowly) Read(ctx context.Context) (bmc.Reading, error) {
	if s.told.Load() {
		time.Sleep(3 * time.Second)
	}
	return s.Power.Read(ctx)
}

// An On that the BMC health check reads after a confirmation was given contradicts it, also while fenced still looks for evidence against it. // I26
func TestOnWhileFencedLooksForEvidenceContradictsAConfirmation(t *testing.T) {
	for name, held := range map[string]bool{"no run": false, "a Held run": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			var read atomic.Pointer[time.Time]
			var slow atomic.Bool
			if !held {
				w.pauseCheck()
				w.dead()
			}
			e := running(t, w, store, func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return slowly{w.bmc(), &slow}, nil }
				o.LastChecks = func(string, string) []hosts.LastCheck {
					if at := read.Load(); at != nil {
						return []hosts.LastCheck{{At: *at, LastOn: *at}}
					}
					return nil
				}
			})
			time.Sleep(2 * time.Second)
			if held {
				until(t, e, remediate.PowerOff)
				w.dead()
				until(t, e, remediate.Held)
			}
			slow.Store(true)
			time.AfterFunc(time.Second, func() { at := time.Now(); read.Store(&at) })
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			require.NotNil(t, read.Load(), "before it was accepted")
			time.Sleep(20 * time.Minute)
			stands(t, e, remediate.Held, "ConfirmedOffContradicted")
			assert.Zero(t, w.Isolations())
		})
	}
}

// The clock of the process that took a confirmation may have been ahead: what another one reads on since it has the run contradicts it all
// the same. // I16, I26
func TestOnContradictsAConfirmationOfAClockThatWasAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var answers atomic.Bool
		w.pauseCheck()
		withOutlet(w)
		w.FailReads(noAnswer()) // w.On() stays
		e, _, stop := start(t, w, store, opening(w.bmc(), deadOutlet{}))
		time.Sleep(time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		await(t, func() bool { return only(t, e).Level > 0 })
		stop()
		r := must.Do(state.GetRun(t.Context(), store, only(t, e).ID))(t)
		r.Confirmed.At = r.Confirmed.At.Add(50 * time.Second) // of the minute that clocks may differ here
		r.Confirmation.Given = r.Confirmed.At
		must.Do(state.SaveRun(t.Context(), store, r))(t)

		slow := lateBMC{deadOutlet{}, &answers}
		e = running(t, w, store, opening(slow, deadOutlet{}))
		time.Sleep(2 * time.Second)
		answers.Store(true)
		time.Sleep(20 * time.Minute)
		require.False(t, answers.Load())
		stands(t, e, remediate.Held, "ConfirmedOffContradicted")
		assert.Zero(t, w.Isolations())
	})
}

// slowSecrets is an API server that from a moment on takes three seconds for each Secret.
type slowSecrets struct {
	engine.Kube
	slow atomic.Bool
}

func (k *slowSecrets) Credentials(ctx context.Context, ns, name string) (string, bmc.Secret, error) {
	if k.slow.Load() {
		select {
		case <-ctx.Done():
			return "", bmc.Secret{}, ctx.Err()
		case <-time.After(3 * time.Second):
		}
	}
	return k.Kube.Credentials(ctx, ns, name)
}

// An API server that is slow keeps no BMC from being asked before the isolation: the run has its password already. // I26
func TestLastQuestionWaitsForNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers, isolates atomic.Bool
		newMetal(w)
		w.pauseCheck()
		w.FailReads(noAnswer()) // w.On() stays
		k := &slowSecrets{Kube: w}
		once := heardOnce{w.bmc(), &answers, &atomic.Int64{}}
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) && isolates.CompareAndSwap(false, true) {
				k.slow.Store(true)
				answers.Store(true)
			}
		})
		e := running(t, w, store, func(o *engine.Options) {
			o.Open, o.Clusters[0].Kube = func(bmc.Device) (bmc.Power, error) { return once, nil }, k
		})
		time.Sleep(2 * time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(20 * time.Minute)
		assert.True(t, isolates.Load())
		r := only(t, e)
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
	})
}

// stranger is a BMC that refuses the account.
type stranger struct{ deadOutlet }

func (stranger) Read(context.Context) (bmc.Reading, error) { return bmc.Reading{}, refusedAccount() }

// A password that was corrected since the session began is used for the last question: the BMC that refused the former one reads On. // I26
func TestLastQuestionUsesTheCorrectedPassword(t *testing.T) {
	for _, from := range []string{"a file", "a Secret"} {
		scene(t, from, func(t *testing.T, w *world, store *failingStore) {
			correct := func(password string) {
				w.Do(func(s *fake.State) { s.Secrets["bmc"] = fake.Account{User: "admin", Password: bmc.NewSecret(password)} })
				w.ChangeEntry(func(h *bmc.Host) {
					if d := &h.Levels[0].Devices[0]; from == "a Secret" {
						d.Secret, d.Password = "ns/bmc", bmc.Secret{}
					} else {
						d.Password = bmc.NewSecret(password)
					}
				})
			}
			w.pauseCheck()
			withOutlet(w)
			correct("wrong")
			e := running(t, w, store, func(o *engine.Options) {
				o.Open = func(d bmc.Device) (bmc.Power, error) {
					switch {
					case d.Driver == bmc.DriverFenceAgent:
						return deadOutlet{}, nil
					case d.Password.Equal(bmc.NewSecret("right")):
						return w.bmc(), nil // it is On
					}
					return stranger{}, nil
				}
			})
			time.Sleep(time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			await(t, func() bool { return only(t, e).Level > 0 })
			time.Sleep(2 * time.Second)
			correct("right")
			time.Sleep(20 * time.Minute)
			stands(t, e, remediate.Held, "ConfirmedOffContradicted")
			assert.Zero(t, w.Isolations())
		})
	}
}

// hungLook is an API server that from a moment on answers no look.
type hungLook struct {
	engine.Kube
	hangs atomic.Bool
}

func (k *hungLook) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	if k.hangs.Load() {
		<-ctx.Done()
	}
	return k.Kube.Look(ctx, r, backups)
}

// A daemon that stops, or is killed seconds later, right after it has read On has that on the record: the next look may take longer, and
// the next process does not see it. // I26
func TestEvidenceAgainstAConfirmationOutlivesTheProcess(t *testing.T) {
	for _, read := range []string{"in a look", "in a look at its own level", "between two looks", "in the last question", "during the isolation"} {
		scene(t, read, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			var answers atomic.Bool
			w.pauseCheck()
			withOutlet(w)
			w.FailReads(noAnswer()) // w.On() stays
			var once bmc.Power = heardOnce{w.bmc(), &answers, &atomic.Int64{}}
			var outlet bmc.Power = hungOutlet{}
			if read == "in a look" || read == "between two looks" {
				once = lateBMC{deadOutlet{}, &answers}
			}
			if read == "between two looks" {
				outlet = slowOutlet{}
			}
			var told atomic.Bool
			store.watch(func(run []byte) {
				if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) && read == "in the last question" && told.CompareAndSwap(false, true) {
					answers.Store(true)
				}
			})
			k := &hungLook{Kube: w}
			var kube engine.Kube = k
			if read == "during the isolation" {
				kube = &deadWebhook{Kube: w, wait: 25 * time.Second, begun: func() { told.Store(true); answers.Store(true) }}
			}
			e, _, stop := start(t, w, store, func(o *engine.Options) {
				opening(once, outlet)(o)
				o.Clusters[0].Kube = kube
			})
			time.Sleep(time.Second)
			accepted(t)(e.ConfirmOff(t.Context(), byHand))
			await(t, func() bool { return only(t, e).Level > 0 || read == "in a look at its own level" })
			killed := read == "in the last question" || read == "during the isolation"
			if !killed {
				time.Sleep(time.Second)
				k.hangs.Store(read == "in a look at its own level")
				told.Store(true)
				answers.Store(true)
			}
			await(t, func() bool { return told.Load() && !answers.Load() })
			if read != "between two looks" {
				time.Sleep(5 * time.Second) // the next look is not over: an agent says nothing for 20 s
			}
			store.refuseRuns(killed) // as if it were killed
			stop()
			store.refuseRuns(false)
			store.watch(nil)
			e = running(t, w, store, opening(w.bmc(), deadOutlet{}))
			time.Sleep(20 * time.Minute)
			stands(t, e, remediate.Held, "ConfirmedOffContradicted")
			assert.Zero(t, w.Isolations())
		})
	}
}

// hungOutlet is one whose agent says nothing for as long as it may.
type hungOutlet struct{ deadOutlet }

func (hungOutlet) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
	case <-time.After(power.AgentReadTimeout):
	}
	return bmc.Reading{}, noAnswer()
}

// Agents that take all of their time leave enough time to read the backup of the Node: a
// confirmation that nothing contradicts counts in the end. // I26
func TestHungAgentsDoNotBlockAConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		withOutlet(w)
		w.ChangeEntry(func(h *bmc.Host) {
			h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
				Driver: bmc.DriverFenceAgent, Agent: "fence_eaton_snmp", Endpoint: bmc.Endpoint{Host: "192.0.2.201"}, Parameters: map[string]string{"plug": "3"}}}})
		})
		w.dead()
		e := running(t, w, store, opening(w.bmc(), hungOutlet{}))
		time.Sleep(time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		time.Sleep(30 * time.Minute)
		assert.Equal(t, "ConfirmedOff", string(only(t, e).Reason), only(t, e).Note)
		assert.Equal(t, 1, w.Isolations())
	})
}

// heardAgain is a BMC that answers again, from when it was told to.
type heardAgain struct {
	bmc.Power
	now *atomic.Bool
}

func (h heardAgain) Read(ctx context.Context) (bmc.Reading, error) {
	if err := ctx.Err(); err != nil {
		return bmc.Reading{}, err
	}
	if h.now.Load() {
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 1}, nil
	}
	return h.Power.Read(ctx)
}

// A daemon that is stopping cannot read the levels once more, so it isolates nothing on a
// manual confirmation. // I26
func TestConfirmationIsolatesNothingWhileStopping(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers atomic.Bool
		_, stop := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardAgain{w.bmc(), &answers}, nil })
		stopped := make(chan struct{})
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) && answers.CompareAndSwap(false, true) {
				go func() { stop(); close(stopped) }()
				time.Sleep(10 * time.Millisecond) // the save ends after the stop was asked for
			}
		})
		<-stopped
		assert.True(t, answers.Load())
		assert.Zero(t, w.Isolations())
	})
}
