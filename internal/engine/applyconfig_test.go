package engine_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// listing is a content of hosts.d: entries by the name of their Node.
type listing map[string]bmc.Host

func (l listing) List(string) []string        { return slices.Sorted(maps.Keys(l)) }
func (l listing) Protected(_, of string) bool { return l[of].Protected }

func (listing) Refused(string, string) string { return "" }
func (listing) Unread() string                { return "" }
func (l listing) Bare(_, of string) *bmc.Host {
	if h, found := l[of]; found {
		return &h
	}
	return nil
}

func (l listing) Find(_ context.Context, _, of string) (bmc.Host, bool, error) {
	h, found := l[of]
	return h, found, nil
}

// at is the entry of a Node, whose BMC is at an address.
func at(node, address string) bmc.Host {
	return bmc.Host{Name: "c/" + node, IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
		Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: address, Port: 623}}}}}}
}

// A reload of hosts.d during a run takes in new entries and drops removed ones, and the run
// ends as without it.
func TestHostsAreTakenInDuringARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) {
			o.Hosts = listing{"n-1": at("n-1", "192.0.2.1"), "other-0": at("other-0", "192.0.2.2")}
		})
		time.Sleep(untilOff)
		require.True(t, only(t, e).Open())
		e.ApplyConfig.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1"), "other-1": at("other-1", "192.0.2.3")})
		_, err := e.SubjectOf(t.Context(), "c", "other-0")
		refusedFor(t, err, reason.NoHost)
		s := must.Do(e.SubjectOf(t.Context(), "c", "other-1"))(t)
		require.NoError(t, s.Err)
		assert.Equal(t, "192.0.2.3", s.Host.Levels[0].Devices[0].Endpoint.Host)

		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}

// A reload that gives the host of a run another BMC sends nothing there: the run ends with the
// BMC that it began with. // I10
func TestRunKeepsItsBMCInAReload(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var mu sync.Mutex
		asked := map[string]int{}
		e := running(t, w, store, func(o *engine.Options) {
			o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")}
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[d.Endpoint.Host]++
				return w.bmc(), nil
			}
		})
		time.Sleep(untilOff)
		require.True(t, only(t, e).Open())
		e.ApplyConfig.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.66")})
		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		mu.Lock()
		defer mu.Unlock()
		assert.NotZero(t, asked["192.0.2.1"])
		assert.Zero(t, asked["192.0.2.66"])
	})
}

