package remediate

import (
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

// Each beginning of a run is a start, whoever ordered it; what a run does without a pause is none. // I11, I15
func TestStarts(t *testing.T) {
	at := func(minute int) time.Time { return ago(time.Hour).Add(time.Duration(minute) * time.Minute) }
	visit := func(step Step, minute int) Visit { return Visit{Step: step, Started: at(minute)} }
	for name, c := range map[string]struct {
		run  Run
		want []Start
	}{
		"a run of which only its start is known": {Run{Started: at(0)}, []Start{{at(0), false}}},
		"at its first step":                      {Run{Started: at(0), Steps: []Visit{visit(PowerOff, 0)}}, []Start{{at(0), false}}},
		"it has set its power lock":              {Run{Started: at(0), Steps: []Visit{visit(PowerOff, 0)}, Intervened: true}, []Start{{at(0), true}}},
		"it began at a higher level":             {Run{Started: at(0), Steps: []Visit{visit(PowerOff, 0), visit(PowerOff, 0)}}, []Start{{at(0), false}}},
		"it deletes a Machine":                   {Run{Started: at(0), Strategy: DeleteMachine, Steps: []Visit{visit(Reprovision, 0)}}, []Start{{at(0), false}}},
		"the next attempt without a pause": {Run{Started: at(0), Attempt: 2, Steps: []Visit{visit(PowerOff, 0), visit(AwaitNode, 2), visit(PowerOff, 9)}},
			[]Start{{at(0), true}}},
		"it goes on at step 3 after a pause": {Run{Started: at(9), Isolated: at(1), Steps: []Visit{visit(PowerOff, 0), visit(Held, 2), visit(PowerOn, 9)}},
			[]Start{{at(0), true}}},
		"it begins again, and the first try touched nothing": {Run{Started: at(9), Intervened: true, Steps: []Visit{visit(PowerOff, 0), visit(Waiting, 1), visit(PowerOff, 9)}},
			[]Start{{at(0), false}, {at(9), true}}},
		"it begins again twice, after each try switched off": {Run{Started: at(30), Attempt: 3, Tries: []time.Time{at(0), at(9)},
			Steps: []Visit{visit(PowerOff, 0), visit(Waiting, 1), visit(PowerOff, 9), visit(Held, 12), visit(PowerOff, 30)}},
			[]Start{{at(0), true}, {at(9), true}, {at(30), true}}},
		"its clock was ahead, and was set": {Run{Started: at(9), Attempt: 1, Steps: []Visit{visit(PowerOff, 600)}}, []Start{{at(9), false}}},
		"its journal was cut": {Run{Started: at(30), Attempt: 3, Tries: []time.Time{at(0), at(9)}, Steps: []Visit{visit(PowerOff, 0), visit(Waiting, 12), visit(PowerOff, 30)}},
			[]Start{{at(0), true}, {at(9), true}, {at(30), true}}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.run.Starts()) })
	}
}

// The labels and the names go with the end of the run, unless its Node may be gone then. // I11
func TestRunThatEndsKeepsLabelsOnlyOfANodeThatIsGone(t *testing.T) {
	isolated := Run{Isolation: IsolateDelete, Attempt: 1, Isolated: ago(time.Hour)}
	for name, c := range map[string]struct {
		run   Run
		end   Step
		keeps bool
	}{
		"the Node is back":                        {isolated, Done, false},
		"the run was given up":                    {isolated, Aborted, true},
		"the Machine is replaced":                 {isolated, Reprovisioned, true},
		"given up before the isolation":           {Run{Isolation: IsolateDelete, Attempt: 1}, Aborted, false},
		"given up before the second isolation":    {Run{Isolation: IsolateDelete, Attempt: 2}, Aborted, true},
		"the Node was tainted, and never deleted": {Run{Isolation: IsolateTaint, Attempt: 1, Isolated: ago(time.Hour)}, Aborted, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.run.NodeLabels, c.run.NodeNames = map[string]string{"zone": "a"}, NodeNames{ClusterMachine: "ns/m"}
			ended, _, _ := finish(c.run, c.end, reason.ClosedAsIs, "", ago(0))
			assert.Equal(t, []bool{c.keeps, c.keeps}, []bool{ended.NodeLabels != nil, ended.NodeNames != NodeNames{}})
		})
	}
}

