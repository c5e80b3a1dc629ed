package policy

import (
	"maps"
	"reflect"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Asked is one target for which fenced has asked another remediator, as it was then.
type Asked struct {
	// Check is the mark of the check.
	Check string
	// Node is the name of the Node; empty if there was none.
	Node string
	// The Machine, by its API group; empty if the target is a Node alone.
	MachineAPI, Namespace, Machine, MachineUID string
}

// AskedTarget is what is known now about a target for which fenced has asked another
// remediator.
type AskedTarget struct {
	// Check is nil if it is gone, if it does not cover the target any more, or if fenced does
	// not make its requests any more.
	Check *Check
	State State
	// Target is its evaluation, as if nobody had been asked; only an Active check that
	// covers the target has one.
	Target TargetReport
	// Recovered: the check finds nothing wrong with the target any more.
	Recovered bool
	// Gone: what the check evaluates does not exist: neither the Machine nor the Node, and for a
	// check of Nodes the Node. Unknown: the Node could not be decoded. NodeReady: the Node is Ready.
	Gone, Unknown, NodeReady bool
	// Confirmed: a person has confirmed on the Node that it is well.
	Confirmed bool
}

// AskedTarget evaluates a target for which fenced has asked another remediator.
func (l *Ledger) AskedTarget(a Asked, now time.Time) AskedTarget {
	now = l.evaluateDue(now)
	if a.Node != "" && l.w.nodes[a.Node] == nil && !l.w.gone(a.Node) {
		return AskedTarget{Unknown: true}
	}
	x, found := l.askedSubject(a)
	r := AskedTarget{Gone: !found}
	if x.Node != nil {
		_, r.Confirmed = x.Node.Annotations[confirmAnnotation]
		r.NodeReady = x.Node.Ready()
	}
	for _, e := range l.checks {
		c := e.check
		inCluster := c.Source == "" || c.Source == "cluster"
		if !c.MakesRequests() || c.Mark() != a.Check || c.family() != fenced && !inCluster {
			continue
		}
		x, found := x, found
		if c.SelectsNodes { // a Machine whose Node was deleted says nothing to it
			x, found = l.askedNode(a)
		}
		if found && e.st.state == StateActive && !c.Covers(x.Machine, x.Node) {
			continue
		}
		r.Check, r.State, r.Gone = c, e.st.state, !found
		if c.family() != fenced && !c.isEvaluatedBy(l.w.rules.Instance) {
			r.State = StateDisabled // it names another instance: its remediator goes on, and nobody else is asked
		}
		if found && r.State == StateActive {
			x.Run = ""
			r.Target = evaluate(c, e.context, &e.st, &x, now)
			r.Recovered = hasRecovered(c, &r.Target)
		}
	}
	return r
}

// askedSubject finds the target. A Machine of the same name is not the one that was meant.
func (l *Ledger) askedSubject(a Asked) (x Subject, found bool) {
	if a.Machine != "" {
		if m := l.MachineIn(a.MachineAPI, a.Namespace, a.Machine); m != nil && m.UID == a.MachineUID {
			return l.w.machineSubject(m), true
		}
	}
	return l.askedNode(a)
}

// askedNode finds the Node of the target.
func (l *Ledger) askedNode(a Asked) (x Subject, found bool) {
	if n := l.w.nodes[a.Node]; n != nil {
		return l.w.nodeSubject(n), true
	}
	return x, false
}

// hasRecovered reports whether only the requests of a check keep a target from being
// healthy. The Cluster API and OpenShift do not count them.
func hasRecovered(c *Check, t *TargetReport) bool {
	counts := c.family() == medik8s || c.family() == fenced
	return t.Verdict == Healthy || counts && t.Verdict == Indeterminate && t.Reason == reason.UnderRemediation
}

// SetDisabled tells the ledger why nobody carries out the requests of checks, by their
// mark. Such a check is Disabled.
func (l *Ledger) SetDisabled(now time.Time, why map[string]string) {
	if maps.Equal(l.w.disabled, why) {
		return
	}
	l.w.disabled, l.stale = maps.Clone(why), true
	l.version++
	l.evaluateDue(now)
}

// SetTried tells the ledger which requests fenced has made and are gone, by the mark of
// the check and the name of the Node or the Machine.
func (l *Ledger) SetTried(now time.Time, tried map[string]map[string][]Attempt) {
	if reflect.DeepEqual(l.w.tried, tried) {
		return
	}
	l.w.tried, l.stale = tried, true
	l.version++
	l.evaluateDue(now)
}
