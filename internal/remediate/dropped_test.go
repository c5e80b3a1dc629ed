package remediate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
)

// NodeHealthCheck deletes its request when the Node is gone, and forgets the Node. So a deletion after
// fenced's own isolation withdraws nothing until the Node is back. // I4, I14

// drop is a deletion of the request, by its check or by a person.
func (w *world) drop() {
	if !w.dropped {
		w.dropped, w.droppedGone = true, w.bootID == 0 && w.isolatedAt >= 0
	}
}

// asksNoMore is what package admit makes of it.
func (w *world) asksNoMore(r Run, n Node) Answer {
	if !w.dropped || w.withdrawn {
		return Ask(w.withdrawn)
	}
	return map[Answer]Answer{Yes: No, No: Yes}[r.OutlivesRequest(n)]
}

// onDropped judges what an answer does to a target whose request was deleted.
func onDropped(w world, r Run, s Observation, a Action) (bad []string) {
	off := a == SendOff && w.dropped && s.API == APIReachable && !confirmationActive(r)
	switch {
	case off && !w.droppedGone:
		bad = append(bad, "I4: Off although the request was deleted while its Node was there")
	case off && s.Node.registered():
		bad = append(bad, "I4: Off although the request was deleted, and the Node is back")
	case a == DeleteTargetMachine && w.dropped:
		bad = append(bad, "I14: the Machine is replaced although the request was deleted")
	}
	return bad
}

// restsForgotten says whether a run rests with attempts left for a request that was deleted only because its
// Node is gone: nobody would ever try again. After a withdrawal, and after the attempts were used up, it may. // L1
func (v variant) restsForgotten(st state) bool {
	r, w := st.rec, st.w
	forgotten := w.dropped && w.droppedGone && w.uid == 0 && r.Attempt < r.Limits.MaxAttempts
	return forgotten && r.Step.Idle() && r.Reason == reason.Withdrawn && !slices.ContainsFunc(v.faults, func(f fault) bool { return f == withdraw || f == askAgain || f == retryOrder })
}

// droppedRequests are the searches of runs whose request is deleted.
var droppedRequests = []variant{
	{name: "dropped: the second boot helps", states: 14_900, forgets: true, badBoots: 1, maxAttempts: 3, faults: join(engine, []fault{lostAPI, foreignOff}), budget: 2, want: "Done"},
	{name: "dropped: the third boot helps, waits", states: 13_700, forgets: true, retry: 200 * time.Millisecond, badBoots: 2, maxAttempts: 3, faults: join(crashes, []fault{lostAPI, slowBoot}), budget: 2, want: "Done"},
	{name: "dropped: never boots", states: 9_200, forgets: true, badBoots: 9, maxAttempts: 2, faults: join(crashes, []fault{slowBoot, actFails}), budget: 2, want: "Held AttemptsExhausted"},
	{name: "dropped: never boots, waits", states: 7_000, forgets: true, retry: 200 * time.Millisecond, badBoots: 9, maxAttempts: 2, faults: join(crashes, []fault{slowBoot}), budget: 2, want: "Waiting AttemptsExhausted"},
	{name: "dropped: never on, waits", states: 42_000, forgets: true, ignoresOn: true, retry: 200 * time.Millisecond, maxAttempts: 2, faults: join(crashes, []fault{lostPower, foreignOn}), budget: 2, want: triesAgain},
	{name: "dropped: on late, the second boot helps", states: 13_900, forgets: true, ignoresOn: true, retry: 200 * time.Millisecond, badBoots: 1, maxAttempts: 2, faults: []fault{foreignOn, crashAfterSave}, budget: 2, want: triesAgain},
	{name: "dropped: taint, the second boot helps", states: 5_700, forgets: true, isolation: IsolateTaint, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{dropRequest, slowBoot}), budget: 2, want: "Done"},
	{name: "dropped: at any time", states: 11_300, requested: true, badBoots: 1, maxAttempts: 2, faults: join(engine, []fault{dropRequest, lostAPI, slowBoot}), budget: 2, want: "Done"},
	{name: "dropped: asked again, Nodes from Git", states: 19_500, requested: true, badBoots: 1, maxAttempts: 2, faults: []fault{dropRequest, askAgain, withdraw, crashAfterSave, recreated, slowBoot}, budget: 3, want: "Done"},
	{name: "dropped: people", states: 22_800, forgets: true, badBoots: 1, maxAttempts: 2, faults: []fault{abortOrder, retryOrder, holdOrder, releaseOrder, pause, resume, unfenceOrder, crashAfterSave}, budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
}