func TestKnownLabels(t *testing.T) {
	labels := map[string]string{"zone": "a"}
	kept := KnownLabels(labels)
	labels["zone"] = "b"
	assert.Equal(t, map[string]string{"zone": "a"}, kept)
	assert.Equal(t, map[string]string{}, KnownLabels(nil), "a Node without labels: that is known")
	assert.Nil(t, KnownLabels(map[string]string{"long": strings.Repeat("x", maxLabels)}))
}

func TestKnownNames(t *testing.T) {
	long := strings.Repeat("x", maxName)
	assert.Equal(t, NodeNames{"a/m", "", long}, KnownNames(NodeNames{"a/m", "a/" + long, long}))
}

// A run that went on at step 3 after a pause, and begins again at step 1 later, has begun twice. // I11, I15
func TestTryIsCountedWhenItBegan(t *testing.T) {
	at := func(minute int) time.Time { return ago(2 * time.Hour).Add(time.Duration(minute) * time.Minute) }
	visit := func(step Step, minute int) Visit { return Visit{Step: step, Attempt: 1, Started: at(minute)} }
	r := Run{Step: Waiting, Attempt: 1, Started: at(9), Isolated: at(1), SwitchedOff: true, Reason: reason.AttemptsExhausted, Limits: Limits{MaxAttempts: 1},
		Wait: &Wait{Due: true}, Retry: &Order{Actor: SelfActor, At: at(80)},
		Steps: []Visit{visit(PowerOff, 0), visit(DeleteNode, 1), visit(PowerOn, 1), visit(Waiting, 4), visit(PowerOn, 9), visit(AwaitNode, 10), visit(Waiting, 20)}}
	r, _, _ = acceptRetry(r, Observation{}, at(80))
	require.Equal(t, PowerOff, r.Step)
	assert.Equal(t, []Start{{at(0), true}, {at(80), true}}, r.Starts())
}

