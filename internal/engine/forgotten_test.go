package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// nodeHealthCheck has a NodeHealthCheck ask for n-1, as node-healthcheck-operator dd44432 does, with so many power cycles.
func (w *world) nodeHealthCheck(attempts int) {
	w.changeCheck(func(c *policy.Check) {
		*c = policy.Check{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "nhc", UID: "nhc-uid", Selector: labels.Everything(), SelectsNodes: true,
			Strategy: policy.CreateRequests, Template: &powerTemplate, MinHealthy: new(intstr.FromInt32(0)), Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
	})
	w.askByCheck("m-1", attempts)
}

// askByCheck creates a request of the NodeHealthCheck for n-1.
func (w *world) askByCheck(name string, attempts int) {
	w.Do(func(s *fake.State) {
		s.Ask(name, func(q *policy.Request) {
			q.Namespace, q.NodeName, q.TemplateName, q.Power.Attempts = powerTemplate.Namespace, "n-1", powerTemplate.Name, attempts
			q.Owners = []policy.Owner{{Kind: policy.NodeHealthCheckKind, Name: "nhc", UID: "nhc-uid"}}
		})
	})
}

// forgets lets a second pass, in which the controller deletes its request if the Node is gone: fenced says
// PermanentNodeDeletionExpected=False. It then knows nothing of the Node.
func (w *world) forgets() {
	time.Sleep(time.Second)
	w.Do(func(s *fake.State) {
		if q := s.Asked["m-1"]; q != nil && !q.Deleting && s.Nodes["n-1"] == nil {
			s.Withdraw("m-1")
		}
	})
}

// passes lets time pass with such a controller. The first boots of the host do not help.
func (w *world) passes(d time.Duration, failing int) { w.boots(d, failing, w.forgets) }

// boots lets time pass second by second, as each does. The first boots of the host do not help.
func (w *world) boots(d time.Duration, failing int, second func()) {
	boots := false
	for range int(d / time.Second) {
		if second(); !boots && w.Count(bmc.CommandOff) > failing {
			w.SetBootTime(time.Minute)
			boots = true
		}
	}
}

// quickRetries are power cycles that are soon over.
func (w *world) quickRetries(isolation remediate.Isolation) func(*engine.Options) {
	return func(o *engine.Options) {
		responding(w)(o)
		waiting(o)
		o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Clusters[0].Isolation = 3, 4*time.Minute, isolation
		o.Clusters[0].Reprovision = isolation == remediate.IsolateDelete // with the taint the request still asks
	}
}

// The fence-and-boot matrix of medik8s. NodeHealthCheck deletes its request one second after fenced has deleted the Node.
// The run goes on with the retries of the request all the same, and no further. With the taint the Node
// stays, and so does the request. // I4, I14, I20
func TestRunOutlivesTheRequestOfAForgottenNode(t *testing.T) {
	for _, isolation := range []remediate.Isolation{remediate.IsolateDelete, remediate.IsolateTaint} {
		for failing := range 4 {
			scene(t, fmt.Sprintf("%s, %d boots fail", isolation, failing), func(t *testing.T, w *world, store *failingStore) {
				w.ownMachines()
				w.SetBootTime(never)
				w.nodeHealthCheck(3)
				e, _, stop := start(t, w, store, w.quickRetries(isolation))
				w.passes(40*time.Minute, failing)
				r := only(t, e)
				q, _ := asked(w)
				assert.True(t, q == nil || q.Deleting == (isolation == remediate.IsolateDelete))
				assert.Equal(t, "NodeHealthCheck.remediation.medik8s.io nhc", r.Request.Check)
				assert.True(t, w.On())
				assert.Empty(t, w.Deprovisioned(), "nobody asks for another Machine")
				if failing < 3 {
					assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
					assert.Equal(t, failing+1, w.Count(bmc.CommandOff))
					assert.True(t, w.Restored())
					stop()
					return
				}
				assert.Equal(t, []string{"Waiting", "AttemptsExhausted"}, []string{string(r.Step), string(r.Reason)}, r.Note)
				assert.Equal(t, 3, w.Count(bmc.CommandOff))
				if isolation == remediate.IsolateDelete {
					w.passes(2*time.Hour, failing)
					assert.Equal(t, 3, w.Count(bmc.CommandOff), "its retries are used up")
				}
			})
		}
	}
}

// A restart, or another instance, goes on as well: the record says what the request allowed.
func TestForgottenNodeOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		w.nodeHealthCheck(2)
		e, _, stop := start(t, w, store, w.quickRetries(remediate.IsolateDelete))
		until(t, e, remediate.AwaitNode)
		for q, _ := asked(w); q != nil; q, _ = asked(w) {
			w.forgets()
		}
		stop()
		e = running(t, w, store, w.quickRetries(remediate.IsolateDelete))
		w.passes(40*time.Minute, 1)
		r := stands(t, e, remediate.Done)
		assert.Equal(t, 2, r.Attempt)
	})
}

