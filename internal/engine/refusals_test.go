package engine_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// isRefusal keeps what was told of refusals of n-1 by the checks and gates.
func isRefusal(ev event.Event) bool {
	return (ev.Type == event.Refused || ev.Type == event.RefusalEnded) && ev.Node == "n-1" && ev.Check != ""
}

// refusedNow lists what is refused now in the cluster.
func refusedNow(e *engine.Engine) []admit.Refused { return e.Status()[0].Refused }

// policyRefusals has the checks refuse n-1, each for one reason.
var policyRefusals = map[reason.Code]func(*world, *engine.Options){
	reason.ShortCircuit: func(w *world, _ *engine.Options) {
		w.changeCheck(func(c *policy.Check) { none := intstr.FromInt32(0); c.MaxUnhealthy = &none })
	},
	reason.NoController: func(w *world, _ *engine.Options) {
		w.changeCheck(func(c *policy.Check) { c.Strategy = policy.DeleteMachines })
	},
	reason.ControlPlane: func(w *world, _ *engine.Options) {
		w.ownMachines()
		w.Do(func(s *fake.State) { s.MakeControlPlane("n-1") })
		w.changeCheck(func(c *policy.Check) { c.Strategy = policy.DeleteMachines })
	},
	reason.Overlap: func(w *world, o *engine.Options) {
		counting := nodePolicy()
		counting.Strategy = policy.CountOnly
		o.Clusters[0].FileChecks = []policy.Check{counting}
	},
	reason.Budget: func(_ *world, o *engine.Options) {
		o.Clusters[0].FileBudgets = []policy.DisruptionBudget{{Name: "all", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(0)}}
	},
	reason.ClusterUpgrading: func(w *world, _ *engine.Options) {
		w.Do(func(s *fake.State) { s.ShowUpgrade("to 4.22") })
		w.changeCheck(func(c *policy.Check) {
			c.Kind, c.APIVersion, c.Namespace, c.SelectsNodes = policy.NodeHealthCheckKind, policy.Medik8sAPI, "", true
			c.Strategy, c.MinHealthy = policy.CreateRequests, new(intstr.FromInt32(0))
			c.Template = &policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "t"}
		})
	},
	reason.Delegated: func(w *world, _ *engine.Options) {
		w.changeCheck(func(c *policy.Check) {
			c.Strategy = policy.CreateRequests
			c.Template = &policy.Template{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3RemediationTemplate", Namespace: "ns", Name: "t"}
		})
	},
	reason.FilesRefused: func(_ *world, o *engine.Options) {
		o.Clusters[0].FilesRefused = "policies.d/a.yaml:4: spec.limt: unknown key"
	},
	reason.InvalidHost: func(w *world, _ *engine.Options) {
		w.Do(func(s *fake.State) {
			s.RefusedEntries = map[string]string{"n-1": "hosts.d/a.yaml:2: hosts[0].bmcs: unknown key"}
		})
	},
	reason.DuplicateUUID: func(w *world, _ *engine.Options) { w.duplicateUUID() },
	reason.Contested: func(w *world, _ *engine.Options) {
		m := newMetal(w)
		m.Do(func(s *fake.State) { s.LockPower("h-1", true) })
	},
	reason.AuditFailed: func(_ *world, o *engine.Options) { o.Record = slowFullDisk }, // each try holds its place meanwhile
}

// What a check refuses is told once, and stands in the status for as long as it lasts.
func TestRefusalOfACheckIsToldOnce(t *testing.T) {
	for code, refuse := range policyRefusals {
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
			e, events, _ := start(t, w, store, func(o *engine.Options) { refuse(w, o) })
			time.Sleep(20 * time.Minute)
			require.Empty(t, e.Runs("c"))
			told := eventsOf(t, events, isRefusal)
			require.Len(t, told, 1, "%+v", told)
			assert.Equal(t, code, told[0].Reason)
			assert.NotEmpty(t, told[0].About.Kind)
			assert.Contains(t, told[0].Message, "needs")
			now := refusedNow(e)
			require.Len(t, now, 1)
			assert.Equal(t, "n-1", now[0].Node)
			assert.Equal(t, code, now[0].Gate.Reason)
			assert.Greater(t, time.Since(now[0].Since), 15*time.Minute)

			w.Recover()
			time.Sleep(2 * time.Minute)
			assert.Empty(t, refusedNow(e))
			told = eventsOf(t, events, isRefusal)
			require.Len(t, told, 2)
			assert.Equal(t, event.RefusalEnded, told[1].Type)
			assert.Equal(t, code, told[1].Reason)
		})
	}
}

