package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// A tenant's Machine that names the Node of another one, NotReady for a while, beside a request or a check of the
// tenant: nobody's host is switched off, and whoever asks is told why. A person is bound, too. // I4, I8
func TestForgedMachineFencesNobody(t *testing.T) {
	forged := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "tenant", Name: "x", UID: "xu", NodeName: "n-1", Phase: "Running"}
	for name, asks := range map[string]func(w *world, s *fake.State){
		"a request": func(_ *world, s *fake.State) {
			s.Ask("x", func(q *policy.Request) { q.Namespace = "tenant" })
		},
		"a check": func(_ *world, s *fake.State) {
			c := *s.Check
			c.Namespace, c.Name = "tenant", "all"
			s.ShowCheck(&c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.Do(func(s *fake.State) {
					s.ChangeCheck(func(c *policy.Check) { c.Paused = true }) // the Node's own
					s.PutStranger(forged)
				})
				e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
				w.Do(func(s *fake.State) { asks(w, s) })
				time.Sleep(10 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				assert.Empty(t, w.Commands())
				_, err := e.Fence(t.Context(), wire.Order{Cluster: "c", Machine: "tenant/x", Actor: byHand.Actor, Reason: byHand.Reason})
				refusedFor(t, err, reason.NodeNotOwned)
				assert.ErrorContains(t, err, "it has not the annotation machine.openshift.io/machine: tenant/x (it names ns/m-1)")
				w.Do(func(s *fake.State) {
					if q := s.Asked["x"]; q != nil {
						told := s.Told[q.UID]
						require.NotEmpty(t, told.Conditions)
						assert.Contains(t, told.Conditions[0].Message, "Machine tenant/x names Node n-1, and the Node does not name it")
					}
				})
				_, err = e.Fence(t.Context(), byHand)
				assert.NoError(t, err, "the Node's own Machine is in no doubt")
				stop()
			})
		})
	}
}