// Two entries that lead to one BMC are noticed after a reload as after a start, also when the
// other host's entry came with it. // I9
func TestReloadedEntriesOfOneBMCAreNotSwitched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) { o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")} })
		time.Sleep(30 * time.Second)
		e.ApplyConfig.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1"), "other-1": at("other-1", "192.0.2.1")})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.False(t, gate(t, e, reason.DuplicateHost).Pass)

		e.ApplyConfig.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1")})
		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// A reload gives the BMC of a run, which keeps it, to another host before the first Off is sent: whose it is, is asked of the BMC that the run
// switches, and not of what the entry of its host says by now. // I9
func TestReloadGivesTheBMCOfARunToAnotherHost(t *testing.T) {
	for name, reloaded := range map[string]listing{
		"the host has another BMC": {"n-1": at("n-1", "192.0.2.66"), "other-1": at("other-1", "192.0.2.1")},
		"the host has none":        {"other-1": at("other-1", "192.0.2.1")},
	} {
		scene(t, name, func(t *testing.T, w *world, inner *failingStore) {
			store := &stubborn{Store: inner}
			e := running(t, w, store, func(o *engine.Options) { o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")} })
			onIntent(store, remediate.SendOff, func() { e.ApplyConfig.Hosts(t.Context(), reloaded) })
			time.Sleep(80 * time.Second) // a run that begins later uses the new entry
			assert.Zero(t, w.Count(bmc.CommandOff))
			assert.Contains(t, stands(t, e, remediate.Aborted, reason.PowerForbidden).Note, "c/other-1")
		})
	}
}

// A reload of policies.d that lets fenced act on more begins the quiet period, as a start
// would, and says why. One with the same checks on other lines does not. // I18
func TestReloadedPolicyBeginsTheQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.SetReady("True")
		a, b := nodePolicy(), nodePolicy()
		a.Selector = labels.SelectorFromSet(labels.Set{"no": "node"})
		b.Name, b.Source = "more", "policies.d/b.yaml:1"
		e, events, stop := start(t, w, store, func(o *engine.Options) {
			o.Guards.QuietPeriod = 5 * time.Minute
			o.Clusters[0].FileChecks = []policy.Check{a}
		})
		time.Sleep(10 * time.Minute)
		told := func() int {
			return len(eventsOf(t, events, func(ev event.Event) bool { return ev.Reason == reason.QuietPeriod && ev.Type == event.Internal }))
		}
		before := told()
		moved := a
		moved.Source = "policies.d/a.yaml:9"
		e.ApplyConfig.Policies("c", cluster.Files{Checks: []policy.Check{moved}})
		w.Hang()
		time.Sleep(2 * time.Minute)
		require.Equal(t, before, told())
		require.Empty(t, e.Runs("c"))

		e.ApplyConfig.Policies("c", cluster.Files{Checks: []policy.Check{moved, b}})
		time.Sleep(4*time.Minute + 50*time.Second)
		assert.Equal(t, before+1, told())
		assert.False(t, gate(t, e, reason.QuietPeriod).Pass)
		require.Empty(t, e.Runs("c"), "the quiet period of the reload holds it")
		time.Sleep(time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()

		quiet, _ := atStart(t, w, store, func(o *engine.Options) { o.Clusters[0].FileChecks = []policy.Check{a, b} })
		assert.False(t, quiet, "the scope of the reload is stored")
	})
}

// What a budget forbade does not begin at once when a reload takes the budget away. // I18
func TestReloadWithoutABudgetBeginsTheQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		budget := policy.DisruptionBudget{Name: "none", Selector: labels.Everything(), Source: "policies.d/b.yaml:1"}
		e, _, _ := start(t, w, store, func(o *engine.Options) {
			o.Guards.QuietPeriod = 5 * time.Minute
			o.Clusters[0].FileBudgets = []policy.DisruptionBudget{budget}
		})
		time.Sleep(10 * time.Minute)
		gate(t, e, reason.Budget)
		require.Empty(t, e.Runs("c"))
		e.ApplyConfig.Policies("c", cluster.Files{})
		time.Sleep(4 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// A restart in the quiet period of a reload does not shorten it. // I18
func TestQuietPeriodOfAReloadOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.SetReady("True")
		with := func(list ...policy.Check) func(*engine.Options) {
			return func(o *engine.Options) { o.Guards.QuietPeriod, o.Clusters[0].FileChecks = 5*time.Minute, list }
		}
		e, _, stop := start(t, w, store, with())
		time.Sleep(10 * time.Minute)
		e.ApplyConfig.Policies("c", cluster.Files{Checks: []policy.Check{nodePolicy()}})
		time.Sleep(2 * time.Minute)
		stop()
		quiet, told := atStart(t, w, store, with(nodePolicy()))
		assert.True(t, quiet)
		assert.Contains(t, told, "FencePolicy nodes is new")
	})
}

// A policy that a reload removes starts nothing any more, and its open run ends as that of a
// deleted check: the host is not left off.
func TestRemovedPolicyStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, withPolicy(w, nodePolicy()))
		time.Sleep(untilOff)
		require.True(t, only(t, e).Open())
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		e.ApplyConfig.Policies("c", cluster.Files{})
		time.Sleep(20 * time.Minute)
		assert.False(t, only(t, e).Open(), "%s", only(t, e).Note)
		assert.True(t, w.On())
		w.Hang()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}

// Reloaded guards hold from the next decision on, and reloaded deadlines for the next run: the
// open run keeps those that it began with.
func TestLimitsAreTakenInDuringARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var opt engine.Options
		e := running(t, w, store, func(o *engine.Options) { o.Run.OnDeadline = 4 * time.Minute; opt = *o })
		time.Sleep(untilOff)
		require.Equal(t, 4*time.Minute, only(t, e).Limits.OnDeadline)
		opt.Run.OnDeadline, opt.Guards.MaxFencesPerDay = 9*time.Minute, 1
		e.ApplyConfig.Limits(opt.Guards, opt.Run)
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 4*time.Minute, only(t, e).Limits.OnDeadline)

		w.Hang()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "the second fence of the day")
		opt.Guards.MaxFencesPerDay = 10
		e.ApplyConfig.Limits(opt.Guards, opt.Run)
		accepted(t)(e.ReleaseHold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "repaired"}))
		time.Sleep(20 * time.Minute)
		var deadlines []time.Duration
		for _, r := range e.Runs("c") {
			deadlines = append(deadlines, r.Limits.OnDeadline)
		}
		assert.ElementsMatch(t, []time.Duration{4 * time.Minute, 9 * time.Minute}, deadlines)
	})
}

