package escalate

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/times"
)

// Record is what fenced asked other remediators to do for one target of one check. It is stored
// before the first object is made, and stays until no object is left and the target has recovered,
// whatever becomes of the check. While it is blocking, nobody else acts on the target. // I22
type Record struct {
	ID      string `json:"id"`
	Version uint64 `json:"-"`
	// Key is that of the record in the store; empty before it was stored.
	Key string `json:"-"`
	// Unreadable says why the stored record cannot be read; "" if it was. Then nothing but the ID and
	// the target is known.
	Unreadable string `json:"-"`
	// Check is the mark of the check.
	Check        string           `json:"check"`
	Target       remediate.Target `json:"target"`
	ControlPlane bool             `json:"controlPlane,omitempty"`
	// TakesNoTurn: no other control-plane host waits for it; see remediate.Run. // I12
	TakesNoTurn bool `json:"takesNoTurn,omitempty"`
	// Objects are those that were made, the newest last. Only the newest may still exist.
	Objects []request.Object `json:"objects"`
	Started time.Time        `json:"started"`
	// Labels are those of the Node when the newest object was made, for the limits that cover it; see
	// remediate.KnownLabels. // I11
	Labels map[string]string `json:"labels,omitzero"`
	// Names is how the Node named its Machines then; see remediate.KnownNames. // I11
	Names remediate.NodeNames `json:"names,omitzero"`
	// Idle is since when the record has no place in the limits of what is in flight: nobody
	// carries it out, its remediator does not stop in time, or it has had a place for as long as a run
	// may.
	Idle time.Time `json:"idle,omitzero"`
	// Ended is when no object was left, and nothing more was to be asked. The record stays for
	// the limits of a day.
	Ended time.Time `json:"ended,omitzero"`
	// Recovered: the target was well when the record ended.
	Recovered bool `json:"recovered,omitempty"`
	// GivenUp: a person ended the record, whatever becomes of its object.
	GivenUp *remediate.Order `json:"givenUp,omitempty"`
}

// Newest is the newest object; the zero value if there is none.
func (r *Record) Newest() request.Object {
	if len(r.Objects) == 0 {
		return request.Object{}
	}
	return r.Objects[len(r.Objects)-1]
}

// Blocking says whether an object may exist, so that nobody else may act on the target.
func (r *Record) Blocking() bool {
	return r.Unreadable != "" || len(r.Objects) > 0 && r.Newest().Gone.IsZero() && r.GivenUp == nil
}

// Asks names what may be at work on the target of a blocking record.
func (r *Record) Asks() string {
	if r.Unreadable != "" {
		return "what record " + r.ID + " asks for, which cannot be read"
	}
	return r.Newest().String() + " of record " + r.ID
}

// MaxObjects is how many objects one record holds.
const MaxObjects = 50

// Trim drops the objects that no rule needs any more: they went a day ago, and their template was
// used again since.
func (r *Record) Trim(now time.Time) {
	var kept []request.Object
	for i, o := range r.Objects {
		again := slices.ContainsFunc(r.Objects[i+1:], func(p request.Object) bool {
			return p.APIVersion == o.APIVersion && p.Kind == o.Kind && p.Template == o.Template
		})
		if !again || o.Gone.IsZero() || now.Sub(o.Gone) < 24*time.Hour {
			kept = append(kept, o)
		}
	}
	r.Objects = kept
}

// repair is what the limits count of a record, and what is blocked by it. Of a record that cannot be read nobody knows
// whether its target is of the control plane. // I12
func (r *Record) repair() cluster.Repair {
	p := cluster.Repair{ID: r.ID, Target: r.Target, Stored: r.Version > 0, ControlPlane: r.ControlPlane || r.Unreadable != "", TakesNoTurn: r.TakesNoTurn,
		NodeLabels: r.Labels, NodeNames: r.Names, InFlight: r.Blocking() && r.Idle.IsZero() && r.Unreadable == ""}
	if r.Ended.IsZero() {
		p.Check = r.Check
	}
	if r.Blocking() {
		p.By = r.Asks()
	}
	for i, o := range r.Objects {
		t := cluster.Try{Ended: o.Gone, Gone: !o.Gone.IsZero(),
			Attempt: policy.Attempt{APIVersion: o.APIVersion, Kind: o.Kind, TemplateName: o.Template, Started: o.Made, TimedOut: o.TimedOut}}
		switch newest := i == len(r.Objects)-1; {
		case newest && r.Blocking():
			t.Open = true
		case newest:
			t.Ended, t.Done = times.Later(o.Gone, r.Ended), r.Recovered && o.TimedOut.IsZero()
		}
		p.Tries = append(p.Tries, t)
	}
	return p
}
