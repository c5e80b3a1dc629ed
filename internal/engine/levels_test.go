package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// withOutlet gives the host a second power level, by an outlet that tells no identity and
// without which the BMC says nothing.
func withOutlet(w *world) (*fake.OutletHandle, func(*engine.Options)) {
	p := w.AddOutlet("n-1")
	w.ChangeEntry(func(h *bmc.Host) {
		h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
			Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: "192.0.2.200"}, Parameters: map[string]string{"plug": "7"}}}})
	})
	return p, opening(w.bmc(), p)
}

func opening(first, outlet bmc.Power) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			if d.Driver == bmc.DriverFenceAgent {
				return outlet, nil
			}
			return first, nil
		}
	}
}

// enrolled starts an engine and enrolls n-1, whose levels are all well.
func enrolled(t *testing.T, w *world, store *failingStore, change func(*engine.Options)) (*engine.Engine, func()) {
	e, _, stop := start(t, w, store, change)
	time.Sleep(time.Second)
	enroll(t, e)
	return e, stop
}

// If the BMC is dead, the outlet proves the host off, and powers it on again.
func TestDeadBMCIsPassedOverForTheOutlet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		time.Sleep(70 * time.Second)
		require.Empty(t, e.Runs("c"), "one failure may be chance")
		time.Sleep(25 * time.Second)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		assert.Equal(t, 2, r.Limits.Levels)
		time.Sleep(10 * time.Minute)
		r = stands(t, e, remediate.Done)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, p.Commands()[:2])
		assert.Zero(t, w.Count(bmc.CommandOff), "the BMC was given none")
		assert.Equal(t, 1, w.Isolations())
	})
}

// A BMC that answers every second time is the level that is used.
func TestLevelThatFailedOnceIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		time.Sleep(65 * time.Second)
		w.FailReads(nil)
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Done)
		assert.Equal(t, remediate.ProofBMC, r.Proof)
		assert.Empty(t, p.Commands())
	})
}

// Two failures with an answer in between are not two failures in a row.
func TestFailuresInARowPassALevelOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.setContested(remediate.Yes)
		e, _ := enrolled(t, w, store, levels)
		time.Sleep(44 * time.Second)
		for _, err := range []error{noAnswer(), nil, noAnswer()} { // at the probes, at 60, 90 and 120 s
			w.FailReads(err)
			time.Sleep(30 * time.Second)
		}
		w.setContested(remediate.No)
		time.Sleep(10 * time.Second)
		require.Empty(t, e.Runs("c"))
		assert.Equal(t, 1, p.Reads(), "when it was enrolled")
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, only(t, e).Level)
	})
}

// If the BMC accepts Off and ignores it, the run goes to the next level, and needs a proof
// of its own there.
func TestRunGoesOnToTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		w.Do(func(s *fake.State) { s.Host("n-1").StartsWithMains = false })
		e, _ := enrolled(t, w, store, levels)
		time.Sleep(90 * time.Second)
		r := only(t, e)
		require.Zero(t, r.Level)
		require.NotZero(t, w.Count(bmc.CommandOff))
		time.Sleep(15 * time.Minute)
		r = stands(t, e, remediate.Done)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, bmc.CommandOff, p.Commands()[0])
		assert.Equal(t, bmc.CommandOn, w.Commands()[len(w.Commands())-1], "mains alone do not start the host") // I20
		assert.Equal(t, 1, w.Isolations())
	})
}

// After a restart a run continues at its level.
func TestRunResumesAtItsLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(2*time.Minute + 3*time.Second)
		require.Equal(t, 1, only(t, e).Level)
		stop()
		sent := w.Count(bmc.CommandOff)
		e = running(t, w, store, levels)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, sent, w.Count(bmc.CommandOff))
		assert.NotEmpty(t, p.Commands())
	})
}

// A BMC that refuses the account is not tried repeatedly: BMCs lock accounts.
func TestRefusedAccountIsPassedOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.FailReads(refusedAccount())
		before := w.Reads()
		time.Sleep(untilOff)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Less(t, w.Reads()-before, 12)
	})
}

// Probes that continue for other reasons do not try a refused account again.
func TestProbesDoNotRetryARefusedAccount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		w.setContested(remediate.Yes)
		_, stop := enrolled(t, w, store, levels)
		w.FailReads(refusedAccount())
		time.Sleep(5 * time.Minute)
		stop()
		assert.Equal(t, 2, w.Reads(), "when it was enrolled, and once")
	})
}