// A host without an entry of hosts.d is refused while a file there does not tell whose its entries are: one may say that the host is
// protected, or lead to another BMC than its BareMetalHost.
func TestHostThatMayHaveAnUnreadEntryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.Do(func(s *fake.State) { s.UnreadEntries = "hosts.d/a.yaml:2: hosts[0].nod: unknown key" })
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		require.Empty(t, e.Runs("c"))
		now := refusedNow(e)
		require.Len(t, now, 1)
		assert.Equal(t, reason.InvalidHost, now[0].Gate.Reason)
		assert.Contains(t, now[0].Gate.Value, "hosts.d/a.yaml:2")
		m.Do(func(s *fake.State) { s.UnreadEntries = "" })
		time.Sleep(time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
	})
}

// Two checks that refuse one host for different reasons are each told once, not in turn.
func TestChecksWithDifferentRefusalsAreToldOnceEach(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.Do(func(s *fake.State) {
			deleting := *s.Check
			deleting.Name, deleting.Strategy = "all", policy.PowerCycleHosts
			none := intstr.FromInt32(0)
			deleting.MaxUnhealthy = &none
			s.ShowCheck(&deleting)
		})
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(30 * time.Minute)
		var told []string
		for _, ev := range eventsOf(t, events, isRefusal) {
			told = append(told, ev.About.Name+" "+string(ev.Reason))
		}
		slices.Sort(told)
		assert.Equal(t, []string{"all ShortCircuit", "workers Overlap"}, told)
		assert.Len(t, refusedNow(e), 2)
	})
}

// A reason that flaps is told for a while, and then seldom; in the end the last one is told.
func TestFlappingRefusalDoesNotFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(2 * time.Minute)
		const flaps = 200
		for i := range flaps {
			w.changeCheck(func(c *policy.Check) {
				if c.MaxUnhealthy = nil; i%2 == 0 {
					none := intstr.FromInt32(0)
					c.MaxUnhealthy = &none
				}
			})
			time.Sleep(3 * time.Second)
		}
		told := eventsOf(t, events, isRefusal)
		assert.Greater(t, len(told), 4)
		assert.Less(t, len(told), 20, "of %d changes in 10 minutes", flaps)
		limits := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.LimitClosed || ev.Type == event.LimitOpened })
		assert.Less(t, len(limits), 20)
		w.changeCheck(func(c *policy.Check) { none := intstr.FromInt32(0); c.MaxUnhealthy = &none })
		time.Sleep(10 * time.Minute)
		told = eventsOf(t, events, isRefusal)
		assert.Equal(t, reason.ShortCircuit, told[len(told)-1].Reason)
		assert.Equal(t, reason.ShortCircuit, refusedNow(e)[0].Gate.Reason)
		limits = eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.LimitClosed || ev.Type == event.LimitOpened })
		assert.Equal(t, event.LimitClosed, limits[len(limits)-1].Type)
	})
}

// A gate that refuses a Waiting run stands in the status, too.
func TestWaitingRunThatIsRefusedIsInTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, waiting)
		until(t, e, "Waiting")
		accepted(t)(e.Hold(t.Context(), byHand))
		w.SetFault(fake.NoFault)
		time.Sleep(10 * time.Minute)
		now := refusedNow(e)
		require.Len(t, now, 1)
		assert.Equal(t, only(t, e).ID, now[0].Run)
		assert.Equal(t, reason.Hold, now[0].Gate.Reason)
	})
}

// A site that goes down tells its refusals at a rate that leaves room in the queue of the audit
// log, and tells them all.
func TestManyRefusalsAreToldAtARate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const hosts = 400
		for i := range hosts {
			name := fmt.Sprintf("many-%d", i)
			w.addHost(name, name, fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4e%04d", i))
			w.Cluster.Handle(name).Hang()
		}
		_, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		perSecond, all := map[int64]int{}, map[string]int{}
		for range 180 {
			time.Sleep(time.Second)
		}
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Refused && ev.Check != "" }) {
			perSecond[ev.At.Unix()]++
			all[ev.Node+string(ev.Reason)]++
		}
		for at, n := range perSecond {
			assert.LessOrEqual(t, n, 150, "at %d", at)
		}
		assert.GreaterOrEqual(t, len(all), hosts)
		for what, n := range all {
			assert.Equal(t, 1, n, what)
		}
	})
}