// What still withdraws a run after fenced has deleted its Node. // I4
func TestForgottenNodeMayBeWithdrawn(t *testing.T) {
	for name, stops := range map[string]func(w *world){
		"the check is deleted": func(w *world) { w.Do(func(s *fake.State) { s.DropCheck(s.Check) }) },
		"the check is paused":  func(w *world) { w.changeCheck(func(c *policy.Check) { c.PauseRequests = []string{"upgrade"} }) },
		"the Machine is being deleted": func(w *world) {
			w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.Deleting = true }) })
		},
		"the Node is back": func(w *world) {
			w.Do(func(s *fake.State) { s.ReadyAfter = never })
			w.SetBootTime(time.Minute)
		},
		"the Node is back, and a stranger names it": func(w *world) {
			w.Do(func(s *fake.State) {
				s.ReadyAfter = never
				s.Ask("stranger", func(q *policy.Request) { q.Namespace, q.NodeName = "elsewhere", "n-1" })
			})
			w.SetBootTime(time.Minute)
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetBootTime(never)
			w.nodeHealthCheck(3)
			e := running(t, w, store, w.quickRetries(remediate.IsolateDelete))
			until(t, e, remediate.PowerOn) // the Node is gone
			stops(w)
			w.passes(90*time.Minute, 100)
			r := only(t, e)
			assert.Equal(t, []string{"Waiting", "Withdrawn"}, []string{string(r.Step), string(r.Reason)}, r.Note)
			assert.Equal(t, 1, w.Count(bmc.CommandOff))
			assert.True(t, w.On())
		})
	}
}

// A pause of the check ends, and the run goes on: the controller of the check knows nothing of the Node.
func TestForgottenNodeOutlivesAPause(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		w.nodeHealthCheck(3)
		e := running(t, w, store, w.quickRetries(remediate.IsolateDelete))
		until(t, e, remediate.PowerOn) // the Node is gone
		w.changeCheck(func(c *policy.Check) { c.PauseRequests = []string{"upgrade"} })
		w.passes(time.Hour, 100)
		require.Equal(t, reason.Withdrawn, only(t, e).Reason)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.changeCheck(func(c *policy.Check) { c.PauseRequests = nil })
		w.passes(time.Hour, 1)
		stands(t, e, remediate.Done)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
	})
}

// The controller sees a Node that is back and still sick: it asks anew, and the run goes on for that request.
func TestForgottenNodeIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.ReadyAfter = never })
		w.nodeHealthCheck(3)
		e := running(t, w, store, w.quickRetries(remediate.IsolateDelete))
		w.passes(20*time.Minute, 0)
		r := only(t, e)
		require.Equal(t, []string{"Waiting", "Withdrawn"}, []string{string(r.Step), string(r.Reason)}, r.Note)
		w.askByCheck("m-1-again", 3)
		w.passes(20*time.Minute, 0)
		assert.Greater(t, w.Count(bmc.CommandOff), 1)
	})
}

