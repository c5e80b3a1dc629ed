package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// system is a section of docs/systems.md, with what its other controllers do to the host n-1, which may have
// three power cycles.
type system struct {
	// begin makes the world and the options those of the system. The host hangs already.
	begin func(w *world, o *engine.Options)
	// order is what a person does once fenced runs.
	order func(t *testing.T, e *engine.Engine)
	// second is what the controllers do in each second.
	second func(w *world)
	// isolations are those with which the system goes on as below; both if there are none.
	isolations []remediate.Isolation

	back  string // what its request was told last if a boot helps; "" if there is none
	never string // the same if none does
	end   remediate.Step
	fate  string // of the Machine then: "deleted", "marked" for its owner, or "stays"
}

// What a request was told: phase, Processing, Succeeded, PermanentNodeDeletionExpected.
const (
	toldGone     = "gone" // its controller has deleted it
	toldBack     = "Succeeded False True False"
	toldReplaced = "Succeeded False True True"
	toldRests    = "Running True Unknown False"
	toldGivenUp  = "Failed False False False"
)

// evaluated has fenced evaluate the checks of the cluster.
func evaluated(w *world, o *engine.Options) {
	w.ownMachines()
	o.Clusters[0].Mode, o.Clusters[0].Requests = guard.ModeEvaluate, w.Requests()
}

// askedByMachine has the controller of a MachineHealthCheck ask for the Machine of n-1. That of OpenShift
// (machine-api-operator 9511961) and the manager of the Cluster API do the same.
func askedByMachine(w *world, change func(*policy.Request)) {
	ask(w, func(q *policy.Request) {
		if q.Power.Attempts = 3; change != nil {
			change(q)
		}
	})
}

// machineHealthCheck is a second of such a controller: it deletes its request once the Node is Ready. A Node that
// is gone is unhealthy, so the request stays. Kubernetes deletes it with its Machine.
func machineHealthCheck(w *world) {
	time.Sleep(time.Second)
	w.Do(func(s *fake.State) {
		q, n := s.Asked["m-1"], s.Nodes["n-1"]
		if q != nil && !q.Deleting && (n != nil && n.Ready == "True" || s.Machines["n-1"] == nil) {
			s.Withdraw("m-1")
		}
	})
}

// replaces is a second of the controller that owns the Machines of the Cluster API: it replaces one that is marked.
func replaces(w *world) {
	time.Sleep(time.Second)
	w.Do(func(s *fake.State) {
		if m := s.Machines["n-1"]; m != nil && m.OwnerRemediated != "" {
			s.RemoveMachine("n-1")
			s.RemoveNode("n-1")
		}
	})
}

// nothing is a second in which nobody else acts.
func nothing(*world) { time.Sleep(time.Second) }

// timesOut is a second of a NodeHealthCheck that escalates: half an hour after its request it goes on to its next template.
func timesOut(w *world) {
	time.Sleep(time.Second)
	w.Do(func(s *fake.State) {
		s.ChangeRequest("m-1", func(q *policy.Request) {
			if n := s.Nodes["n-1"]; q.TimedOut.IsZero() && time.Since(q.Created) > 30*time.Minute && (n == nil || n.Ready != "True") {
				q.TimedOut = time.Now()
			}
		})
	})
}