// What changes of a check is told: its state and its limit, also as they are at the start.
func TestChangesOfAChecksStateAndLimitAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		none := intstr.FromInt32(0)
		w.changeCheck(func(c *policy.Check) { c.MaxUnhealthy, c.UID = &none, "uid-1" })
		broken := nodePolicy()
		broken.Invalid = "spec.selector: no such operator"
		_, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].FileChecks = []policy.Check{broken} })
		told := func() (list []string) {
			for _, ev := range eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.CheckChanged || ev.Type == event.LimitClosed || ev.Type == event.LimitOpened
			}) {
				list = append(list, fmt.Sprintf("%s %s %s", ev.Type, ev.About.Name, ev.Reason))
			}
			return list
		}
		time.Sleep(30 * time.Second)
		assert.ElementsMatch(t, []string{"CheckChanged nodes InvalidCheck", "LimitClosed workers ShortCircuit"}, told(), "as they are at the start")
		next := func(want string, change func(*policy.Check)) {
			t.Helper()
			before := len(told())
			w.changeCheck(change)
			time.Sleep(5 * time.Minute)
			require.Equal(t, []string{want}, told()[before:])
		}
		next("LimitOpened workers ", func(c *policy.Check) { c.MaxUnhealthy = nil })
		next("CheckChanged workers Paused", func(c *policy.Check) {
			c.Paused = true
			c.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
		})
		next("CheckChanged workers ", func(c *policy.Check) { c.Paused, c.Annotations = false, nil })
		next("CheckChanged workers InvalidCheck", func(c *policy.Check) { c.Invalid = "spec.maxUnhealthy: no number" })
		before := len(told())
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"CheckChanged workers NotCovered"}, told()[before:])
		limit := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.LimitClosed })[0]
		assert.Equal(t, "uid-1", limit.About.UID)
		assert.Equal(t, "check ns/workers allows no remediation: 1 of 4 not healthy, at most 0 (0)", limit.Message)
	})
}

// What the owner refuses is refused. That a standby is not the owner forbids nothing, and is no
// trouble in its status.
func TestStandbyRefusesNothingByBeingOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.FailReads(noAnswer())
		p := newPair(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		require.Len(t, refusedNow(p.engine["b"]), 1)
		assert.Equal(t, reason.NotOwner, refusedNow(p.engine["b"])[0].Gate.Reason, "nobody owns the cluster")
		p.give("a")
		time.Sleep(2 * time.Minute)
		require.Len(t, refusedNow(p.engine["a"]), 1)
		assert.Equal(t, reason.Code("BMCUnreachable"), refusedNow(p.engine["a"])[0].Gate.Reason)
		assert.NotZero(t, refusedNow(p.engine["a"])[0].NextTry)
		assert.Empty(t, refusedNow(p.engine["b"]))
	})
}

// deadWebhook is an API server that waits for a webhook before it carries out an
// isolation, or what else is named, which it does not if the client is gone by then.
type deadWebhook struct {
	engine.Kube
	of     remediate.Action // IsolateNode if empty
	wait   time.Duration
	begun  func() // the first time
	cutOff atomic.Int32
}

func (k *deadWebhook) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a != cmp.Or(k.of, remediate.IsolateNode) {
		return k.Kube.Act(ctx, r, a, backups, b)
	}
	if k.begun != nil {
		k.begun()
		k.begun = nil
	}
	select {
	case <-ctx.Done():
		k.cutOff.Add(1)
		return ctx.Err()
	case <-time.After(k.wait):
	}
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A Node is deleted although a webhook with failurePolicy Ignore takes its whole time. The
// host is read Off until the answer. // I1
func TestIsolationOutlastsADeadWebhook(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		before := 0
		k := &deadWebhook{Kube: w, wait: 30 * time.Second, begun: func() { before = w.Reads() }}
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
		until(t, e, remediate.PowerOn)
		assert.GreaterOrEqual(t, w.Reads()-before, 25, "the proof is kept young")
		time.Sleep(30 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Isolations())
		assert.Zero(t, k.cutOff.Load())
	})
}

// slowLooks is an API server that takes its time for each look once a Node is saved, and for the isolation.
type slowLooks struct {
	engine.Kube
	w               *world
	look, write     time.Duration
	began           time.Time // of the last look
	reads           int       // of the BMC, until then
	saved           bool
	isolated, stale int
}

func (k *slowLooks) Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error) {
	k.saved = true
	return k.Kube.Backup(ctx, t)
}

func (k *slowLooks) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	k.began, k.reads = time.Now(), k.w.Reads()
	if k.saved {
		time.Sleep(k.look)
	}
	return k.Kube.Look(ctx, r, backups)
}