// The request for which such a run goes on has the finalizer, too, before the host is switched off for it: the one for which the run began is gone, and
// nothing else would show that the host is off, if the state is lost. // I20
func TestRequestThatAsksAnewOutlivesTheState(t *testing.T) {
	const again = "m-1-again"
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.ReadyAfter = never })
		w.nodeHealthCheck(3)
		e, _, stop := start(t, w, store, w.quickRetries(remediate.IsolateDelete))
		w.passes(20*time.Minute, 0)
		stands(t, e, remediate.Waiting, reason.Withdrawn)
		w.askByCheck(again, 3)
		await(t, func() bool { return w.Count(bmc.CommandOff) == 2 })
		r := only(t, e)
		stop()
		w.Do(func(s *fake.State) {
			require.Equal(t, r.ID, s.Asked[again].Power.HeldFor)
			s.Withdraw(again)
		})
		running(t, w, &failingStore{Store: openStore(t, t.TempDir())}, w.quickRetries(remediate.IsolateDelete))
		time.Sleep(10 * time.Minute)
		w.Do(func(s *fake.State) {
			require.NotNil(t, s.Asked[again], "nothing else shows that the host is off")
			assert.Equal(t, request.Held, s.Told[s.Asked[again].UID].Phase)
		})
	})
}

// It is let go when the host is back, also if it was deleted meanwhile.
func TestRequestThatAsksAnewIsLetGo(t *testing.T) {
	const again = "m-1-again"
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.ReadyAfter = never })
		w.nodeHealthCheck(3)
		e := running(t, w, store, w.quickRetries(remediate.IsolateDelete))
		w.passes(20*time.Minute, 0)
		w.askByCheck(again, 3)
		await(t, func() bool { return w.Count(bmc.CommandOff) == 2 })
		w.Do(func(s *fake.State) {
			s.ReadyAfter = 0
			s.Withdraw(again)
			require.True(t, s.Asked[again].Deleting)
		})
		time.Sleep(20 * time.Minute)
		stands(t, e, remediate.Done)
		w.Do(func(s *fake.State) { assert.Nil(t, s.Asked[again]) })
	})
}

// The template of a check limits the power cycles also where fenced begins before the controller of the check has
// made a request from it. One that cannot be read may allow a single one. // I4
func TestTemplateLimitsTheRunOfItsCheck(t *testing.T) {
	for name, c := range map[string]struct {
		templates map[string]int
		fails     error
		want      int
	}{
		"retryLimit: 0":        {map[string]int{"power": 1}, nil, 1},
		"retryLimit: 1":        {map[string]int{"power": 2}, nil, 2},
		"more than configured": {map[string]int{"power": 9}, nil, 3},
		"no retryLimit":        {nil, nil, 3},
		"cannot be read":       {nil, fake.ErrAPI, 1},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetBootTime(never)
			w.Do(func(s *fake.State) { s.TemplateAttempts, s.TemplateFails = c.templates, c.fails })
			w.changeCheck(func(k *policy.Check) { k.Strategy, k.Template = policy.CreateRequests, &powerTemplate })
			e := running(t, w, store, func(o *engine.Options) {
				o.Clusters[0].Requests = w.Requests()
				o.Run.MaxAttempts, o.Run.ReadyTimeout = 3, 2*time.Minute
			})
			time.Sleep(time.Hour)
			r := only(t, e)
			assert.Nil(t, r.Request, "fenced has begun it")
			assert.Equal(t, c.want, r.Limits.MaxAttempts)
			assert.Equal(t, c.want, w.Count(bmc.CommandOff))
			assert.Equal(t, reason.AttemptsExhausted, r.Reason, r.Note)
			if c.fails != nil {
				assert.Contains(t, r.Trigger, "one power cycle only")
			}
		})
	}
}