// A quiet period that a reload makes shorter for the next time is not cut short. // I16
func TestReloadCutsNoQuietPeriodShort(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var opt engine.Options
		e := running(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 10 * time.Minute; opt = *o })
		time.Sleep(2 * time.Minute)
		require.False(t, gate(t, e, reason.QuietPeriod).Pass)
		opt.Guards.QuietPeriod = 0
		e.ApplyConfig.Limits(opt.Guards, opt.Run)
		time.Sleep(7 * time.Minute)
		require.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// atStart is what an engine that is started now says of its scope, and whether it
// began with a quiet period. It is left running for long enough to remember it.
func atStart(t *testing.T, w *world, store state.Store, change func(*engine.Options)) (quiet bool, told string) {
	t.Helper()
	e, events, stop := start(t, w, store, func(o *engine.Options) {
		o.Guards.QuietPeriod = 5 * time.Minute
		change(o)
	})
	time.Sleep(2 * time.Second)
	x := explained(t, e)
	for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Internal }) {
		told += ev.Message + "\n"
	}
	time.Sleep(6 * time.Minute)
	stop()
	return refusing(x.Gates, reason.QuietPeriod), told
}

// A restart after the order to arm does not shorten the quiet period. // I16
func TestQuietPeriodAfterArmOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		observe := func(o *engine.Options) { o.Clusters[0].Mode, o.Guards.QuietPeriod = guard.ModeObserve, 5*time.Minute }
		e, _, stop := start(t, w, store, observe)
		time.Sleep(10 * time.Minute)
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		stop()
		e = running(t, w, store, observe)
		time.Sleep(4 * time.Minute)
		require.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// A start that may act on more than the one before begins with a quiet period, and says
// why. One that may act on the same or less does not. // I18
func TestLargerScopeBeginsAQuietPeriod(t *testing.T) {
	in := func(mode string, checks ...policy.Check) func(*engine.Options) {
		return func(o *engine.Options) { o.Clusters[0].Mode, o.Clusters[0].FileChecks = mode, checks }
	}
	named := func(name string, selector labels.Set) policy.Check {
		p := nodePolicy()
		p.Name, p.Selector = name, labels.SelectorFromSet(selector)
		return p
	}
	a, b := named("a", labels.Set{"x": "1"}), named("b", labels.Set{"x": "1"})
	paused := named("c", labels.Set{"x": "1"})
	paused.Paused = true
	handedOver := paused
	handedOver.Evaluator = "us"
	counts := named("d", labels.Set{"x": "1"})
	counts.Strategy = policy.CountOnly
	acts := counts
	acts.Strategy = policy.PowerCycleHosts
	deletes := acts
	deletes.Strategy = policy.DeleteMachines
	sooner := a
	sooner.Conditions = append(slices.Clone(a.Conditions), policy.UnhealthyCondition{Type: "DiskPressure", Status: "True", Timeout: time.Minute})
	more := sooner
	more.MaxUnhealthy = new(intstr.FromString("100%"))
	budget := func(most int32, checks ...policy.Check) func(*engine.Options) {
		return func(o *engine.Options) {
			in(guard.ModeEvaluate, checks...)(o)
			o.Clusters[0].FileBudgets = []policy.DisruptionBudget{{Name: "e", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(most)}}
		}
	}
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		for _, c := range []struct {
			start func(*engine.Options)
			want  string // what is told; "" = it is not quiet
		}{
			{in(guard.ModeObserve, a), "the store has no record of this cluster"},
			{in(guard.ModeObserve, a), ""},
			{in(guard.ModeEvaluate, a), "mode was observe and is evaluate"},
			{in(guard.ModeEvaluate, a), ""},
			{in(guard.ModeEvaluate, a, b), "FencePolicy b is new"},
			{in(guard.ModeEvaluate, b), ""},
			{in(guard.ModeEvaluate, named("b", labels.Set{"x": "2"})), "FencePolicy b selects something else"},
			{in(guard.ModeEvaluate, paused), "FencePolicy c is new"},
			{in(guard.ModeEvaluate, handedOver), "FencePolicy c selects something else"},
			{in(guard.ModeEvaluate, counts), "FencePolicy d is new"},
			{in(guard.ModeEvaluate, acts), "FencePolicy d only counted, and forbade others to act"},
			{in(guard.ModeEvaluate, counts, a), "FencePolicy a is new"}, // of d nothing is told: it acts no more
			{in(guard.ModeEvaluate, a), "FencePolicy d only counted, and forbade others to act"},
			{in(guard.ModeEvaluate, sooner), "FencePolicy a finds other targets unhealthy, asks another remediator, or has another limit"},
			{in(guard.ModeEvaluate, sooner), ""},
			{in(guard.ModeEvaluate, more), "FencePolicy a finds other targets unhealthy, asks another remediator, or has another limit"},
			{in(guard.ModeEvaluate, sooner), "FencePolicy a finds other targets unhealthy, asks another remediator, or has another limit"},
			{in(guard.ModeEvaluate, a), "FencePolicy a finds other targets unhealthy, asks another remediator, or has another limit"},
			{in(guard.ModeEvaluate, a), ""},
			{in(guard.ModeEvaluate, a, acts), "FencePolicy d is new"},
			{in(guard.ModeEvaluate, a, deletes), "FencePolicy d selects something else, or asks for another action"},
			{in(guard.ModeEvaluate, a, deletes), ""},
			{budget(1, a), ""},
			{budget(1, a), ""},
			{budget(2, a), "DisruptionBudget e is gone or limits something else"},
			{budget(2, a), ""},
			{in(guard.ModeEvaluate, a), "DisruptionBudget e is gone or limits something else"},
			{in(guard.ModeEvaluate, a), ""},
			{in(guard.ModeObserve), ""},
			{in(guard.ModeEvaluate), "mode was observe and is evaluate"},
		} {
			quiet, told := atStart(t, w, store, c.start)
			assert.Equal(t, c.want != "", quiet, "%s", told)
			if c.want == "" {
				assert.Empty(t, told)
			} else {
				assert.Contains(t, told, c.want)
			}
		}
	})
}