func (k *slowLooks) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a != remediate.IsolateNode {
		return k.Kube.Act(ctx, r, a, backups, b)
	}
	time.Sleep(k.write)
	if k.isolated++; k.w.Reads() == k.reads && time.Since(k.began) > power.ProofMaxAge {
		k.stale++
	}
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A proof that is nearly too old when the isolation is sent is renewed before: the API server may carry it out a moment later. // I1
func TestIsolationBeginsWithAProofThatLasts(t *testing.T) {
	for _, look := range []time.Duration{2 * time.Second, 3500 * time.Millisecond, 4500 * time.Millisecond, 4990 * time.Millisecond} {
		scene(t, look.String(), func(t *testing.T, w *world, store *failingStore) {
			k := &slowLooks{Kube: w, w: w, look: look, write: 900 * time.Millisecond}
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
			until(t, e, remediate.PowerOn)
			assert.Equal(t, 1, k.isolated)
			assert.Zero(t, k.stale, "the newest Off read is older than a proof may be when the Node is deleted")
		})
	}
}

// lateAnswer is a device whose answers come some time after it has read its power, as those of a fence agent that also lists its outlets.
type lateAnswer struct {
	bmc.Power
	after time.Duration
}

func (s lateAnswer) Read(ctx context.Context) (bmc.Reading, error) {
	r, err := s.Power.Read(ctx)
	select {
	case <-ctx.Done():
		return bmc.Reading{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "read", Err: ctx.Err()}
	case <-time.After(s.after):
	}
	return r, err
}

// A proof that is seconds old when the device answers is good enough, if the API server carries the isolation out before it is too old. // I1, L3
func TestProofOfADeviceThatAnswersLate(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 2500 * time.Millisecond, 3200 * time.Millisecond, 4 * time.Second} {
		scene(t, after.String(), func(t *testing.T, w *world, store *failingStore) {
			running(t, w, store, func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return lateAnswer{w.bmc(), after}, nil }
			})
			time.Sleep(30 * time.Minute)
			assert.Equal(t, 1, w.Isolations())
		})
	}
}

// If the proof ends while the API server waits, the request is cancelled, and nothing is
// deleted without a proof.
func TestIsolationIsCancelledWithItsProof(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world, e *engine.Engine)
		later   remediate.Step // whether the run isolates in the end, from a new proof
	}{
		"the host is switched on": {func(_ *testing.T, w *world, _ *engine.Engine) { w.SetPower(true) }, remediate.Done},
		"the BMC is silent for a while": {func(_ *testing.T, w *world, _ *engine.Engine) {
			w.FailReads(&bmc.Error{Kind: bmc.KindUnreachable})
			time.AfterFunc(20*time.Second, func() { w.FailReads(nil) })
		}, remediate.Done},
		"the BMC restarts": {func(_ *testing.T, w *world, _ *engine.Engine) { w.SetFault(fake.Restarts) }, remediate.Done},
		"a person pauses": {func(t *testing.T, _ *world, e *engine.Engine) {
			_, err := e.Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "look"})
			assert.NoError(t, err)
		}, remediate.Aborted},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			begun := make(chan *engine.Engine, 1)
			k := &deadWebhook{Kube: w, wait: 20 * time.Second}
			k.begun = func() {
				time.AfterFunc(5*time.Second, func() { c.happens(t, w, <-begun) })
				time.AfterFunc(19*time.Second, func() {
					assert.EqualValues(t, 1, k.cutOff.Load())
					assert.Zero(t, w.Isolations())
				})
			}
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
			begun <- e
			time.Sleep(40 * time.Minute)
			assert.Equal(t, c.later, only(t, e).Step, only(t, e).Note)
			assert.Equal(t, c.later == remediate.Done, w.Isolations() == 1)
		})
	}
}

// An isolation on a manual confirmation also outlasts the webhook if the BMC is silent,
// and is cancelled by evidence against the confirmation. // I26
func TestIsolationOnAConfirmationUnderADeadWebhook(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(w *world)
		cut     bool
	}{
		"nothing":              {func(*world) {}, false},
		"the Lease is renewed": {func(w *world) { w.SetLeaseMoving(true) }, true},
		"the BMC reads On":     {func(w *world) { w.SetPower(true); w.FailReads(nil) }, true},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.dead()
			k := &deadWebhook{Kube: w, wait: 25 * time.Second}
			k.begun = func() { time.AfterFunc(8*time.Second, func() { c.happens(w) }) }
			e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = k })
			time.Sleep(time.Second)
			_, err := e.ConfirmOff(t.Context(), byHand)
			assert.NoError(t, err)
			time.Sleep(30 * time.Minute)
			r := only(t, e)
			if c.cut { // Held, until all is well
				assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
			} else {
				assert.Equal(t, "ConfirmedOff", string(r.Reason), r.Note)
			}
			assert.Equal(t, c.cut, w.Isolations() == 0)
			assert.Equal(t, c.cut, k.cutOff.Load() == 1)
		})
	}
}