// systems are those of docs/systems.md. A pool in a cloud has no host that boots: TestOneMachineOfACheckIsDeletedAtATime,
// TestMachineIsHandedOverToItsOwner. A NodeHealthCheck that forgets its Node: TestRunOutlivesTheRequestOfAForgottenNode.
var systems = map[string]system{
	"openshift, handed over": {
		begin: func(w *world, o *engine.Options) {
			evaluated(w, o)
			w.changeCheck(func(c *policy.Check) { c.Paused, c.Evaluator = true, "here" })
			o.Instance = "here"
		},
		end: remediate.Reprovisioned, fate: "deleted"},
	"openshift, beside a living actuator, or any cluster with Machines and a FencePolicy": {
		begin: func(w *world, o *engine.Options) {
			evaluated(w, o)
			withPolicy(w, nodePolicy())(o)
		},
		end: remediate.Reprovisioned, fate: "deleted"},
	"openshift, its check asks by a template": {
		begin: func(w *world, o *engine.Options) {
			w.ownMachines()
			responding(w)(o)
			askedByMachine(w, nil)
		},
		second: machineHealthCheck, back: toldGone, never: toldReplaced, end: remediate.Reprovisioned, fate: "deleted"},
	"openshift, its check asks by the annotation": {
		begin: func(w *world, o *engine.Options) {
			w.ownMachines()
			responding(w)(o)
			annotate(w, true)
		},
		end: remediate.Reprovisioned, fate: "deleted"},
	"cluster api, handed over": {
		begin: func(w *world, o *engine.Options) {
			w.ofClusterAPI()
			evaluated(w, o)
			w.changeCheck(func(c *policy.Check) {
				c.Paused, c.Evaluator, c.Strategy, c.Template = true, "here", policy.CreateRequests, &powerTemplate
			})
			o.Instance = "here"
		},
		second: replaces, end: remediate.Reprovisioned, fate: "marked"},
	"cluster api, its manager asks": {
		begin: func(w *world, o *engine.Options) {
			w.ofClusterAPI()
			responding(w)(o)
			askedByMachine(w, nil)
		},
		second: machineHealthCheck, back: toldGone, never: toldReplaced, end: remediate.Reprovisioned, fate: "marked"},
	"cluster api with metal3, its manager asks by a Metal3Remediation": {
		begin: func(w *world, o *engine.Options) {
			w.ofClusterAPI()
			responding(w)(o)
			askedByMachine(w, func(q *policy.Request) { // retryLimit: 2
				q.APIVersion, q.Kind = manifest.Metal3RequestGroup+"/v1beta2", manifest.Metal3RequestKind
			})
		},
		second: machineHealthCheck, back: toldGone, never: toldReplaced, end: remediate.Reprovisioned, fate: "marked"},
	"medik8s, then the Machine is deleted": {
		begin: func(w *world, o *engine.Options) {
			w.ownMachines()
			w.nodeHealthCheck(3)
			w.changeCheck(func(c *policy.Check) {
				c.Template, c.Escalation = nil, []policy.Escalation{{Template: powerTemplate, Order: 1, Timeout: 30 * time.Minute}, {Template: otherTemplate, Order: 2}}
			})
			responding(w)(o)
		},
		second: timesOut, isolations: []remediate.Isolation{remediate.IsolateTaint},
		back: toldBack, never: toldGivenUp, end: remediate.Waiting, fate: "stays"},
	"a plain cluster": {
		begin: func(w *world, o *engine.Options) {
			w.dropMachines()
			evaluated(w, o)
			withPolicy(w, nodePolicy())(o)
		},
		end: remediate.Waiting},
	"a plain cluster, another remediator comes first": {
		begin: func(w *world, o *engine.Options) { escalating(w, otherTemplate, powerTemplate)(o) },
		second: func(w *world) { // it does nothing, and stops when it is told to
			if time.Sleep(time.Second); slices.ContainsFunc(others(w), func(q policy.Request) bool { return !q.TimedOut.IsZero() }) {
				answer(w, "False")
			}
		},
		end: remediate.Waiting},
	"a person makes a request": {
		begin: func(w *world, o *engine.Options) {
			w.dropMachines()
			responding(w)(o)
			o.Clusters[0].Rules.RequestNamespaces = []string{"ops"}
			ask(w, func(q *policy.Request) { q.Namespace, q.NodeName, q.Power.Attempts = "ops", "n-1", 3 })
		},
		back: toldBack, never: toldRests, end: remediate.Waiting},
	"a person fences": {
		begin: func(w *world, o *engine.Options) {
			evaluated(w, o)
			w.pauseCheck()
		},
		order: func(t *testing.T, e *engine.Engine) {
			time.Sleep(10 * time.Second)
			accepted(t)(e.Fence(t.Context(), byHand))
		},
		end: remediate.Reprovisioned, fate: "deleted"},
}

// outcome is what became of the run of a system.
func (s system) outcome(t *testing.T, w *world) (told, fate string) {
	t.Helper()
	w.Do(func(f *fake.State) {
		for uid, status := range f.Told { // there is one request
			if q := f.Asked["m-1"]; (q == nil || q.UID != uid) && f.Machines["n-1"] != nil {
				told = toldGone
				return
			}
			told = strings.Join([]string{status.Phase, conditionOf(status, request.Processing), conditionOf(status, request.SucceededType),
				conditionOf(status, request.PermanentDeletion)}, " ") // TestOf has the others
		}
		switch m := f.Machines["n-1"]; {
		case m != nil && m.ExternalRemediationRequested:
			fate = "asked for"
		case m != nil:
			fate = "stays"
		}
	})
	switch {
	case len(w.Deprovisioned()) > 0:
		assert.Equal(t, []string{"n-1"}, w.Deprovisioned())
		fate = "deleted"
	case w.HandedOver() > 0:
		assert.Equal(t, 1, w.HandedOver())
		fate = "marked"
	}
	return told, fate
}

