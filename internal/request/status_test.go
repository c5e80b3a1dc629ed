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
	byOutlet := func(r *remediate.Run) { r.OffLevel = 1 }
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
		"outlets on again, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.AwaitNode, byOutlet), "Running True Unknown False", true, "AwaitNode"},
		"its Node registered, deleted":  {sick, policy.Request{Deleting: true}, run(remediate.RestoreNode, byOutlet), "Running True Unknown False", false, "RestoreNode"},
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
		assert.Equal(t, c.hold, s.KeepFinalizer, name)
		assert.Equal(t, c.why, s.Conditions[0].Reason, name)
		for _, k := range s.Conditions {
			assert.NotEmpty(t, k.Reason, "%s: metav1 requires a reason", name)
		}
	}
	s := Of(policy.Requested{Request: &policy.Request{}, Target: sick}, nil, Refusal{reason.NoHost, "why"})
	assert.Equal(t, []string{"NoHost", "why"}, []string{s.Conditions[0].Reason, s.Conditions[0].Message})
}

// The last phase stays, whatever becomes of the target, while no run of the request itself is open.
func TestAnsweredRequestsStaySo(t *testing.T) {
	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	own, other := &remediate.Request{Kind: policy.FencedRemediationKind, UID: "u"}, &remediate.Request{Kind: policy.FencedRemediationKind, UID: "other"}
	for _, phase := range []string{Succeeded, Failed} {
		q := policy.Request{Kind: policy.FencedRemediationKind, UID: "u", Power: &policy.PowerRequest{Phase: phase}}
		for name, c := range map[string]struct {
			r    *remediate.Run
			want Status
		}{
			"no run":               {nil, Status{Phase: phase, Answered: true}},
			"a run of a check":     {&remediate.Run{ID: "r", Step: remediate.PowerOff, Attempt: 1}, Status{Phase: phase, Run: "r", KeepFinalizer: true, Answered: true}},
			"another's run":        {&remediate.Run{ID: "r", Step: remediate.PowerOff, Attempt: 1, Request: other}, Status{Phase: phase, Run: "r", KeepFinalizer: true, Answered: true}},
			"its own, which ended": {&remediate.Run{ID: "r", Step: remediate.Aborted, Attempt: 1, Request: own}, Status{Phase: phase, Run: "r", Answered: true}},
		} {
			assert.Equal(t, c.want, Of(policy.Requested{Request: &q, Target: sick}, c.r, Refusal{}), name)
		}
		open := remediate.Run{ID: "r", Step: remediate.PowerOn, Attempt: 1, Request: own}
		assert.Equal(t, Running, Of(policy.Requested{Request: &q, Target: sick}, &open, Refusal{}).Phase)
	}
	for _, phase := range []string{"", Pending, Running, Held} {
		q := policy.Request{Kind: policy.FencedRemediationKind, UID: "u", Power: &policy.PowerRequest{Phase: phase}}
		assert.Equal(t, Pending, Of(policy.Requested{Request: &q, Target: sick}, nil, Refusal{}).Phase, phase)
	}
}

// The finalizer of a run that nobody knows stays while its host may be off.
func TestFinalizerOfALostRunStays(t *testing.T) {
	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	well := policy.TargetReport{Node: "n", Verdict: policy.Healthy}
	for name, c := range map[string]struct {
		power    policy.PowerRequest
		target   policy.TargetReport
		deleting bool
		lost     bool
	}{
		"was running":               {policy.PowerRequest{HasFinalizer: true, Phase: Running, Run: "r"}, sick, false, true},
		"needed a person":           {policy.PowerRequest{HasFinalizer: true, Phase: Held, Run: "r"}, sick, true, true},
		"its target is gone":        {policy.PowerRequest{HasFinalizer: true, Phase: Running, Run: "r"}, policy.TargetReport{}, true, true},
		"the Node is Ready":         {policy.PowerRequest{HasFinalizer: true, Phase: Running, Run: "r"}, well, true, false},
		"no run was told":           {policy.PowerRequest{HasFinalizer: true, Phase: Pending}, sick, true, false},
		"it is not held":            {policy.PowerRequest{Phase: Running, Run: "r"}, sick, false, false},
		"another holds it, deleted": {policy.PowerRequest{FinalizerElsewhere: true}, sick, true, true},
		"another holds it":          {policy.PowerRequest{FinalizerElsewhere: true}, sick, false, false},
	} {
		s := Of(policy.Requested{Request: &policy.Request{Power: &c.power, Deleting: c.deleting}, Target: c.target}, nil, Refusal{})
		assert.Equal(t, c.lost, s.Lost, name)
		assert.Equal(t, c.lost, s.KeepFinalizer, name)
		if c.lost {
			assert.Equal(t, []string{Held, c.power.Run, "RunUnknown"}, []string{s.Phase, s.Run, s.Conditions[0].Reason}, name)
			assert.Contains(t, s.LastError, "remove the finalizer")
		}
	}
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