// A Machine is not deleted if the Node has come back by the time the webhook times out.
// Otherwise it is. // I14
func TestMachineDeletionUnderADeadWebhook(t *testing.T) {
	for name, back := range map[string]bool{"stays away": false, "comes back": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.ownMachines()
			w.SetBootTime(never)
			k := &deadWebhook{Kube: w, of: remediate.DeleteTargetMachine, wait: 25 * time.Second}
			k.begun = func() {
				if back {
					time.AfterFunc(8*time.Second, w.Recover)
				}
			}
			e := running(t, w, store, func(o *engine.Options) {
				o.Run.MaxAttempts, o.Clusters[0].Reprovision, o.Clusters[0].Kube = 1, true, k
			})
			time.Sleep(90 * time.Minute)
			r := only(t, e)
			assert.Equal(t, back, len(w.Deprovisioned()) == 0)
			assert.Equal(t, back, k.cutOff.Load() > 0)
			if back {
				assert.Equal(t, remediate.Done, r.Step, r.Note)
			} else {
				assert.Equal(t, remediate.Reprovisioned, r.Step, r.Note)
			}
		})
	}
}

// login gives n-1's BMC an account.
func (w *world) login(password string) {
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[0].Devices[0]
		d.Username, d.Password = "fence", bmc.NewSecret(password)
	})
}

// markOf is what is kept of a password of the host's account.
func markOf(w *world, salt, password string) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + w.Entry().Levels[0].Devices[0].Service() + "\x00fence\x00" + password))
	return hex.EncodeToString(sum[:1])
}

// A daemon that restarts often does not lock the account by trying a wrong password at
// each start. A corrected password is tried at once.
func TestRefusedAccountOutlivesRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.login("wrong-4711")
		w.FailReads(refusedAccount())
		_, _, stop := start(t, w, store, nil)
		time.Sleep(70 * time.Second)
		stop()
		first := w.Reads()
		require.Positive(t, first)
		for range 20 {
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Second)
			gate(t, e, "BMCAuth")
			stop()
		}
		assert.Equal(t, first, w.Reads(), "in the 5 minutes after it was refused")
		kept := must.Do(state.LoadRefusedAccounts(t.Context(), store, ""))(t)
		require.Len(t, kept.Accounts, 1)
		assert.NotContains(t, string(must.Do(json.Marshal(kept))(t)), "4711")
		assert.Len(t, kept.Accounts[0].Mark, 2, "one byte")

		mended := "mended"
		for markOf(w, kept.Accounts[0].Salt, mended) == kept.Accounts[0].Mark { // one in 256 is taken for the old one
			mended += "!"
		}
		w.login(mended)
		w.FailReads(nil)
		e := running(t, w, store, nil)
		time.Sleep(20 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// The account is tried again after the pause. A clock that was set back does not extend
// the pause.
func TestRefusedAccountIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.login("wrong")
		service := w.Entry().Levels[0].Devices[0].Service()
		must.Do(state.SaveRefusedAccounts(t.Context(), store, state.RefusedAccounts{Accounts: []state.RefusedAccount{{
			Service: service, User: "fence", Kind: string(bmc.KindAuth), Salt: "s", Mark: markOf(w, "s", "wrong"), Until: time.Now().Add(24 * time.Hour),
		}}}))(t)
		e := running(t, w, store, nil)
		time.Sleep(4 * time.Minute)
		gate(t, e, "BMCAuth")
		require.Empty(t, e.Runs("c"))
		time.Sleep(3 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
	})
}

// What refuses a check is not listed beside the run that a person has begun on its target.
func TestRefusalIsNotListedBesideARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true })
		e := running(t, w, store, nil)
		time.Sleep(6 * time.Minute)
		require.Len(t, refusedNow(e), 1)
		must.Do(e.Fence(t.Context(), byHand))(t)
		time.Sleep(5 * time.Second)
		require.True(t, only(t, e).Open())
		assert.Empty(t, refusedNow(e))
	})
}
