package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// A kubeconfig may never lead to the cluster again in which a run began: somebody pointed it to the wrong one for a
// while. A run that was given up does not stay in step 3 for ever, and a person can close it. // I27, L1
func TestRunOfAClusterThatIsGoneCanBeClosed(t *testing.T) {
	givenUp := func(r *Run) {
		r.Abandon, r.AbandonTo, r.Reason, r.Isolated = reason.Withdrawn, Aborted, reason.Withdrawn, time.Time{}
	}
	for name, change := range map[string]func(*Run){
		"given up":                      givenUp,
		"given up, with our power lock": func(r *Run) { givenUp(r); r.Target.BareMetalHost = "ns/h" },
	} {
		r, s := begin(PowerOn, time.Hour)
		on(&s)
		change(&r)
		r.Limits.RetryInterval, r.Target.ClusterUID, s.ClusterUID = time.Minute, "home", "another"
		r, a, _ := Next(r, s, noon)
		assert.Equal(t, []any{PowerOn, Nothing}, []any{r.Step, a}, name)

		r.Started = ago(r.Limits.RunTimeout + 1)
		r, a, _ = Next(r, s, noon)
		assert.Equal(t, []any{Waiting, reason.APIUnreachable, Nothing}, []any{r.Step, r.Reason, a}, name)

		now := noon.Add(time.Hour)
		s.At, s.Power = now, bmc.Reading{State: bmc.On, At: now}
		r, a, _ = Next(r, s, now) // it still waits for its cluster
		assert.Equal(t, []any{Waiting, Nothing}, []any{r.Step, a}, name)
		r.Abort = &Order{Actor: "uid 0", Reason: "that cluster is gone", At: now, AsIs: true}
		r, a, _ = Next(r, s, now)
		assert.Equal(t, []any{Aborted, reason.ClosedAsIs, Nothing}, []any{r.Step, r.Reason, a}, name)
	}
}

// A kubeconfig of a separate management cluster may lead to another one, which has no such Machine: that ends no run
// as if the Machine had been replaced. // I27
func TestMachineThatAnotherManagementClusterLacksIsNotGone(t *testing.T) {
	for name, c := range map[string]struct {
		frozen, seen string
		ends         bool
	}{
		"the same":              {"home", "home", true},
		"another one":           {"home", "another", false},
		"it does not say which": {"home", "", false},
		"a record without it":   {"", "home", true},
		"no management cluster": {"", "", true},
	} {
		for _, in := range []Step{Held, Waiting, Reprovision} {
			r, s := begin(Held, time.Hour)
			r.Isolated, r.Reason, r.Step = ago(time.Hour), reason.AttemptsExhausted, in
			r.Wait, r.Limits.RetryInterval = &Wait{Since: ago(time.Minute), Code: r.Reason, Count: 1}, time.Minute
			s.Node, s.Machine = Node{Exists: No}, Machine{Exists: No}
			r.Target.ClusterUID, s.ClusterUID, r.Target.ManagementUID, s.ManagementUID = "work", "work", c.frozen, c.seen
			got, a, _ := Next(r, s, noon)
			assert.Equal(t, []any{c.ends, Nothing}, []any{got.Step == Reprovisioned, a}, "%s, %s: %s", name, in, got.Step)
		}
	}
}
