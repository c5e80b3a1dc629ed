package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
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
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, events, stop := start(t, w, store, func(o *engine.Options) { refuse(w, o) })
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
				stop()
			})
		})
	}
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
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(30 * time.Minute)
		var told []string
		for _, ev := range eventsOf(t, events, isRefusal) {
			told = append(told, ev.About.Name+" "+string(ev.Reason))
		}
		slices.Sort(told)
		assert.Equal(t, []string{"all ShortCircuit", "workers Overlap"}, told)
		assert.Len(t, refusedNow(e), 2)
		stop()
	})
}

// A reason that flaps is told for a while, and then seldom; in the end the last one is told.
func TestFlappingRefusalDoesNotFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
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
		stop()
	})
}

// A gate that refuses a Waiting run stands in the status, too.
func TestWaitingRunThatIsRefusedIsInTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, waiting)
		until(t, e, "Waiting")
		_, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		w.SetFault(fake.NoFault)
		time.Sleep(10 * time.Minute)
		now := refusedNow(e)
		require.Len(t, now, 1)
		assert.Equal(t, only(t, e).ID, now[0].Run)
		assert.Equal(t, reason.Hold, now[0].Gate.Reason)
		stop()
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
		_, events, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
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
		stop()
	})
}

// What changes of a check is told: its state and its limit, also as they are at the start.
func TestChangesOfAChecksStateAndLimitAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		none := intstr.FromInt32(0)
		w.changeCheck(func(c *policy.Check) { c.MaxUnhealthy, c.UID = &none, "uid-1" })
		broken := nodePolicy()
		broken.Invalid = "spec.selector: no such operator"
		_, events, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].FileChecks = []policy.Check{broken} })
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
		stop()
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
		p.end()
	})
}
