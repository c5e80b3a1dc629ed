package request

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
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
	broughtOn := func(r *remediate.Run) { // isolated, and read On since
		r.Intervened, r.Isolated = true, time.Unix(1, 0)
		for _, step := range []remediate.Step{remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode, r.Step} {
			r.Steps = append(r.Steps, remediate.Visit{Step: step})
		}
	}
	foundReady := func(r *remediate.Run) { // its Node registered, and nothing has read it On
		r.Intervened, r.Isolated = true, time.Unix(1, 0)
		for _, step := range []remediate.Step{remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.Reprovision, r.Step} {
			r.Steps = append(r.Steps, remediate.Visit{Step: step})
		}
	}
	resting := func(r *remediate.Run) { // for nobody
		r.Reason, r.Wait = reason.Withdrawn, &remediate.Wait{Code: reason.Withdrawn}
		r.Request = &remediate.Request{Kind: policy.FencedRemediationKind, UID: "u"}
	}
	ofGone := func(r *remediate.Run) {
		r.Request = &remediate.Request{Kind: policy.FencedRemediationKind, UID: "gone"}
	}
	givenUp := policy.Request{Kind: policy.FencedRemediationKind, UID: "u", TimedOut: time.Unix(1, 0)}
	of := func(uid string) policy.Request { return policy.Request{Kind: policy.FencedRemediationKind, UID: uid} }
	for name, c := range map[string]struct {
		target policy.TargetReport
		q      policy.Request
		r      *remediate.Run
		want   string
		hold   bool
		why    string
	}{
		"nothing begun":                 {sick, policy.Request{}, nil, "Pending Unknown Unknown False", false, "Waiting"},
		"a check of all forbids it":     {refused, policy.Request{}, nil, "Pending Unknown Unknown False", false, "Budget"},
		"under way":                     {sick, policy.Request{}, run(remediate.PowerOff), "Running True Unknown False", true, "PowerOff"},
		"waiting":                       {sick, policy.Request{}, run(remediate.Waiting), "Running True Unknown False", true, "Waiting"},
		"the host is off, deleted":      {sick, policy.Request{Deleting: true}, run(remediate.DeleteNode), "Running True Unknown False", true, "DeleteNode"},
		"not yet on, deleted":           {sick, policy.Request{Deleting: true}, run(remediate.PowerOn), "Running True Unknown False", true, "PowerOn"},
		"on again, deleted":             {sick, policy.Request{Deleting: true}, run(remediate.AwaitNode, broughtOn), "Running True Unknown False", false, "AwaitNode"},
		"found Ready, deleted":          {sick, policy.Request{Deleting: true}, run(remediate.AwaitNode, foundReady), "Running True Unknown False", true, "AwaitNode"},
		"came by itself, deleted":       {sick, policy.Request{Deleting: true}, run(remediate.RestoreNode, foundReady), "Running True Unknown False", true, "RestoreNode"},
		"on again":                      {sick, policy.Request{}, run(remediate.AwaitNode), "Running True Unknown False", true, "AwaitNode"},
		"outlets on again, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.AwaitNode, broughtOn, byOutlet), "Running True Unknown False", true, "AwaitNode"},
		"its Node registered, deleted":  {sick, policy.Request{Deleting: true}, run(remediate.RestoreNode, broughtOn, byOutlet), "Running True Unknown False", false, "RestoreNode"},
		"a person is needed":            {sick, policy.Request{}, run(remediate.Held, sent), "Held True False False", true, "Held"},
		"the same, never touched":       {sick, policy.Request{}, run(remediate.Held), "Held False False False", true, "Held"},
		"the same, and its host is On":  {sick, policy.Request{}, run(remediate.Held, broughtOn), "Held False False False", true, "Held"},
		"its host is off on purpose":    {sick, policy.Request{}, run(remediate.Held, func(r *remediate.Run) { r.LeaveOff = true }), "Held True False False", true, "Held"},
		"done":                          {well, policy.Request{}, run(remediate.Done), "Succeeded False True False", false, "Remediated"},
		"replaced":                      {policy.TargetReport{}, policy.Request{}, run(remediate.Reprovisioned), "Succeeded False True True", false, "MachineReplaced"},
		"dropped, and recovered":        {well, policy.Request{}, run(remediate.Aborted), "Succeeded False True False", false, "Recovered"},
		"dropped":                       {sick, policy.Request{}, run(remediate.Aborted), "Pending Unknown Unknown False", false, "Waiting"},
		"too late":                      {late, policy.Request{}, nil, "Failed False False False", false, "RequestTimeout"},
		"too late, and not yet ended":   {late, policy.Request{}, run(remediate.Waiting), "Running True Unknown False", true, "Waiting"},
		"too late, and never touched":   {late, policy.Request{}, run(remediate.Aborted), "Failed False False False", false, "RequestTimeout"},
		"no other attempt, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.Waiting, sent, because(reason.Withdrawn)), "Running True Unknown False", false, "Waiting"},
		"attempts used up, deleted":     {sick, policy.Request{Deleting: true}, run(remediate.Held, sent, because(reason.AttemptsExhausted)), "Held True False False", false, "AttemptsExhausted"},
		"used up by outlets, deleted":   {sick, policy.Request{Deleting: true}, run(remediate.Held, broughtOn, byOutlet, because(reason.AttemptsExhausted)), "Held False False False", true, "AttemptsExhausted"},
		"no other by outlets, deleted":  {sick, policy.Request{Deleting: true}, run(remediate.Waiting, sent, byOutlet, because(reason.Withdrawn)), "Running True Unknown False", true, "Waiting"},
		"attempts used up, On":          {sick, policy.Request{}, run(remediate.Held, broughtOn, because(reason.AttemptsExhausted)), "Held False False False", true, "AttemptsExhausted"},
		"waiting untouched, deleted":    {sick, policy.Request{Deleting: true}, run(remediate.Waiting), "Running True Unknown False", false, "Waiting"},
		"waiting with the host off":     {sick, policy.Request{Deleting: true}, run(remediate.Waiting, sent), "Running True Unknown False", true, "Waiting"},
		"late, but begun":               {late, policy.Request{}, run(remediate.DeleteNode, sent), "Running True Unknown False", true, "DeleteNode"},
		"given up, and its Off is sent": {late, givenUp, run(remediate.PowerOff), "Running True Unknown False", true, "RequestTimeout"},
		"given up, and going back":      {late, givenUp, run(remediate.PowerOn, sent), "Running True Unknown False", true, "RequestTimeout"},
		"given up, and On":              {late, givenUp, run(remediate.AwaitNode, sent), "Running True Unknown False", true, "RequestTimeout"},
		"given up, and back":            {late, givenUp, run(remediate.Aborted, sent, because(reason.Contested)), "Failed False False False", false, "RequestTimeout"},
		"given up, and nothing begun":   {late, givenUp, nil, "Failed False False False", false, "RequestTimeout"},
		"given up, and replaced":        {late, givenUp, run(remediate.Reprovisioned), "Succeeded False True True", false, "MachineReplaced"},
		"given up, waits, untouched":    {late, givenUp, run(remediate.Waiting), "Running True Unknown False", true, "RequestTimeout"},
		"given up, waits, is off":       {late, givenUp, run(remediate.Waiting, sent, resting), "Running True Unknown False", true, "RequestTimeout"},
		"given up, rests, is On":        {late, givenUp, run(remediate.Waiting, broughtOn, resting), "Failed False False False", true, "RequestTimeout"},
		"given up, another's run rests": {late, policy.Request{Kind: policy.FencedRemediationKind, UID: "v", TimedOut: time.Unix(1, 0)}, run(remediate.Waiting, broughtOn, resting), "Running True Unknown False", true, "RequestTimeout"},
		"given up, a gone one's rests":  {late, policy.Request{Kind: policy.FencedRemediationKind, UID: "v", TimedOut: time.Unix(1, 0)}, run(remediate.Waiting, broughtOn, resting, ofGone), "Failed False False False", true, "RequestTimeout"},
		"asks, a gone one's run rests":  {sick, of("v"), run(remediate.Waiting, broughtOn, resting, ofGone), "Running True Unknown False", true, "Waiting"},
		"paused, rests, is On":          {sick, of("u"), run(remediate.Waiting, broughtOn, resting), "Running True Unknown False", true, "Waiting"},
		"given up, a person is needed":  {late, givenUp, run(remediate.Held, sent), "Held True False False", true, "Held"},
		"the same, and it is On":        {late, givenUp, run(remediate.Held, broughtOn), "Failed False False False", true, "RequestTimeout"},
		"given up on, after it is done": {well, policy.Request{TimedOut: time.Unix(1, 0)}, run(remediate.Done), "Succeeded False True False", false, "Remediated"},
	} {
		s := Of(policy.Requested{Request: &c.q, Target: c.target}, c.r, goesOn(&c.q, c.r) && IsOver(&c.q) || c.r != nil && c.r.Request != nil && c.r.Request.UID == "gone", Refusal{}, false)
		got := s.Phase
		for _, k := range s.Conditions[:3] {
			got += " " + k.Status
		}
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.hold, s.KeepFinalizer, name)
		assert.Equal(t, c.why, s.Conditions[0].Reason, name)
		for _, k := range s.Conditions {
			assert.NotEmpty(t, k.Reason, "%s: metav1 requires a reason", name)
		}
	}
	s := Of(policy.Requested{Request: &policy.Request{}, Target: sick}, nil, false, Refusal{reason.NoHost, "why"}, false)
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
			assert.Equal(t, c.want, Of(policy.Requested{Request: &q, Target: sick}, c.r, false, Refusal{}, false), name)
		}
		open := remediate.Run{ID: "r", Step: remediate.PowerOn, Attempt: 1, Request: own}
		assert.Equal(t, Running, Of(policy.Requested{Request: &q, Target: sick}, &open, false, Refusal{}, false).Phase)
	}
	for _, phase := range []string{"", Pending, Running, Held} {
		q := policy.Request{Kind: policy.FencedRemediationKind, UID: "u", Power: &policy.PowerRequest{Phase: phase}}
		assert.Equal(t, Pending, Of(policy.Requested{Request: &q, Target: sick}, nil, false, Refusal{}, false).Phase, phase)
	}
}

