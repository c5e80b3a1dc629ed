package remediate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func TestDeleteNode(t *testing.T) {
	late := func(r *Run, s *Observation) { noAPI(s); r.APILost = ago(2*minute + 1) }
	leftTaint := func(r *Run, s *Observation) {
		taint(r)
		s.Backup, s.Node.OutOfService, s.Node.Ready = Backup{}, true, Yes
	}
	play(t, []scene{
		{"backed up and proven: deleted", DeleteNode, sec, nil, DeleteNode, IsolateNode, ""},
		{"no backup: saved first", DeleteNode, sec, func(r *Run, s *Observation) { s.Backup = Backup{} }, DeleteNode, BackupNode, ""},
		{"a conflict saves again", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.ResourceVersion = "2"; r.Intent = Intent{IsolateNode, ago(sec)} }, DeleteNode, BackupNode, ""},
		{"a backup of another Node does not count", DeleteNode, sec, func(r *Run, s *Observation) { s.Backup.UID = "u0" }, DeleteNode, BackupNode, ""},
		{"gone: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { s.Node = Node{Exists: No} }, PowerOn, Nothing, ""},
		{"tainted: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { taint(r); s.Node.OutOfService = true }, PowerOn, Nothing, ""},
		{"tainted by a lost run, Ready until it times out: waits", DeleteNode, sec, leftTaint, DeleteNode, Nothing, ""},
		{"timed out: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { leftTaint(r, s); s.Node.Ready = No }, PowerOn, Nothing, ""},
		{"tainted by a lost run, Ready, and given up: the end", PowerOn, minute, func(r *Run, s *Observation) {
			s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s"}
			leftTaint(r, s)
			on(s)
			r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, reason.Paused, Aborted, reason.Paused
		}, Aborted, Nothing, "Paused"},
		{"a taint isolates nothing that is to be deleted", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.OutOfService = true }, DeleteNode, IsolateNode, ""},
		{"the proof is six seconds old", DeleteNode, sec, func(r *Run, s *Observation) { s.Proof = proof(bmc.Off, 9*sec, 6*sec) }, DeleteNode, Nothing, ""},
		{"identity not read", DeleteNode, sec, func(r *Run, s *Observation) { s.Identity = CannotTell }, DeleteNode, Nothing, ""},
		{"an On read goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { on(s) }, PowerOff, Nothing, ""},
		{"a restart goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { s.OffAccepted = false }, PowerOff, Nothing, ""},
		{"a lost hold goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { metal3(r, s, No) }, PowerOff, Nothing, ""},
		{"a hold that cannot be read waits", DeleteNode, sec, func(r *Run, s *Observation) { metal3(r, s, CannotTell) }, DeleteNode, Nothing, ""},
		{"another Node of that name, made since Off was read: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.Created = "u2", noon }, Held, Nothing, "FalseOff"},
		{"that cannot be said while the clocks differ", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.Created, s.Clock = "u2", noon, CannotTell }, PowerOn, Nothing, ""},
		{"another Node of that name, made before: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Backup = "u2", Backup{} }, PowerOn, Nothing, "TargetChanged"},
		{"another Node of that name, and the store does not say whether the target's was saved", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Backup = "u2", Backup{Unread: true} }, PowerOn, Nothing, ""},
		{"another Node of that name, and the target's was saved: it was isolated", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID = "u2" }, PowerOn, Nothing, ""},
		{"the same with another machine's Node: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.SystemUUID = "x" }, PowerOn, Nothing, "TargetChanged"},
		{"another machine's Lease moved: no FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.SystemUUID, s.Lease.ResourceVersion = "x", "v2" }, PowerOn, Nothing, "TargetChanged"},
		{"another Machine: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Machine.UID = "mx" }, PowerOn, Nothing, "TargetChanged"},
		{"no Machine: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Machine = Machine{Exists: No} }, PowerOn, Nothing, "TargetChanged"},
		{"another BareMetalHost: back to On", DeleteNode, sec, func(r *Run, s *Observation) {
			metal3(r, s, Yes)
			r.Target.BareMetalHostUID, s.BareMetalHostUID = "h1", "h2"
		}, PowerOn, Nothing, "TargetChanged"},
		{"the Machine names a BareMetalHost by now: back to On", DeleteNode, sec, func(_ *Run, s *Observation) { s.MachineMetal = "ns/h" }, PowerOn, Nothing, "TargetChanged"},
		{"another cluster is no answer", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c2" }, DeleteNode, Nothing, ""},
		{"nor is one that cannot be told", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID = "c1" }, DeleteNode, Nothing, ""},
		{"a Node that a cluster does not have is not isolated if nobody knows which cluster that is", DeleteNode, sec, func(r *Run, s *Observation) {
			r.Target.ClusterUID, s.API, s.Node = "c1", APIForbidden, Node{Exists: No}
		}, DeleteNode, Nothing, ""},
		{"the cluster of the record isolates", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c1" }, DeleteNode, IsolateNode, ""},
		{"a Node from Git took its place: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.BootID = "u2", "" }, PowerOn, Nothing, ""},
		{"another Node, tainted by whomever: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) {
			taint(r)
			s.Node.UID, s.Node.OutOfService, s.Node.Created = "u2", true, noon
		}, Held, Nothing, "FalseOff"},
		{"the Lease moved since a proof before a restart: Off is proven again", DeleteNode, sec, func(r *Run, s *Observation) { r.OffLease.Seen, s.Lease.ResourceVersion = ago(minute), "v2" }, PowerOff, Nothing, ""},
		{"the Lease of another boot moved: Off is proven again", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.BootID, s.Lease.ResourceVersion = "b2", "v2" }, PowerOff, Nothing, ""},
		{"the Lease moved: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }, Held, Nothing, "FalseOff"},
		{"the Lease cannot be read", DeleteNode, sec, func(r *Run, s *Observation) { s.Lease.Known = false }, DeleteNode, Nothing, ""},
		{"contest cannot be read", DeleteNode, sec, func(r *Run, s *Observation) { s.Contested = CannotTell }, DeleteNode, Nothing, ""},
		{"contested: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Contested = Yes }, PowerOn, Nothing, "Contested"},
		{"paused: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Paused = true }, PowerOn, Nothing, "Paused"},
		{"unfenced: back to On", DeleteNode, sec, func(r *Run, s *Observation) { unfence(r) }, PowerOn, Nothing, "Unfenced"},
		{"still Ready: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.Ready = Yes }, DeleteNode, Nothing, ""},
		{"still Ready too long: back to On", DeleteNode, 2*minute + 1, func(r *Run, s *Observation) { s.Node.Ready = Yes }, PowerOn, Nothing, "NodeStillReady"},
		{"the Node cannot be read: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node, s.Backup = Node{}, Backup{} }, DeleteNode, Nothing, ""},
		{"API gone: waits", DeleteNode, sec, func(r *Run, s *Observation) { noAPI(s) }, DeleteNode, Nothing, ""},
		{"API gone 120 s: back to On", DeleteNode, 3 * minute, late, PowerOn, Nothing, "APIUnreachable"},
		{"the time counts from the loss", DeleteNode, 3 * minute, func(r *Run, s *Observation) { late(r, s); r.APILost = ago(2 * minute) }, DeleteNode, Nothing, ""},
		{"API back: the time starts over", DeleteNode, 3 * minute, func(r *Run, s *Observation) { r.APILost = ago(minute) }, DeleteNode, IsolateNode, ""},
		{"API forbids 120 s: back to On", DeleteNode, 3 * minute, func(r *Run, s *Observation) { late(r, s); s.API = APIForbidden }, PowerOn, Nothing, "APIForbidden"},
		{"a finalizer: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.Deleting = true }, DeleteNode, Nothing, ""},
		{"a finalizer for ever: a human, and off", DeleteNode, 2*minute + 1, func(r *Run, s *Observation) { s.Node.Deleting = true }, Held, Nothing, "NodeFinalizer"},
		{"never isolated: back to On", DeleteNode, 2*minute + 1, nil, PowerOn, Nothing, "IsolationFailed"},
		{"off only: a human", DeleteNode, sec, func(r *Run, s *Observation) { r.OffOnly = true; s.Node = Node{Exists: No} }, Held, Nothing, "OperatorOff"},
		{"found off, to stay off: a human", DeleteNode, sec, func(r *Run, s *Observation) {
			r.FoundOff, r.Limits.PowerOnFoundOff, s.Node = true, false, Node{Exists: No}
		}, Held, Nothing, "FoundOff"},
		{"not found off: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { r.Limits.PowerOnFoundOff, s.Node = false, Node{Exists: No} }, PowerOn, Nothing, ""},
		{"found off: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { r.FoundOff, s.Node = true, Node{Exists: No} }, PowerOn, Nothing, ""},
	})
}

// What cannot isolate in time goes back to On, and ends by itself only where nobody has
// to mend anything.
func TestNotIsolatedInTime(t *testing.T) {
	for _, c := range []struct {
		name string
		seen func(s *Observation)
		to   Step
		off  bool
	}{
		{"the API does not answer", func(s *Observation) { noAPI(s) }, Aborted, false},
		{"it forbids", func(s *Observation) { noAPI(s); s.API = APIForbidden }, Held, false},
		{"still Ready", func(s *Observation) { s.Node.Ready = Yes }, Held, false},
		{"never deleted", func(*Observation) {}, Held, false},
		{"a finalizer: a kubelet that starts would not register", func(s *Observation) { s.Node.Deleting = true }, Held, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := begin(DeleteNode, 3*minute)
			c.seen(&s)
			if s.API != APIReachable {
				r.APILost = ago(3 * minute)
			}
			got, _, _ := Next(r, s, noon)
			assert.Equal(t, c.off, got.LeaveOff)
			if c.off {
				assert.Equal(t, c.to, got.Step)
				return
			}
			assert.Equal(t, PowerOn, got.Step)
			assert.Equal(t, c.to, got.AbandonTo)
		})
	}
}

// A Node that a lost run has left tainted may have booted since the decision. That boot ends with this Off. // I6
func TestTaintOfALostRunEndsThePresentBoot(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	taint(&r)
	s.Backup, s.Node.OutOfService, s.Node.BootID = Backup{}, true, "b2"
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, []any{PowerOn, "b2"}, []any{r.Step, r.Target.BootID})
}

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
		return AnswerOf(w.withdrawn)
	}
	return map[Answer]Answer{Yes: No, No: Yes}[r.OutlivesRequest(n)]
}

// onDropped judges what an answer does to a target whose request was deleted.
func onDropped(w *world, r Run, s Observation, a Action) (bad []string) {
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
func (v *variant) restsForgotten(st *state) bool {
	r, w := &st.rec, &st.w
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
