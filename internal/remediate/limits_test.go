package remediate

import (
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