// droppedMutants are broken forms of the rule.
var droppedMutants = []mutant{
	{"goes on after a deletion before the isolation", "I4: Off although the request was deleted while", variant{name: "m", requested: true, badBoots: 1, maxAttempts: 2, faults: []fault{dropRequest}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Withdrawn = No
	})},
	{"goes on although the Node is back", "I4: Off although the request was deleted, and the Node is back", variant{name: "m", forgets: true, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, lostPower}, budget: 2}, seeing(func(r Run, s *Observation, _ time.Time) {
		if s.Node.registered() {
			s.Withdrawn, s.Node.Ready = No, No
		}
	})},
	{"replaces a Machine for a request that was deleted", "I14: the Machine is replaced although the request", variant{name: "m", forgets: true, badBoots: 9}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Withdrawn = No
	})},
	{"rests with its attempts", "L1: the request was deleted because the Node is gone", variant{name: "m", forgets: true, badBoots: 1, maxAttempts: 2}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		r2.IsolatedAsked = false
	})},
}

func TestOutlivesRequest(t *testing.T) { // I4
	gone, back := Node{Exists: No}, Node{Exists: Yes, UID: "u2", BootID: "b2"}
	for name, c := range map[string]struct {
		r    Run
		n    Node
		want Answer
	}{
		"the Node is gone":                   {Run{Step: AwaitNode, IsolatedAsked: true}, gone, Yes},
		"a later attempt":                    {Run{Step: PowerOff, Attempt: 2, IsolatedAsked: true}, gone, Yes},
		"it comes from Git":                  {Run{Step: AwaitNode, IsolatedAsked: true}, Node{Exists: Yes, UID: "u2"}, Yes},
		"nobody can tell":                    {Run{Step: AwaitNode, IsolatedAsked: true}, Node{}, CannotTell},
		"it is back":                         {Run{Step: AwaitNode, IsolatedAsked: true}, back, No},
		"not asked for when it was isolated": {Run{Step: AwaitNode}, gone, No},
		"a Machine is to be replaced":        {Run{Step: Reprovision, IsolatedAsked: true}, gone, No},
		"the attempts are used up":           {Run{Step: Waiting, Reason: reason.AttemptsExhausted, IsolatedAsked: true}, gone, No},
	} {
		assert.Equal(t, c.want, c.r.OutlivesRequest(c.n), name)
	}
}

// What the record says about the request when the Node is isolated, and when that ends.
func TestIsolationNotesWhetherItWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		in     Step
		change func(r *Run, s *Observation)
		want   bool
	}{
		"asked for":           {DeleteNode, func(*Run, *Observation) {}, true},
		"deleted before":      {DeleteNode, func(_ *Run, s *Observation) { s.Withdrawn = Yes }, false},
		"not known":           {DeleteNode, func(_ *Run, s *Observation) { s.Withdrawn = CannotTell }, false},
		"no request":          {DeleteNode, func(r *Run, _ *Observation) { r.Request = nil }, false},
		"the host comes on":   {PowerOn, func(r *Run, _ *Observation) { r.IsolatedAsked = true }, true},
		"the check is paused": {PowerOn, func(r *Run, s *Observation) { r.IsolatedAsked, s.Withdrawn = true, Yes }, true},
		"nobody asks, and there is a Node": {PowerOn, func(r *Run, s *Observation) {
			r.IsolatedAsked, s.Withdrawn, s.Node = true, Yes, Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s"}
		}, false},
		"the API does not tell": {PowerOn, func(r *Run, s *Observation) { r.IsolatedAsked = true; noAPI(s) }, true},
		"the Machine stays": {Reprovision, func(r *Run, s *Observation) {
			r.IsolatedAsked, s.Withdrawn, r.Reason, r.Limits.RetryInterval = true, Yes, reason.PowerOnFailed, minute
		}, true},
		"the Node has come back": {AwaitNode, func(r *Run, _ *Observation) { r.IsolatedAsked = true }, false},
	} {
		r, s := begin(c.in, 5*sec)
		r.Request = &Request{Kind: "FencedRemediation", Name: "n", UID: "q1"}
		c.change(&r, &s)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, c.want, got.IsolatedAsked, name)
	}
}
