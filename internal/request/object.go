package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// By these objects another remediator is asked: package escalate decides about them, and package write makes them. Neither
// needs the other.

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

// Draft is an object before it is made.
type Draft struct {
	Object Object
	// Create makes it with the mark of the object, and returns its UID. The error is an
	// ErrNotMade if it was certainly not made.
	Create func(ctx context.Context, o Object, check string) (uid string, err error)
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