// What a record must show before anybody may rely on it that fenced switches the host no more. // I22
func TestSettled(t *testing.T) {
	order := &Order{Actor: "ann", At: noon}
	through := func(steps ...Step) []Visit {
		var list []Visit
		for _, s := range steps {
			list = append(list, Visit{Step: s})
		}
		return list
	}
	skipped := func(then ...Step) []Visit {
		return append([]Visit{{Step: PowerOff}, {Step: DeleteNode}, {Step: PowerOn, Note: "power level 1 cannot be used (Auth): skipped"}}, through(then...)...)
	}
	withdrawn := &Wait{Since: ago(time.Minute), Code: reason.Withdrawn, Count: 1}
	isolated := Run{Step: Waiting, Attempt: 1, Intervened: true, Isolated: ago(time.Hour), Reason: reason.Withdrawn, Wait: withdrawn,
		Steps: through(PowerOff, DeleteNode, PowerOn, AwaitNode, Waiting)}
	with := func(r Run, change func(*Run)) Run { change(&r); return r }
	abandoned := func(code, left reason.Code) Run {
		r := Run{Step: Waiting, Attempt: 2, Intervened: true, Reason: left, Wait: withdrawn,
			Steps: through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, PowerOn, Waiting)}
		r.Steps[4].Note, r.Steps[5].Note = leftFor(code, "why"), leftFor(left, "why")
		return r
	}
	for name, c := range map[string]struct {
		r    Run
		want bool
	}{
		"Done":                              {Run{Step: Done}, true},
		"Aborted":                           {Run{Step: Aborted, Intervened: true}, true},
		"replaced":                          {Run{Step: Reprovisioned}, true},
		"begun":                             {Run{Step: PowerOff, Attempt: 1}, false},
		"going back to On":                  {Run{Step: PowerOn, Attempt: 1, Intervened: true, Abandon: reason.Contested}, false},
		"On, and its Node is awaited":       {Run{Step: AwaitNode, Attempt: 1, OnSeen: noon}, false},
		"its Node is restored":              {Run{Step: RestoreNode, Attempt: 1, OnSeen: noon}, false},
		"the Machine is being deleted":      {Run{Step: Reprovision, Attempt: 1}, false},
		"Held, never touched":               {Run{Step: Held, Attempt: 1}, true},
		"Held after an Off":                 {Run{Step: Held, Attempt: 1, Intervened: true, Steps: through(PowerOff, Held)}, false},
		"Held after an Off, abandoned":      {Run{Step: Held, Attempt: 1, Intervened: true, Steps: through(PowerOff, PowerOn, Held)}, false},
		"Held after an Off, and healthy":    {Run{Step: Held, Attempt: 1, Intervened: true, HealthySince: noon}, false}, // until it ends, it sends On again to what reads Off
		"Held, left off on purpose":         {Run{Step: Held, Attempt: 1, Isolated: noon, LeaveOff: true, Steps: through(PowerOff, DeleteNode, Held)}, false},
		"Held, and the Node did not return": {with(isolated, func(r *Run) { r.Step, r.Reason, r.Wait = Held, reason.AttemptsExhausted, nil }), true},
		"Held, only its outlets read On":    {with(isolated, func(r *Run) { r.Step, r.Steps = Held, skipped(AwaitNode, Held) }), false},
		"Held, and its Node has shown it":   {with(isolated, func(r *Run) { r.Step, r.Steps = Held, skipped(AwaitNode, RestoreNode, Held) }), true},
		"Held, switched off by its owner":   {with(isolated, func(r *Run) { r.Step, r.Reason, r.Wait = Held, reason.PowerForbidden, nil }), false},
		"Held, never came On":               {with(isolated, func(r *Run) { r.Step, r.Steps = Held, through(PowerOff, DeleteNode, PowerOn, Reprovision, Held) }), false},
		"Held, read Off again":              {with(isolated, func(r *Run) { r.Step, r.Steps = Held, through(PowerOn, AwaitNode, PowerOn, Held) }), false},
		"Held, an outlet must come on":      {with(isolated, func(r *Run) { r.Step, r.Contradicted = Held, []Contradiction{{OnPending: true}} }), false},
		"Held, and a person orders an end":  {Run{Step: Held, Attempt: 1, Abort: order}, false},
		"Held, and a person begins it anew": {Run{Step: Held, Attempt: 1, Retry: order}, false},
		"Held, and a person confirms Off":   {Run{Step: Held, Attempt: 1, Confirmed: order}, false},
		"Waiting, never touched":            {Run{Step: Waiting, Attempt: 1, Reason: reason.OfBMC("Unreachable"), Wait: &Wait{}}, false},
		"rests for nobody, never touched":   {Run{Step: Waiting, Attempt: 1, Reason: reason.Withdrawn, Wait: withdrawn}, true},
		"rests for nobody, was On":          {isolated, true},
		"and begins again":                  {with(isolated, func(r *Run) { r.Wait = &Wait{Due: true} }), false},
		"attempts used up, was On":          {with(isolated, func(r *Run) { r.Reason = reason.AttemptsExhausted }), true},
		"attempts used up, tried again":     {with(isolated, func(r *Run) { r.Reason, r.Wait = reason.AttemptsExhausted, &Wait{Due: true} }), false},
		"attempts used up, never came On": {with(isolated, func(r *Run) {
			r.Reason, r.Steps = reason.AttemptsExhausted, through(PowerOff, DeleteNode, PowerOn, Reprovision, Waiting)
		}), false},
		"a later attempt has not begun": {with(isolated, func(r *Run) {
			r.Attempt, r.Intervened, r.Isolated, r.Steps = 2, false, time.Time{}, through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, Waiting)
		}), true},
		"a later attempt has begun": {with(isolated, func(r *Run) {
			r.Attempt, r.Isolated, r.Steps = 2, time.Time{}, through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, Waiting)
		}), false},
		"a later attempt was abandoned":                {abandoned(reason.Withdrawn, reason.Withdrawn), true},
		"a later attempt was abandoned, and stays Off": {abandoned(reason.Withdrawn, reason.PowerOnFailed), false},
		"a later attempt was abandoned, by an outlet":  {with(abandoned(reason.Withdrawn, reason.Withdrawn), func(r *Run) { r.OffLevel = 1 }), false},
	} {
		assert.Equal(t, c.want, c.r.Settled(), name)
	}
}