// A start that ends during its quiet period saves no scope, nor does a start that is
// paused during it. // I16
func TestScopeIsSavedAfterTheQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(time.Minute)
		accepted(t)(e.Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "look"}))
		stop()
		quiet, told := atStart(t, w, store, func(*engine.Options) {})
		assert.True(t, quiet)
		assert.Contains(t, told, "not on record")
	})
}

// The scope of a cluster in which nothing happens is saved, too.
func TestScopeOfAClusterWithoutEventsIsSaved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(5*time.Minute + time.Second)
		stop()
		quiet, told := atStart(t, w, store, func(*engine.Options) {})
		assert.False(t, quiet)
		assert.Empty(t, told)
	})
}

// If the store has lost that a cluster was armed, the cluster is only observed, and this
// is reported.
func TestLostArmingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		observe := func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve }
		e, events, _ := start(t, w, store, observe)
		time.Sleep(5 * time.Minute)
		lost := eventsOf(t, events, func(ev event.Event) bool { return strings.Contains(ev.Message, "run fencectl arm") })
		require.Len(t, lost, 1)
		assert.Equal(t, string(reason.Observing), string(lost[0].Reason))
		assert.Equal(t, "c", lost[0].Cluster)
		untouched(t, w, e)
	})
}

// Something is wrong by now in the entry of a host that a run has switched off: the run does nothing more to it, and brings it back
// with the devices that it began with, also after a restart. A slip in hosts.d leaves no host off. // I18, I20
func TestRefusedEntryLeavesNoHostOff(t *testing.T) {
	for name, restarts := range map[string]bool{"a reload": false, "a restart": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			e, _, stop := start(t, w, store, nil)
			time.Sleep(untilOff)
			require.Equal(t, 1, w.Count(bmc.CommandOff))
			if restarts {
				stop()
			}
			w.Do(func(s *fake.State) {
				s.RefusedEntries = map[string]string{"n-1": "hosts.d/a.yaml:2: hosts[0].bmcs: unknown key"}
			})
			if restarts {
				e = running(t, w, store, nil)
			}
			time.Sleep(20 * time.Minute)
			r := only(t, e)
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			assert.NotZero(t, w.Count(bmc.CommandOn), "%+v", r)
			assert.Equal(t, reason.InvalidHost, r.Reason)
			assert.True(t, r.Isolated.IsZero())
		})
	}
}