// The fence-and-boot matrix: the first boot fails, the second too, or the host never boots. fenced itself tries again,
// three power cycles in all, whoever asked. Then the Machine is replaced where somebody replaces it, and else the run
// waits with its host On. Nothing else is switched or deleted. // I14, I20
func TestHostsThatDoNotBoot(t *testing.T) {
	for name, s := range systems {
		if s.isolations == nil {
			s.isolations = []remediate.Isolation{remediate.IsolateDelete, remediate.IsolateTaint}
		}
		for _, isolation := range s.isolations {
			for _, failing := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s, %s, %d boots fail", name, isolation, failing), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world, store *failingStore) { s.boots(t, w, store, isolation, failing) })
				})
			}
		}
	}
}

func (s system) boots(t *testing.T, w *world, store *failingStore, isolation remediate.Isolation, failing int) {
	w.SetBootTime(never)
	e, _, stop := start(t, w, store, func(o *engine.Options) {
		s.begin(w, o)
		waiting(o)
		o.Run.MaxAttempts, o.Run.ReadyTimeout = 3, 3*time.Minute
		o.Clusters[0].Isolation, o.Clusters[0].Reprovision = isolation, true
	})
	if s.order != nil {
		s.order(t, e)
	}
	second := s.second
	if second == nil {
		second = nothing
	}
	w.boots(36*time.Minute, failing, func() { second(w) })
	r := only(t, e)
	told, fate := s.outcome(t, w)
	if failing < 3 {
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, failing+1, w.Count(bmc.CommandOff))
		assert.Equal(t, s.back, told)
		assert.Contains(t, []string{"stays", ""}, fate)
		assert.True(t, w.On() && w.Restored())
		stop()
		return
	}
	assert.Equal(t, s.end, r.Step, "%s: %s", r.Reason, r.Note)
	assert.Equal(t, s.fate, fate)
	assert.Equal(t, s.never, told)
	assert.Equal(t, 3, w.Count(bmc.CommandOff))
	assert.Equal(t, fate != "deleted", w.On(), "a host is erased with its Machine, and else it is On")
	if s.never == toldRests { // it still asks: one more after an hour. Then it is deleted
		time.Sleep(time.Hour)
		assert.Equal(t, 4, w.Count(bmc.CommandOff))
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(2 * time.Hour)
		assert.Equal(t, 4, w.Count(bmc.CommandOff))
		assert.True(t, w.On())
	}
	stop()
}

func (w *world) setSkew(by time.Duration) { w.Do(func(s *fake.State) { s.Skew = by }) }

// If a clock is found to be wrong during a run, nothing destructive is done: a host that
// is off is powered on, and the run starts again when the clock is right. // I16
func TestWrongClockBringsTheHostBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		await(t, func() bool { return !w.On() })
		w.setSkew(-time.Hour)
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.PowerOn, reason.ClockSkew)
		assert.Contains(t, r.Note, "the clock of this host is 1h0m0s ")
		assert.True(t, w.On())
		w.Hang()
		time.Sleep(30 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		assert.NotEmpty(t, gate(t, e, reason.ClockSkew).Value)
		assert.Zero(t, w.Isolations())
		w.setSkew(0)
		time.Sleep(30 * time.Minute)
		runs := e.Runs("c")
		if assert.Len(t, runs, 2) {
			assert.ElementsMatch(t, []remediate.Step{remediate.Aborted, remediate.Done}, []remediate.Step{runs[0].Step, runs[1].Step})
		}
		assert.Equal(t, 1, w.Isolations())
		assert.True(t, w.Ready())
	})
}

// If a clock becomes wrong while the host boots, the run neither deletes the Machine nor
// cycles the host again while that lasts. Afterwards the host has its whole
// time. // I14, I16
func TestWrongClockDeletesNoMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.SetBootTime(3 * time.Hour)
		e := running(t, w, store, nil)
		until(t, e, remediate.AwaitNode)
		w.setSkew(time.Hour)
		time.Sleep(40 * time.Minute)
		r := stands(t, e, remediate.AwaitNode)
		assert.Equal(t, 1, r.Attempt)
		assert.True(t, r.WrongClock)
		w.setSkew(0)
		time.Sleep(9 * time.Minute)
		assert.Equal(t, remediate.AwaitNode, only(t, e).Step)
		assert.False(t, only(t, e).WrongClock)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2, only(t, e).Attempt)
		assert.Empty(t, w.Deprovisioned())
	})
}
