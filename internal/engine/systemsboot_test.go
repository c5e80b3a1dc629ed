package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// systems are those of docs/systems.md in which fenced switches power, but that of medik8s, whose controller forgets a
// Node that was deleted (TestRunOutlivesTheRequestOfAForgottenNode). The controllers of the others keep their
// request while the Node is gone.
var systems = map[string]func(w *world) func(*engine.Options){
	"plain: a FencePolicy": func(w *world) func(*engine.Options) {
		w.dropMachines()
		return withPolicy(w, nodePolicy())
	},
	"OpenShift: a FencePolicy beside a living actuator": func(w *world) func(*engine.Options) {
		w.ownMachines()
		return withPolicy(w, nodePolicy())
	},
	"OpenShift: a check that was handed over": func(w *world) func(*engine.Options) {
		w.ownMachines()
		w.changeCheck(func(c *policy.Check) { c.Paused, c.Evaluator = true, "here" })
		return func(*engine.Options) {}
	},
	"OpenShift: a check asks by the annotation": func(w *world) func(*engine.Options) {
		w.ownMachines()
		annotate(w, true)
		return responding(w)
	},
	"OpenShift: a check asks by a FencedRemediation": func(w *world) func(*engine.Options) {
		w.ownMachines()
		ask(w, func(q *policy.Request) { q.Power.Attempts = 3 })
		return responding(w)
	},
	"Cluster API: a check that was handed over": func(w *world) func(*engine.Options) {
		w.ofClusterAPI()
		w.changeCheck(func(c *policy.Check) {
			c.Paused, c.Evaluator, c.Strategy, c.Template = true, "here", policy.CreateRequests, &powerTemplate
		})
		return func(*engine.Options) {}
	},
	"Cluster API: its manager asks by a FencedRemediation": func(w *world) func(*engine.Options) {
		w.ofClusterAPI()
		ask(w, func(q *policy.Request) { q.Power.Attempts = 3 })
		return responding(w)
	},
	"Cluster API: its manager asks by a Metal3Remediation": func(w *world) func(*engine.Options) {
		w.ofClusterAPI()
		ask(w, func(q *policy.Request) {
			q.APIVersion, q.Kind, q.Power.Attempts = "infrastructure.cluster.x-k8s.io/v1beta2", "Metal3Remediation", 3
		})
		return responding(w)
	},
}

// The fence-and-boot matrix of the other systems: so many boots of the host do not help, in both isolation modes. Each
// failed boot costs one power cycle, the host is left On, and nobody's Machine is deleted. // I14, I20
func TestHostsThatDoNotBoot(t *testing.T) {
	for name, system := range systems {
		for _, isolation := range []remediate.Isolation{remediate.IsolateDelete, remediate.IsolateTaint} {
			for failing := range 4 {
				t.Run(fmt.Sprintf("%s, %s, %d boots fail", name, isolation, failing), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world, store *failingStore) {
						w.SetBootTime(never)
						set := system(w)
						e, _, stop := start(t, w, store, func(o *engine.Options) {
							set(o)
							o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Clusters[0].Isolation = 3, 4*time.Minute, isolation
						})
						w.bootsAfter(40*time.Minute, failing)
						r := only(t, e)
						want, cycles := []string{"Done", ""}, failing+1
						if failing == 3 { // as many as the attempts
							want, cycles = []string{"Held", "AttemptsExhausted"}, 3
							time.Sleep(time.Hour)
							assert.Len(t, e.Runs("c"), 1, "nobody begins anew")
						}
						assert.Equal(t, want, []string{string(r.Step), string(r.Reason)}, r.Note)
						assert.Equal(t, cycles, w.Count(bmc.CommandOff))
						assert.Equal(t, failing < 3, w.Restored())
						assert.Equal(t, isolation == remediate.IsolateDelete, w.Isolations() == 1, "with the taint the Node stays")
						assert.True(t, w.On())
						assert.Empty(t, w.Deprovisioned())
						if q, told := asked(w); q != nil {
							assert.Equal(t, failing < 3, told.Phase == request.Succeeded, told.Phase)
							assert.Equal(t, "False", conditionOf(told, request.Processing))
						}
						stop()
					})
				})
			}
		}
	}
}

// bootsAfter lets time pass. So many boots of the host do not help.
func (w *world) bootsAfter(d time.Duration, failing int) {
	boots := false
	for range int(d / time.Second) {
		if time.Sleep(time.Second); !boots && w.Count(bmc.CommandOff) > failing {
			w.SetBootTime(time.Minute)
			boots = true
		}
	}
}
