package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	falseOff         = "FalseOff"
	confirmedOff     = "ConfirmedOff"
	wordContradicted = "ConfirmedOffContradicted"
)

// refuted are the reasons for which a run is Held because a word was wrong, or because
// another machine may be off by mistake: no host is left off on it.
var refuted = map[string]bool{wordContradicted: true, falseOff: true, outletContradicted: true}

// Word is what became of a person's word that the host is off: Run.Confirmed.
type Word struct {
	Given time.Time `json:"given"` // Confirmed.At of the word that this is about
	// Lease is the Node's at the first look after the word, which was at Since. It
	// must not advance. // I5
	Lease Lease     `json:"lease"`
	Since time.Time `json:"since,omitzero"`
	// Spent: it counts no more. Something spoke against it, or the run has left the
	// steps that needed it.
	Spent bool `json:"spent,omitempty"`
}

// CanConfirm says whether a person's word can take the place of a proof in this run,
// or why not.
func CanConfirm(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case r.Strategy == DeleteMachine:
		return false, "the run needs no proof of off"
	case !r.Isolated.IsZero():
		return false, "the Node was isolated already"
	case r.Step != Held:
		return false, "the run is at work, at step " + string(r.Step) + "; a word counts once it is Held"
	case r.LeaveOff && r.Confirmed == nil: // else it was left off on a word, which may be given again
		return false, "the host is off on purpose (" + r.Reason + ")"
	case owes(r):
		return false, owesNote
	}
	return true, ""
}

// newWord says whether there is a word that the run has not taken note of.
func newWord(r Run) bool {
	return r.Confirmed != nil && (r.Word == nil || !r.Word.Given.Equal(r.Confirmed.At))
}

// vouched says whether a person's word stands. // I26
func vouched(r Run) bool { return r.Confirmed != nil && r.Word != nil && !r.Word.Spent }

// OnWord says whether a person's word stands, or has just been given, so that whatever
// reads On counts. // I26
func (r Run) OnWord() bool { return vouched(r) || newWord(r) }

// taken begins step 1 of a Held run over with a person's word.
func taken(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	ok, _ := CanConfirm(r)
	r.Word = &Word{Given: r.Confirmed.At, Spent: !ok || stopped(s)}
	if r.Word.Spent {
		return r, Nothing, poll
	}
	if why := gainsaid(r, s); why != "" {
		r, _, _ = contradictedWord(r, why, now)
		return r, Nothing, poll
	}
	return anew(r, saidBy("confirmed off", *r.Confirmed), now)
}

// heard notes the Lease at the first look after the word.
func heard(r Run, s Seen, now time.Time) Run {
	if vouched(r) && r.Word.Since.IsZero() && s.API == APIReachable && s.Lease.Known {
		w := *r.Word // the caller's record is not ours to change
		w.Lease, w.Since = s.Lease, now
		r.Word = &w
	}
	return r
}

// spent ends the standing of a word.
func spent(r Run) Run {
	if vouched(r) {
		w := *r.Word
		w.Spent = true
		r.Word = &w
	}
	return r
}

// gainsaid is what speaks against a word that stands; "" when nothing does.
func gainsaid(r Run, s Seen) string {
	switch w := r.Word; {
	case !vouched(r):
	case s.Power.State == bmc.On:
		return levelName(r, s) + " reads " + readText(s)
	case s.AlsoOn != "":
		return s.AlsoOn
	case !w.Since.IsZero() && s.Lease.Known && s.Lease.ResourceVersion != "" && s.Lease.ResourceVersion != w.Lease.ResourceVersion:
		return "the Node's Lease was renewed since"
	case s.Node.Ready == Yes:
		return "the Node is Ready"
	}
	return ""
}

// Against is what a look found to speak against a word that stands; "" when nothing does. // I26
func Against(r Run, s Seen) string { return gainsaid(r, ofLevel(r, s)) }

func contradictedWord(r Run, why string, now time.Time) (Run, Action, time.Duration) {
	return hold(r, wordContradicted, why+", although "+r.Confirmed.Actor+" confirmed that the host is off", now)
}