// A NodeHealthCheck that escalates and fenced that deletes Nodes do not go together: status says so.
func TestEscalationThatEndsWithTheNodeIsTold(t *testing.T) {
	next := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "next"}
	for name, c := range map[string]struct {
		mode      string
		isolation remediate.Isolation
		templates []policy.Template
		told      bool
	}{
		"it escalates":             {guard.ModeRespond, remediate.IsolateDelete, []policy.Template{powerTemplate, next}, true},
		"fenced comes last":        {guard.ModeRespond, remediate.IsolateDelete, []policy.Template{next, powerTemplate}, false},
		"the Node is tainted":      {guard.ModeRespond, remediate.IsolateTaint, []policy.Template{powerTemplate, next}, false},
		"fenced evaluates it, too": {guard.ModeEvaluate, remediate.IsolateDelete, []policy.Template{powerTemplate, next}, false},
		"nothing follows":          {guard.ModeRespond, remediate.IsolateDelete, []policy.Template{powerTemplate}, false},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.Recover()
			w.nodeHealthCheck(1)
			w.changeCheck(func(k *policy.Check) {
				k.Template = nil
				for i, template := range c.templates {
					k.Escalation = append(k.Escalation, policy.Escalation{Template: template, Order: i, Timeout: time.Hour})
				}
			})
			e := running(t, w, store, func(o *engine.Options) {
				responding(w)(o)
				o.Clusters[0].Mode, o.Clusters[0].Isolation = c.mode, c.isolation
			})
			time.Sleep(10 * time.Second)
			if hint := e.Status()[0].Hint; c.told {
				assert.Contains(t, hint, "isolation: outOfServiceTaint")
			} else {
				assert.Empty(t, hint)
			}
		})
	}
}

// Runs whose Nodes do not exist any more, because they deleted them, and the limits.

// breakHost takes a host down, for good: it does not come back after a power cycle.
func (f *fleet) breakHost(name string) {
	h := f.Handle(name)
	h.SetBootTime(never)
	h.Hang()
}

// A FencePolicy for ten Nodes allows two of them to be unhealthy. Every twenty minutes one more host
// hangs and does not return after its power cycle. fenced must not go on through the whole cluster
// only because the Nodes that it has deleted itself are not there any more. // I11
func TestLimitOfACheckCountsTheNodesThatFencedDeleted(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		scene(t, fmt.Sprintf("restarts=%v", restarts), func(t *testing.T, _ *world, store *failingStore) {
			f := newFleet("c", 5, "a", "b")
			change := func(o *engine.Options) {
				waiting(o)
				o.Clusters[0].FileChecks[0].MaxUnhealthy = new(intstr.FromInt32(2))
				o.Run.MaxAttempts = 1
			}
			_, _, stop := fleets{f}.guard(t, store, change)
			time.Sleep(time.Minute)
			for i := range 9 {
				f.breakHost(fmt.Sprintf("c-%03d", i))
				time.Sleep(20 * time.Minute)
				if restarts {
					stop()
					_, _, stop = fleets{f}.guard(t, store, change)
				}
			}
			fenced, deleted := 0, 0
			for i := range 10 {
				h := f.Handle(fmt.Sprintf("c-%03d", i))
				fenced += min(1, h.Count(bmc.CommandOff))
				deleted += min(1, h.Isolations())
			}
			assert.Equal(t, 2, fenced, "hosts that were switched off; the limit of the check is 2")
			assert.Equal(t, 2, deleted, "of ten Nodes")
		})
	}
}

// Three hosts that hang at once are left alone by that check.
func TestLimitOfACheckHoldsForThreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 5, "a", "b")
		e, _, _ := fleets{f}.guard(t, store, func(o *engine.Options) {
			waiting(o)
			o.Clusters[0].FileChecks[0].MaxUnhealthy = new(intstr.FromInt32(2))
		})
		time.Sleep(time.Minute)
		f.fail(3)
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
	})
}

// A Node that is gone counts in the checks that selected it, also after a restart of the daemon, and
// in no others. // I11
func TestLabelsOfADeletedNodeOutliveARestart(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 5, "a", "b")
		change := func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts = 1
			all := o.Clusters[0].FileChecks[0]
			o.Clusters[0].FileChecks = nil
			for _, zone := range []string{"a", "b"} {
				p := all
				p.Name, p.Selector, p.MaxUnhealthy = zone, labels.SelectorFromSet(labels.Set{"zone": zone}), new(intstr.FromInt32(1))
				o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
			}
		}
		_, _, stop := fleets{f}.guard(t, store, change)
		f.breakHost("c-000")
		time.Sleep(20 * time.Minute)
		stop()
		e, _, _ := fleets{f}.guard(t, store, change)
		time.Sleep(time.Minute)
		report := must.Do(e.Overview("c"))(t)
		counted := map[string][2]int{}
		for _, c := range report.Checks {
			counted[c.Name] = [2]int{c.Expected, c.Healthy}
		}
		assert.Equal(t, map[string][2]int{"a": {5, 4}, "b": {5, 5}}, counted)

		f.breakHost("c-001")
		f.breakHost("c-005")
		time.Sleep(20 * time.Minute)
		assert.Zero(t, f.Handle("c-001").Count(bmc.CommandOff), "the second of its check")
		assert.NotZero(t, f.Handle("c-005").Count(bmc.CommandOff), "the first of its check")
		for _, r := range e.Runs("c") {
			assert.Equal(t, remediate.Waiting, r.Step)
			assert.Equal(t, map[string]string{"c-000": "a", "c-005": "b"}[r.Target.Node], r.NodeLabels["zone"])
		}
	})
}

