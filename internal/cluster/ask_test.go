package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Whether a Waiting run that is due may go on is asked as if that run did not exist. What other
// remediators were asked exists all the same: a budget counts their targets, and no check asks for
// more there. // I11, I22
func TestDueRunForgetsNoOtherRemediator(t *testing.T) {
	a := newAsking(manyLimits())
	a.check.Conditions = []policy.UnhealthyCondition{{Type: "Bad", Status: "True", Timeout: time.Minute}}
	a.put()
	a.b.ledger.Apply(a.now, policy.Change{
		ID:    policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: "b"},
		Value: &policy.DisruptionBudget{Name: "b", Selector: labels.SelectorFromSet(labels.Set{"in": "b"}), MaxUnavailable: intstr.FromInt32(1)},
	})
	for _, name := range []string{"n-1", "n-3"} { // each is Ready, so it counts only while somebody repairs it
		a.node(name, "True", func(n *policy.Node) {
			n.Labels = map[string]string{"in": "b"}
			n.Conditions = append(n.Conditions, policy.Condition{Type: "Bad", Status: "True", LastTransition: a.now.Add(-time.Hour)})
		})
	}
	a.node("n-9", "Unknown")
	_, err := a.reserve(a.candidate(t, "n-1"), reboot)
	require.NoError(t, err)
	due := remediate.Run{ID: "due", Attempt: 1, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-9"}}
	a.b.Model.Put(due)
	third := a.candidate(t, "n-3")
	_, err = a.reserve(third, reboot)
	require.Equal(t, reason.Budget, refusedFor(t, err))

	asks := func(node string) policy.TargetReport {
		t.Helper()
		a.b.Follow(a.now, nil, time.Time{})
		targets := a.b.ledger.ActingOn(a.check.ID(), node, a.now)
		if len(targets) == 0 {
			r, _, _ := a.b.WithTargets(a.check.ID(), a.now)
			for _, found := range r.Targets {
				if found.Node == node {
					return found
				}
			}
		}
		require.Len(t, targets, 1)
		return targets[0]
	}
	waiting := WaitingRuns{a.b.Model}
	waiting.StillAsked(waiting.Candidate(due), a.now)
	assert.Equal(t, reason.UnderRemediation, asks("n-1").Reason)
	assert.Equal(t, []reason.Code{reason.Budget}, asks("n-3").Refusals)
	_, err = a.reserve(third, reboot)
	assert.Equal(t, reason.Budget, refusedFor(t, err))
}

// A later attempt is justified by the one before. Only the limit of its check is asked again: meanwhile so many hosts
// may be down that no host may be switched off for that check. // I11
func TestLaterAttemptAsksTheLimitOfItsCheck(t *testing.T) {
	a := newAsking(manyLimits())
	a.check.MaxUnhealthy = new(intstr.FromInt32(2))
	a.put()
	due := remediate.Run{ID: "due", Attempt: 2, Step: remediate.Waiting, Reason: reason.AttemptsExhausted, Wait: &remediate.Wait{Due: true}, Isolated: a.now.Add(-time.Hour),
		Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-1"}, NodeLabels: map[string]string{}, CheckID: CheckID(a.check.ID())}
	a.b.Model.Put(due) // it has deleted its Node
	a.node("n-2", "Unknown")
	a.node("n-3", "True")
	waiting := WaitingRuns{a.b.Model}
	refused := func() []reason.Code {
		a.b.mu.Lock()
		a.b.applyOpenRuns(a.now)
		a.b.mu.Unlock()
		g, failing := FirstFailing(waiting.StillAsked(waiting.Candidate(due), a.now))
		if !failing {
			return nil
		}
		return []reason.Code{g.Reason}
	}
	assert.Empty(t, refused(), "two of three are not healthy")
	a.node("n-3", "Unknown")
	assert.Equal(t, []reason.Code{reason.ShortCircuit}, refused())
	a.node("n-3", "True")
	assert.Empty(t, refused())

	a.check.Invalid = "spec.maxUnhealthy: no number"
	a.put()
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, refused(), "nobody knows the limit")
	a.check.Invalid = ""
	a.put()
	assert.Empty(t, refused())
	a.b.ledger.Apply(a.now, policy.Change{ID: checkObject(&a.check)})
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, refused(), "nobody asks")
}