// A finalizer stays while a run that nobody knows may have left the host off, whatever phase was
// written before the state was lost. People are told where nothing else brings the host back. // I20
func TestFinalizerOfALostRunStays(t *testing.T) {
	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	late := policy.TargetReport{Node: "n", Verdict: policy.Indeterminate, Reason: reason.RequestTimeout}
	well := policy.TargetReport{Node: "n", Verdict: policy.Healthy}
	asks, deleted, givenUp := policy.Request{}, policy.Request{Deleting: true}, policy.Request{TimedOut: time.Unix(1, 0)}
	held := func(phase string) policy.PowerRequest {
		return policy.PowerRequest{HasFinalizer: true, Phase: phase, Run: "r"}
	}
	untouched := &remediate.Run{ID: "r2", Step: remediate.Aborted, Attempt: 1}
	for name, c := range map[string]struct {
		power  policy.PowerRequest
		target policy.TargetReport
		q      policy.Request
		r      *remediate.Run
		stays  bool
		phase  string // with Processing
	}{
		"was running":                 {held(Running), sick, asks, nil, true, "Held Unknown"},
		"needed a person":             {held(Held), sick, deleted, nil, true, "Held Unknown"},
		"its target is gone":          {held(Running), policy.TargetReport{}, deleted, nil, true, "Held Unknown"},
		"the Node is Ready":           {held(Running), well, deleted, nil, false, "Succeeded False"},
		"no phase, deleted":           {held(""), sick, deleted, nil, true, "Held Unknown"},
		"no run was told, deleted":    {held(Pending), sick, deleted, nil, true, "Held Unknown"},
		"no run was told, given up":   {held(Pending), late, givenUp, nil, true, "Held Unknown"},
		"no run was told, late":       {held(Pending), late, asks, nil, true, "Held Unknown"},
		"no run was told, asks":       {held(Pending), sick, asks, nil, true, "Pending Unknown"},
		"no run was told, is Ready":   {held(Pending), well, deleted, nil, false, "Succeeded False"},
		"its next run was dropped":    {held(Running), sick, deleted, untouched, true, "Held Unknown"},
		"its next run has not begun":  {held(Running), late, givenUp, &remediate.Run{ID: "r2", Step: remediate.PowerOff, Attempt: 1}, true, "Running True"},
		"its next run rests, deleted": {held(Running), sick, deleted, &remediate.Run{ID: "r2", Step: remediate.Waiting, Attempt: 1}, true, "Running True"},
		"its next run needs a person": {held(Running), late, givenUp, &remediate.Run{ID: "r2", Step: remediate.Held, Attempt: 1}, true, "Held True"},
	} {
		c.q.Power = &c.power
		s := Of(policy.Requested{Request: &c.q, Target: c.target}, c.r, false, Refusal{}, true)
		assert.Equal(t, c.stays, s.KeepFinalizer, name)
		assert.Equal(t, c.phase, s.Phase+" "+s.Conditions[0].Status, name)
		assert.Equal(t, c.phase == "Held Unknown", s.Lost, name)
		if s.Lost {
			assert.Equal(t, []string{"r", "RunUnknown"}, []string{s.Run, s.Conditions[0].Reason}, name)
			assert.Contains(t, s.LastError, "remove the finalizer")
		}
	}
	for name, q := range map[string]policy.Request{
		"it is not held":       {Deleting: true, Power: &policy.PowerRequest{Phase: Running}},
		"held by this process": {Deleting: true, Power: &policy.PowerRequest{HasFinalizer: true, Phase: Pending}},
		"another holds it":     {Power: &policy.PowerRequest{FinalizerElsewhere: true}},
	} {
		s := Of(policy.Requested{Request: &q, Target: sick}, nil, false, Refusal{}, false)
		assert.Equal(t, []bool{false, false}, []bool{s.KeepFinalizer, s.Lost}, name)
	}
	q := policy.Request{Deleting: true, Power: &policy.PowerRequest{FinalizerElsewhere: true}}
	s := Of(policy.Requested{Request: &q, Target: sick}, nil, false, Refusal{}, false)
	assert.Equal(t, []bool{true, true}, []bool{s.KeepFinalizer, s.Lost}, "another holds it, and it is deleted")
}