// A run that returns to a level that refused its account does not try the account again.
func TestRefusedAccountIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(refusedAccount())
		before := w.Reads()
		time.Sleep(4 * time.Minute)
		stop()
		assert.NotEmpty(t, p.Commands())
		assert.GreaterOrEqual(t, only(t, e).OffLevel, 1)
		assert.Equal(t, 1, w.Reads()-before, "by the level itself, and never as a witness")
	})
}

// If another machine answers, the outlet is not tried: the inventory is wrong.
func TestAnswerOfAnotherMachineTriesNoNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999")
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, p.Commands())
		assert.Equal(t, "BMC 4c4c4544-0042-3510-8054-b4c04f4d9999, Node "+hostUUID, gate(t, e, reason.IdentityMismatch).Value)
	})
}

// An outlet that no person has enrolled for this host is never switched. // I8
func TestOutletThatIsNotEnrolledIsNeverSwitched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e := running(t, w, store, levels)
		time.Sleep(time.Second)
		w.FailReads(noAnswer())
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.NotEnrolled)
		refused(t, reason.NotEnrolled)(e.Fence(t.Context(), byHand)) // people are bound, too
		w.FailReads(nil)
		enroll(t, e)
		w.FailReads(noAnswer())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		assert.NotEmpty(t, p.Commands())
	})
}

// A person needs to fence only once if the BMC is dead.
func TestManualFenceTriesTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		p, levels := withOutlet(w)
		e, _ := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		accepted(t)(e.Fence(t.Context(), byHand))
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Done)
		assert.NotEmpty(t, p.Commands())
	})
}

// sluggish is a BMC that needs some time for an answer, less than a read may take.
type sluggish struct{ bmc.Power }

func (s sluggish) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
		return bmc.Reading{}, noAnswer()
	case <-time.After(2500 * time.Millisecond):
	}
	return s.Power.Read(ctx)
}

// A BMC that reads On in 2.5 s, where a read may take 5 s, is a witness like any other:
// the host runs, and the Off of an outlet proves nothing. // I1
func TestSlowBMCIsAWitness(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, opening(sluggish{w.bmc()}, p))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		stop()
		assert.NotEmpty(t, p.Commands())
		assert.Zero(t, w.Isolations(), "the Node of a running host was deleted")
	})
}

// A BMC that cannot be opened when the outlets take its place, as while its Secret cannot be read, is a witness as soon as it can be. // I1
func TestBMCThatCouldNotBeOpenedForAMomentIsAWitness(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
		var closed atomic.Bool
		e, _ := enrolled(t, w, store, func(o *engine.Options) {
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				switch {
				case d.Driver == bmc.DriverFenceAgent:
					return p, nil
				case closed.Load():
					return nil, &reason.Refusal{Reason: reason.SecretMissing, Message: "the API server does not answer"}
				}
				return w.bmc(), nil
			}
		})
		closed.Store(true)
		await(t, func() bool { return len(p.Commands()) > 0 })
		closed.Store(false)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		assert.Zero(t, w.Isolations(), "the Node of a running host was deleted")
	})
}

// mended is a BMC that refuses the account until that is valid.
type mended struct {
	stranger
	w     *world
	valid func() bool
}

func (m mended) Read(ctx context.Context) (bmc.Reading, error) {
	if m.valid() {
		return m.w.bmc().Read(ctx)
	}
	return m.stranger.Read(ctx)
}

// A BMC that refused its account is a witness as soon as another password is known, or a health check was accepted. // I1
func TestBMCWhosePasswordIsCorrectedIsAWitness(t *testing.T) {
	for _, corrected := range []string{"here", "there"} {
		scene(t, corrected, func(t *testing.T, w *world, store *failingStore) {
			p, _ := withOutlet(w)
			p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
			w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
			var account bmc.Device
			password := func(text string) {
				w.ChangeEntry(func(h *bmc.Host) {
					h.Levels[0].Devices[0].Password = bmc.NewSecret(text)
					account = h.Levels[0].Devices[0]
				})
			}
			var accepted atomic.Value
			accepted.Store("right")
			password("right")
			e, _ := enrolled(t, w, store, func(o *engine.Options) {
				o.Open = func(d bmc.Device) (bmc.Power, error) {
					valid := func() bool { return d.Password.Equal(bmc.NewSecret(accepted.Load().(string))) }
					switch {
					case d.Driver == bmc.DriverFenceAgent:
						return p, nil
					case valid():
						return w.bmc(), nil
					}
					return mended{w: w, valid: valid}, nil
				}
			})
			password("wrong")
			await(t, func() bool { return len(p.Commands()) > 0 })
			synctest.Wait() // a login that was refused before is recorded by then
			if corrected == "here" {
				password("right")
			} else {
				accepted.Store("wrong")
				e.LockOut.Checked(account, nil)
			}
			time.Sleep(10 * time.Minute)
			assert.Equal(t, 1, only(t, e).OffLevel)
			assert.Zero(t, w.Isolations(), "the Node of a running host was deleted")
		})
	}
}