// maxInFlightPerZone is 1. None of four hosts of a zone comes back after its power cycle. The runs wait
// with AttemptsExhausted and try again by themselves, one at a time. // I11
func TestZoneLimitHoldsForRunsThatBeginAgain(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 8, "a", "b")
		for i := range 4 {
			f.breakHost(fmt.Sprintf("c-%03d", i))
		}
		e, _, _ := fleets{f}.guard(t, store, func(o *engine.Options) {
			o.Run.RetryInterval, o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = time.Second, 1, time.Minute, time.Second
			o.Guards.MaxFencesPerDay = 50
		})
		time.Sleep(90 * time.Minute)
		again := 0
		for _, r := range e.Runs("c") {
			if r.Attempt > 1 {
				again++
			}
		}
		assert.Equal(t, 4, again, "all of them have tried again")
		assert.Equal(t, 1, f.MostOff("a"), "hosts of the zone that were off at once")
	})
}

// A run that begins again takes a start like a new run, each time: runs that never end do not pass the
// rate, with and without restarts of the daemon. // I11
func TestRunThatBeginsAgainCountsAtEachStart(t *testing.T) {
	for _, every := range []time.Duration{0, 25 * time.Minute} {
		scene(t, every.String(), func(t *testing.T, _ *world, store *failingStore) {
			f := newFleet("c", 8, "")
			for i := range 3 {
				f.breakHost(fmt.Sprintf("c-%03d", i))
			}
			change := func(o *engine.Options) {
				o.Run.RetryInterval, o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = time.Second, 1, time.Minute, time.Second
				o.Guards.MaxFencesPerDay, o.Guards.MaxInFlight, o.Guards.StartsPerHour = 50, 2, 4
			}
			e, _, stop := fleets{f}.guard(t, store, change)
			begun, offs := time.Now(), 0
			for age := 5 * time.Minute; age <= 3*time.Hour; age += 5 * time.Minute {
				time.Sleep(5 * time.Minute)
				offs = f.Handle("c-000").Count(bmc.CommandOff) + f.Handle("c-001").Count(bmc.CommandOff) + f.Handle("c-002").Count(bmc.CommandOff)
				assert.LessOrEqual(t, float64(offs), 2+4*time.Since(begun).Hours(), "after %s", age)
				if every > 0 && age%every == 0 {
					stop()
					e, _, stop = fleets{f}.guard(t, store, change)
				}
			}
			for _, r := range e.Runs("c") {
				assert.True(t, r.Open(), "no run has ended")
			}
			assert.Greater(t, offs, 9, "and they have begun again")
		})
	}
}

// A request that its check gives up is answered once the run rests. The run does not outlive it then: it was told that
// nothing more is switched. // I22
func TestRunOutlivesNoRequestThatWasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		w.nodeHealthCheck(3)
		e := running(t, w, store, w.quickRetries(remediate.IsolateDelete))
		until(t, e, remediate.AwaitNode) // the Node is gone
		w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.TimedOut = time.Now() }) })
		require.Equal(t, reason.Withdrawn, until(t, e, remediate.Waiting).Reason)
		time.Sleep(5 * time.Minute)
		_, told := asked(w)
		require.Equal(t, request.Failed, told.Phase)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(2 * time.Hour)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		stands(t, e, remediate.Waiting, reason.Withdrawn)
		w.Recover()
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Done)
	})
}
