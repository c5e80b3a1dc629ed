package escalate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
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
	Objects []Object  `json:"objects"`
	Started time.Time `json:"started"`
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

// Object is one object that fenced made, or was about to make.
type Object struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	OnManagementAPI bool   `json:"onManagementAPI,omitempty"`
	// On is the identity of the cluster in which it was made. Another one knows nothing of it.
	On string `json:"on"`
	// UID is empty while it is not known whether the object was created.
	UID      string `json:"uid,omitempty"`
	Template string `json:"template"`
	// Mark is the annotation fenced.io/made-by of the object. fenced changes and deletes an
	// object only if it has exactly this mark.
	Mark string `json:"mark"`
	// Made is before the object was created.
	Made time.Time `json:"made"`
	// TimedOut is when its remediator was told to stop. Gone is since when it is known that the
	// object does not exist.
	TimedOut time.Time `json:"timedOut,omitzero"`
	Gone     time.Time `json:"gone,omitzero"`
}

// ErrNotServed is the error of a read from an API server that does not serve the kind of the object
// now. No object of it exists then, and nothing says what became of it.
var ErrNotServed = errors.New("the kind is not served")

// ErrNotMade is the error of a creation that certainly did not make the object.
var ErrNotMade = errors.New("it was not made")

// Newest is the newest object; the zero value if there is none.
func (r *Record) Newest() Object {
	if len(r.Objects) == 0 {
		return Object{}
	}
	return r.Objects[len(r.Objects)-1]
}

// Blocking says whether an object may exist, so that nobody else may act on the target.
func (r *Record) Blocking() bool {
	return r.Unreadable != "" || len(r.Objects) > 0 && r.Newest().Gone.IsZero() && r.GivenUp == nil
}

// MayBeControlPlane says whether the target is of the control plane; of a record that cannot be read
// nobody knows it. // I12
func (r *Record) MayBeControlPlane() bool { return r.ControlPlane || r.Unreadable != "" }

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
	var kept []Object
	for i, o := range r.Objects {
		again := slices.ContainsFunc(r.Objects[i+1:], func(p Object) bool {
			return p.APIVersion == o.APIVersion && p.Kind == o.Kind && p.Template == o.Template
		})
		if !again || o.Gone.IsZero() || now.Sub(o.Gone) < 24*time.Hour {
			kept = append(kept, o)
		}
	}
	r.Objects = kept
}

// Tried lists the objects that do not exist any more, for the next step of an escalation.
func (r *Record) Tried() (list []policy.Attempt) {
	for _, o := range r.Objects {
		if !o.Gone.IsZero() {
			list = append(list, policy.Attempt{APIVersion: o.APIVersion, Kind: o.Kind, TemplateName: o.Template, Started: o.Made, TimedOut: o.TimedOut})
		}
	}
	return list
}

// MayAppear says whether the creation of an object may still be under way.
func (o Object) MayAppear(now time.Time) bool { return o.UID == "" && now.Sub(o.Made) < uncertainFor }

// MayBe says whether an object of its name may be it: the one with its UID. While that is not known, it is one with
// its mark, or one without any: a person may have removed the mark. // I22
func (o Object) MayBe(uid, mark string) bool {
	if o.UID != "" {
		return uid == o.UID
	}
	return mark == o.Mark || mark == ""
}

// IsFrom says whether the object may have been made from a template.
func (o Object) IsFrom(t policy.Template) bool {
	return (&policy.Escalation{Template: t}).IsSourceOf(&policy.Request{APIVersion: o.APIVersion, Kind: o.Kind, TemplateName: o.Template})
}

// String names the object.
func (o Object) String() string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

const (
	// uncertainFor is how long after an object may have been created it may still appear.
	uncertainFor = 2 * time.Minute
	// silentFor is how long a remediator that has not let an object go may still act on what it saw
	// before the object was gone.
	silentFor = time.Minute
)

// IsGone says whether an object is gone for good that has not existed since a time. letGo: its
// remediator had a finalizer on it at last, and so has let it go. A status alone says nothing of what
// the remediator does now.
func (o Object) IsGone(since time.Time, letGo bool, now time.Time) bool {
	switch {
	case o.UID == "":
		return now.Sub(o.Made) >= uncertainFor && now.Sub(since) >= silentFor
	case letGo:
		return true
	}
	return now.Sub(since) >= silentFor
}