// slowAgent takes its time for each command, as fence agents do, which wait until the
// power has followed. It may take power.AgentSendTimeout.
type slowAgent struct {
	bmc.Power
	off, on time.Duration
	at      atomic.Int64 // the command that it is at work on; zero: nothing
	took    atomic.Int64 // the last command
}

func (s *slowAgent) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	needs, begun := s.off, time.Now()
	if c == bmc.CommandOn {
		needs = s.on
	}
	s.at.Store(int64(c))
	defer func() { s.at.Store(0); s.took.Store(int64(time.Since(begun))) }()
	select {
	case <-ctx.Done(): // the agent is killed
		return bmc.Receipt{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "send", Err: ctx.Err()}
	case <-time.After(needs):
		return s.Power.Send(ctx, c)
	}
}

// isAt says whether the agent is at work on a command.
func (s *slowAgent) isAt(c bmc.Command) bool { return bmc.Command(s.at.Load()) == c }

// awaitCommand returns when it is.
func (s *slowAgent) awaitCommand(c bmc.Command) {
	for !s.isAt(c) {
		time.Sleep(time.Second)
	}
}

// withSlowAgent gives the host an outlet with an agent that needs so long.
func withSlowAgent(w *world, off, on time.Duration) (*slowAgent, func(*engine.Options)) {
	p, _ := withOutlet(w)
	s := &slowAgent{Power: p, off: off, on: on}
	return s, opening(w.bmc(), s)
}

// An agent gets the time that it may take, although the Lease that says which installation
// acts is never valid for so long at once. // L1
func TestSlowAgentFences(t *testing.T) {
	for _, needs := range []time.Duration{8 * time.Second, 18 * time.Second, 25 * time.Second} {
		scene(t, needs.String(), func(t *testing.T, w *world, store *failingStore) {
			_, slow := withSlowAgent(w, needs, needs)
			e, _ := enrolled(t, w, store, slow)
			w.FailReads(noAnswer())
			time.Sleep(30 * time.Minute)
			stands(t, e, remediate.Done)
		})
	}
}

// slowPair are two instances, of which a owns the cluster, and a host whose BMC has
// died and whose agent needs so long to switch it.
func slowPair(t *testing.T, w *world, store *failingStore, off, on time.Duration) (*pair, *slowAgent) {
	t.Helper()
	agent, slow := withSlowAgent(w, off, on)
	p := newPair(t, w, store, func(_ string, o *engine.Options) { slow(o) })
	p.give("a")
	time.Sleep(time.Second)
	must.Do(p.engine["a"].Enroll(t.Context(), byHand))(t)
	w.FailReads(noAnswer())
	return p, agent
}

// The same under a claim, which is valid for 12 s at any moment. // I20
func TestSlowAgentPowersOnUnderAClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := slowPair(t, w, store, time.Second, 14*time.Second)
		time.Sleep(40 * time.Minute)
		r := only(t, p.engine["a"])
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.True(t, w.On(), "the host is left off")
	})
}

// A renewal after the loss of a claim belongs to another owner: a running command keeps
// the end that it had. // I19
func TestCommandDoesNotOutliveAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, agent := slowPair(t, w, store, time.Second, 35*time.Second)
		agent.awaitCommand(bmc.CommandOn)
		time.Sleep(20 * time.Second)
		begun := time.Now()
		p.take("a") // and waits for it
		assert.InDelta(t, 12, time.Since(begun).Seconds(), 1)
		assert.Less(t, time.Duration(agent.took.Load()), 35*time.Second)
	})
}

// A destructive command is cancelled as soon as another installation is known to
// act. // I22
func TestForeignInstallationCancelsACommand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		agent, slow := withSlowAgent(w, 35*time.Second, time.Second)
		enrolled(t, w, store, slow)
		w.FailReads(noAnswer())
		agent.awaitCommand(bmc.CommandOff)
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(10 * time.Second)
		assert.False(t, agent.isAt(bmc.CommandOff))
		assert.True(t, w.On())
	})
}