// In no world without another hand at the power is the host of a settled run off, or switched by the
// run until somebody asks for it again. The search keeps no journal: what is read from that, only
// TestSettled shows. // I22
func TestSettledHostsAreOn(t *testing.T) {
	seen := 0
	for _, v := range slices.Concat(withdrawals, slowBoots, waits) {
		others := slices.ContainsFunc(v.faults, func(f fault) bool { return f == foreignOff || f == lie })
		if others || v.states > 3000 {
			continue
		}
		x := &explorer{v: &v, next: Next, seed: maphash.MakeSeed(), seen: map[uint64]int32{}}
		front := []state{{rec: v.run(), w: v.world(), left: int8(v.budget), crash: true}}
		x.nodes = append(x.nodes, node{parent: -1, fine: -1, end: front[0].rec.Step, crash: true})
		for at := int32(0); len(front) > 0; {
			var more []state
			for _, st := range front {
				r := st.rec
				if r.Settled() && r.Step != Reprovisioned && r.Reason != reason.ClosedAsIs {
					seen++
					assert.True(t, st.w.on, "%s: %s %s %+v", v.name, r.Step, r.Reason, r.Steps)
				}
				if !r.Step.Ended() {
					more = x.rounds(&st, at, more)
				}
				at++
			}
			front = more
		}
	}
	assert.Greater(t, seen, 100)
}

// Machines of one name may be on two API servers, in namespaces of different people. A record that does not say the API may be of any.
func TestMachinesOfTwoAPIsDoNotOverlap(t *testing.T) {
	machine := func(api string) Target { return Target{Namespace: "prod", Machine: "m", MachineAPI: api} }
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta2", false},
		{"cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2", true},
		{"", "cluster.x-k8s.io/v1beta2", true},
		{"machine.openshift.io/v1beta1", "", true},
	} {
		assert.Equal(t, c.want, machine(c.a).Overlaps(machine(c.b)), "%+v", c)
	}
	a, b := machine("machine.openshift.io/v1beta1"), machine("cluster.x-k8s.io/v1beta2")
	a.Node, b.Node = "n", "n"
	assert.True(t, a.Overlaps(b), "one Node")
	b = machine("machine.openshift.io/v1beta1")
	b.Namespace = "other"
	assert.False(t, machine("machine.openshift.io/v1beta1").Overlaps(b))
}

// Sessions that killed processes left are counted until the BMC has ended them.
func TestSessionsLeftOpen(t *testing.T) {
	at, r := noon, Run{Limits: Limits{SessionTimeout: minute}}
	open := func(first bool) (err error) {
		r.Sessions, err = r.OpenSession(first, at)
		return err
	}
	require.NoError(t, open(true))
	for range 5 {
		require.NoError(t, open(false), "this process ended its sessions itself")
	}
	for range maxLeftOpen - 1 { // killed
		at = at.Add(sec)
		require.NoError(t, open(true))
	}
	for range 5 { // each of them opens none, so it leaves none
		at = at.Add(sec)
		require.ErrorContains(t, open(true), "2 sessions open; the next is opened at "+noon.Add(64*sec).Format(time.TimeOnly))
	}
	at = noon.Add(64 * sec)
	require.NoError(t, open(true))
	assert.Len(t, r.Sessions.Left, 1)

	r.Sessions = Sessions{Left: []time.Time{noon.Add(time.Hour), noon.Add(time.Hour)}}
	at = noon
	require.NoError(t, open(true), "by a clock that is ahead: nobody knows")
	assert.True(t, r.Sessions.Open)

	r.Limits.SessionTimeout = 0
	for range 9 {
		require.NoError(t, open(true))
	}
	assert.Zero(t, r.Sessions)
}