// What a BMC reports is not copied into the cluster: notes may hold its UUID or address.
func TestNotesOfRunsStayHere(t *testing.T) {
	r := remediate.Run{ID: "r1", Step: remediate.Held, Reason: reason.IdentityMismatch, Note: "the BMC reported 4c4c4544-0042"}
	s := Of(policy.Requested{Request: &policy.Request{}}, &r, false, Refusal{}, false)
	for _, text := range []string{s.LastError, s.Conditions[0].Message} {
		assert.NotContains(t, text, "4c4c4544")
		assert.Contains(t, text, "fencectl timeline r1")
	}
}

// The health check for Argo CD in docs/systems.md, in the interpreter that Argo CD has, gives each phase its health.
func TestHealthInArgoCD(t *testing.T) {
	page := string(must.Do(os.ReadFile("../../docs/systems.md"))(t))
	_, rest, found := strings.Cut(page, "#### Health in Argo CD")
	require.True(t, found)
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	block, _, _ := strings.Cut(rest, "```")
	var config struct{ Data map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(block), &config))
	script := config.Data["resource.customizations.health.fenced.io_FencedRemediation"]
	require.NotEmpty(t, script)
	for phase, want := range map[string]string{
		"": "Progressing", Pending: "Progressing", Running: "Progressing", Held: "Degraded", Failed: "Degraded", Succeeded: "Healthy",
	} {
		l := lua.NewState()
		defer l.Close()
		status := l.NewTable()
		l.SetField(status, "observedGeneration", lua.LNumber(-1))
		if phase != "" {
			conditions := l.NewTable()
			for _, c := range (Status{}).set(phase, "Unknown", "Unknown", "Why", "the message").Conditions {
				m := l.NewTable()
				for key, text := range map[string]string{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message} {
					l.SetField(m, key, lua.LString(text))
				}
				conditions.Append(m)
			}
			l.SetField(status, "conditions", conditions)
		}
		obj := l.NewTable()
		l.SetField(obj, "status", status)
		l.SetGlobal("obj", obj)
		require.NoError(t, l.DoString(script), phase)
		health, is := l.Get(-1).(*lua.LTable)
		require.True(t, is)
		assert.Equal(t, want, l.GetField(health, "status").String(), phase)
		if phase != "" {
			assert.Equal(t, "the message", l.GetField(health, "message").String(), phase)
		}
	}
}
