package request

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// What each state of a request and its run is told: phase, Processing, Succeeded,
// PermanentNodeDeletionExpected, and whether the finalizer stays.
func TestOf(t *testing.T) {
	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	refused := sick
	refused.Refusals = []reason.Code{reason.Budget}
	late := policy.TargetReport{Node: "n", Verdict: policy.Indeterminate, Reason: reason.RequestTimeout}
	well := policy.TargetReport{Node: "n", Verdict: policy.Healthy}
	run := func(step remediate.Step, change ...func(*remediate.Run)) *remediate.Run {
		r := remediate.Run{ID: "r", Step: step, Attempt: 1}
		for _, f := range change {
			f(&r)
		}
		return &r
	}
	because := func(code reason.Code) func(*remediate.Run) {
		return func(r *remediate.Run) { r.Reason = code }
	}
	sent := func(r *remediate.Run) { r.Intervened = true }
	for name, c := range map[string]struct {
		target policy.TargetReport
		q      policy.Request
		r      *remediate.Run
		want   string
		hold   bool
		why    string
	}{
		"nothing begun":                 {sick, policy.Request{}, nil, "Pending False Unknown False", false, "Waiting"},
		"a check of all forbids it":     {refused, policy.Request{}, nil, "Pending False Unknown False", false, "Budget"},
		"under way":                     {sick, policy.Request{}, run(remediate.PowerOff), "Running True Unknown False", true, "PowerOff"},
		"waiting":                       {sick, policy.Request{}, run(remediate.Waiting), "Running True Unknown False", true, "Waiting"},
		"the host is off, deleted":      {sick, policy.Request{Deleting: true}, run(remediate.DeleteNode), "Running True Unknown False", true, "DeleteNode"},
		"not yet on, deleted":           {sick, policy.Request{Deleting: true}, run(remediate.PowerOn), "Running True Unknown False", true, "PowerOn"},
		"on again, deleted":             {sick, policy.Request{Deleting: true}, run(remediate.AwaitNode), "Running True Unknown False", false, "AwaitNode"},
		"on again":                      {sick, policy.Request{}, run(remediate.AwaitNode), "Running True Unknown False", true, "AwaitNode"},
		"a person is needed":            {sick, policy.Request{}, run(remediate.Held, sent), "Held False False False", true, "Held"},
		"done":                          {well, policy.Request{}, run(remediate.Done), "Succeeded False True False", false, "Remediated"},
		"replaced":                      {policy.TargetReport{}, policy.Request{}, run(remediate.Reprovisioned), "Succeeded False True True", false, "MachineReplaced"},
		"dropped, and recovered":        {well, policy.Request{}, run(remediate.Aborted), "Succeeded False True False", false, "Recovered"},
		"dropped":                       {sick, policy.Request{}, run(remediate.Aborted), "Pending False Unknown False", false, "Waiting"},
		"too late":                      {late, policy.Request{}, nil, "Failed False False False", false, "RequestTimeout"},
		"too late, and not yet ended":   {late, policy.Request{}, run(remediate.Waiting), "Running True Unknown False", true, "Waiting"},
		"too late, and never touched":   {late, policy.Request{}, run(remediate.Aborted), "Failed False False False", false, "RequestTimeout"},
		"no other attempt, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.Waiting, sent, because(reason.Withdrawn)), "Running True Unknown False", false, "Waiting"},
		"attempts used up, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.Held, sent, because(reason.AttemptsExhausted)), "Held False False False", false, "AttemptsExhausted"},
		"waiting untouched, deleted":    {sick, policy.Request{Deleting: true}, run(remediate.Waiting), "Running True Unknown False", false, "Waiting"},
		"waiting with the host off":     {sick, policy.Request{Deleting: true}, run(remediate.Waiting, sent), "Running True Unknown False", true, "Waiting"},
		"late, but begun":               {late, policy.Request{}, run(remediate.DeleteNode, sent), "Running True Unknown False", true, "DeleteNode"},
		"given up, and going back":      {late, policy.Request{TimedOut: time.Unix(1, 0)}, run(remediate.PowerOn, sent), "Failed False False False", true, "RequestTimeout"},
		"given up on, after it is done": {well, policy.Request{TimedOut: time.Unix(1, 0)}, run(remediate.Done), "Succeeded False True False", false, "Remediated"},
	} {
		s := Of(policy.Requested{Request: &c.q, Target: c.target}, c.r, Refusal{})
		got := s.Phase
		for _, k := range s.Conditions {
			got += " " + k.Status
		}
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.hold, s.Hold, name)
		assert.Equal(t, c.why, s.Conditions[0].Reason, name)
		for _, k := range s.Conditions {
			assert.NotEmpty(t, k.Reason, "%s: metav1 requires a reason", name)
		}
	}
	s := Of(policy.Requested{Request: &policy.Request{}, Target: sick}, nil, Refusal{reason.NoHost, "why"})
	assert.Equal(t, []string{"NoHost", "why"}, []string{s.Conditions[0].Reason, s.Conditions[0].Message})
}

// What a BMC reports is not copied into the cluster: notes may hold its UUID or address.
func TestNotesOfRunsStayHere(t *testing.T) {
	r := remediate.Run{ID: "r1", Step: remediate.Held, Reason: reason.IdentityMismatch, Note: "the BMC reported 4c4c4544-0042"}
	s := Of(policy.Requested{Request: &policy.Request{}}, &r, Refusal{})
	for _, text := range []string{s.LastError, s.Conditions[0].Message} {
		assert.NotContains(t, text, "4c4c4544")
		assert.Contains(t, text, "fencectl timeline r1")
	}
}