// unreadable says whether the present level will not tell more than it has: it proves
// nothing, and a word may take its place. An answer has the whole time of the level.
func unreadable(r Run, s Seen, now time.Time) bool {
	if offProven(r, s, now) {
		return false
	}
	return hopeless(s) || s.PowerError != "" && now.Sub(r.StepStarted) >= wholeAnswer || over(s, now, r.Deadline())
}

// onWord is step 1 where the present level cannot be read and a word stands: the
// next level is asked, and behind the last the word counts, as soon as the Lease has
// stood still. A person's order justifies itself; nothing else is spared. // I26
func onWord(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	switch {
	case wantedBack(r):
		return broughtBack(r, now)
	case s.Paused:
		return dropped(r, pausedReason(s), pausedNote(s), now)
	case s.Contested == Yes:
		return dropped(r, "Contested", s.Contender, now)
	case s.Identity == No:
		return hold(r, "IdentityMismatch", "the BMC belongs to another machine than the Node", now)
	case s.PowerForbidden != "":
		return dropped(r, "PowerForbidden", s.PowerForbidden, now)
	case r.ControlPlane && s.Quorum == No:
		return dropped(r, "QuorumLost", s.QuorumWhy, now)
	case r.Attempt == 1 && s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID:
		return dropped(r, "TargetChanged", "the Node was replaced since the decision", now)
	case hasNext(r):
		return raise(r, s, "it cannot be read", now)
	case over(s, now, r.Deadline().Add(r.Limits.APITimeout)):
		return dropped(r, "NotJudged", "what the word of "+r.Confirmed.Actor+" still needs could not be read or done in time", now)
	case s.API != APIReachable, s.Contested != No, s.Node.Exists == CannotTell, noQuorum(r, s), !s.Lease.Known, now.Sub(s.At) > freshFor:
		return r, Nothing, poll
	}
	r = adopt(r, s)
	r.Touched, r.Recheck = true, false
	switch {
	case r.Target.BareMetalHost != "" && s.Hold == No: // else Metal3 would switch it on
		return command(r, SetHold, resendWrite, now)
	case !owned(r, s), now.Sub(r.Word.Since) < r.Word.Lease.still():
		return r, Nothing, poll
	}
	lease := r.Word.Lease
	r.Proof, r.OffLease = ProofHuman, &lease
	return enter(r, DeleteNode, "off by the word of "+r.Confirmed.Actor+": "+r.Confirmed.Reason, now)
}

// ByWord says whether the run isolates on a person's word alone, so that there is no
// reading to ask once more. // I26
func (r Run) ByWord() bool { return r.Proof == ProofHuman && vouched(r) }

// notOff holds a run whose host turned out to live: a BMC has lied, or a person was
// wrong, which freezes no BMC. // I5
func notOff(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	if r.Proof == ProofHuman {
		return hold(r, wordContradicted, note, now)
	}
	return hold(r, falseOff, note, now)
}

// cameBack says whether a host that was left off on a person's word has registered
// anew, on the same machine and after another boot: somebody switched it on.
func cameBack(r Run, s Seen) bool {
	known := r.Confirmed != nil && !r.Isolated.IsZero() && r.Reason != falseOff && r.Reason != wordContradicted
	n, t := s.Node, r.Target
	// One that was restored and missed its time must be Ready, or it would be for ever. // L1
	due := r.NewNodeUID != n.UID || n.OutOfService || n.Ready == Yes
	return known && registered(r, n) && !n.Deleting && due && n.BootID != t.BootID && n.SystemUUID == t.SystemUUID && t.SystemUUID != ""
}

// welcomed goes on at step 5; nobody needs to order that.
func welcomed(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	if !released(r, s) {
		return releasing(r, s, now)
	}
	r.Reason, r.Note, r.Started, r.OnSeen, r.LeaveOff = "", "", now, now, false
	r.NewNodeUID = s.Node.UID
	return enter(r, RestoreNode, "the host came back by itself", now)
}
