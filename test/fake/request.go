package fake

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
)

func requestID(q *policy.Request) policy.ObjectID {
	return policy.ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}
}

// Ask creates a FencedRemediation. The Machine of the same name owns it, as the Cluster API
// does that; if there is none, it is for the Node of that name.
func (s *State) Ask(name string, change func(*policy.Request)) {
	s.uids++
	q := policy.Request{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind, Namespace: Namespace, Name: name,
		UID: fmt.Sprintf("request-%d", s.uids), Created: time.Now(), Power: &policy.PowerRequest{}}
	for _, m := range s.Machines {
		if m.Name == name {
			q.Owners = []policy.Owner{{Kind: "Machine", Name: name, UID: m.UID}}
		}
	}
	if change != nil {
		change(&q)
	}
	s.putRequest(&q)
}

func (s *State) putRequest(q *policy.Request) {
	s.next()
	s.Asked[q.Name] = q
	shown := *q
	s.show(requestID(q), &shown)
}

// ChangeRequest changes a FencedRemediation, if it exists.
func (s *State) ChangeRequest(name string, change func(*policy.Request)) {
	if q := s.Asked[name]; q != nil {
		c, power := *q, *q.Power
		c.Power = &power
		change(&c)
		s.putRequest(&c)
	}
}

// Withdraw deletes a FencedRemediation: at once, or when its finalizer is gone.
func (s *State) Withdraw(name string) {
	q := s.Asked[name]
	if q != nil && q.Power.HasFinalizer {
		s.ChangeRequest(name, func(q *policy.Request) { q.Deleting = true })
	} else if q != nil {
		s.next()
		delete(s.Asked, name)
		s.show(requestID(q), nil)
	}
}

func (s *State) lookAtRequest(r remediate.Run, f *run.Fresh) {
	for _, q := range s.Others {
		if q.NodeName != "" && q.NodeName == r.Target.Node || q.NodeName == "" && q.Name == r.Target.Machine {
			f.Observation.Contested, f.Observation.Contender = remediate.Yes, "a request asks another remediator"
		}
	}
	if r.Request == nil || r.Request.Kind == policy.MachineRequestKind { // an annotation, and no object
		return
	}
	f.RequestRead = true
	q := s.Asked[r.Request.Name]
	if q == nil || q.UID != r.Request.UID {
		return
	}
	shown, power := *q, *q.Power
	shown.Power, f.Request = &power, &shown
	if !q.TimedOut.IsZero() {
		f.Observation.Contested, f.Observation.Contender = remediate.Yes, "its check has given up"
	}
}

// HoldRequest sets the finalizer on a FencedRemediation, for a run as request.Holder writes it.
func (s *State) HoldRequest(ref remediate.Request, run string) error {
	q := s.Asked[ref.Name]
	switch {
	case s.FinalizerFails != nil:
		return s.FinalizerFails
	case q == nil || q.UID != ref.UID || q.Deleting:
		return errors.New("the request is gone")
	}
	s.ChangeRequest(ref.Name, func(q *policy.Request) {
		q.Power.HasFinalizer, q.Power.HeldBy = true, "c/"+run
		q.Power.HeldFor, q.Power.HeldMachine = request.ParseHolder(run)
	})
	return nil
}

// ReleaseRequest removes the finalizer that was set as heldBy says.
func (s *State) ReleaseRequest(ref remediate.Request, heldBy string) {
	if q := s.Asked[ref.Name]; q != nil && q.UID == ref.UID && q.Power.HeldBy == heldBy {
		s.ChangeRequest(ref.Name, func(q *policy.Request) { q.Power.HasFinalizer, q.Power.HeldBy, q.Power.HeldFor = false, "", "" })
		if q.Deleting {
			s.Withdraw(ref.Name)
		}
	}
}

// ReportRequest writes into the status of a FencedRemediation.
func (s *State) ReportRequest(ref remediate.Request, told request.Status) {
	s.Told[ref.UID] = told
	if q := s.Asked[ref.Name]; q != nil && q.UID == ref.UID && (q.Power.Phase != told.Phase || q.Power.Run != told.Run) {
		s.ChangeRequest(ref.Name, func(q *policy.Request) { q.Power.Phase, q.Power.Run = told.Phase, told.Run })
	}
}

// ClearStaleRequest removes the annotation of a Machine whose Node is Ready.
func (s *State) ClearStaleRequest(t remediate.Target) (removed bool) {
	if n := s.Nodes[t.Node]; n != nil && n.Ready == "True" && s.Contested == remediate.No {
		s.ChangeMachine(t.Node, func(m *policy.Machine) {
			removed, m.ExternalRemediationRequested = m.ExternalRemediationRequested, false
		})
	}
	return removed
}

// Requests writes to the FencedRemediations of a cluster; it implements engine.Requests.
type Requests struct{ c *Cluster }

// Requests returns what writes to the FencedRemediations.
func (c *Cluster) Requests() Requests { return Requests{c} }

// SetFinalizer implements engine.Requests.
func (r Requests) SetFinalizer(ctx context.Context, ref remediate.Request, run string) (err error) {
	var takes time.Duration
	r.c.Do(func(s *State) { takes = s.FinalizerTakes })
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	r.c.Do(func(s *State) { err = s.HoldRequest(ref, run) })
	return err
}

// TemplateAttempts implements engine.Requests.
func (r Requests) TemplateAttempts(_ context.Context, _ *policy.Check, t policy.Template, _ remediate.Target) (attempts int, err error) {
	r.c.Do(func(s *State) { attempts, err = s.TemplateAttempts[t.Name], s.TemplateFails })
	return attempts, err
}

// RemoveFinalizer implements engine.Requests.
func (r Requests) RemoveFinalizer(_ context.Context, ref remediate.Request, heldBy string) error {
	r.c.Do(func(s *State) { s.ReleaseRequest(ref, heldBy) })
	return nil
}

// Report implements engine.Requests.
func (r Requests) Report(_ context.Context, ref remediate.Request, told request.Status) error {
	r.c.Do(func(s *State) { s.ReportRequest(ref, told) })
	return nil
}

// ClearStale implements engine.Requests.
func (r Requests) ClearStale(_ context.Context, t remediate.Target) (removed bool, err error) {
	r.c.Do(func(s *State) { removed = s.ClearStaleRequest(t) })
	return removed, nil
}

// Handovers makes the requests for other remediators; it implements escalate.Objects.
type Handovers struct{ c *Cluster }

// Handovers returns what makes the requests for other remediators.
func (c *Cluster) Handovers() Handovers { return Handovers{c} }

// Missing implements escalate.Objects.
func (h Handovers) Missing(context.Context, *policy.Check, policy.Template) (why string, err error) {
	h.c.Do(func(s *State) { why = s.TemplateMissing })
	return why, nil
}

// handoverDraft is what a request.Draft is made from.
type handoverDraft struct {
	c      *Cluster
	node   string
	object request.Object
}

// Prepare implements escalate.Objects.
func (h Handovers) Prepare(_ context.Context, check *policy.Check, t remediate.Target, from policy.Template, _ bool) (request.Draft, error) {
	h.c.Do(func(s *State) { s.Prepared++ })
	d := handoverDraft{c: h.c, object: request.Object{
		APIVersion: from.APIVersion, Kind: strings.TrimSuffix(from.Kind, "Template"), Namespace: Namespace, Name: t.Machine, Template: from.Name}}
	if check.SelectsNodes {
		d.object.Name, d.node = t.Node, t.Node
	}
	return request.Draft{Object: d.object, Create: d.create}, nil
}

func (d handoverDraft) create(_ context.Context, o request.Object, check string) (uid string, err error) {
	var wait func() error
	d.c.Do(func(s *State) { wait = s.OnHandover })
	if wait != nil {
		if err := wait(); err != nil {
			return "", err
		}
	}
	d.c.Do(func(s *State) {
		s.uids++
		uid = fmt.Sprintf("request-%d", s.uids)
		q := policy.Request{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, NodeName: d.node, UID: uid,
			Created: time.Now(), TemplateName: o.Template, Check: check, MadeBy: o.Mark}
		if s.Others[requestID(&q)] != nil {
			err = fmt.Errorf("it exists already: %w", request.ErrNotMade)
			return
		}
		s.PutOther(&q)
	})
	return uid, err
}

// PutOther adds or replaces a request for another remediator.
func (s *State) PutOther(q *policy.Request) {
	s.next()
	s.Others[requestID(q)] = q
	shown := *q
	s.show(requestID(q), &shown)
}

// DropOther removes a request for another remediator.
func (s *State) DropOther(q *policy.Request) {
	s.next()
	delete(s.Others, requestID(q))
	s.show(requestID(q), nil)
}

// HideOthers takes the requests for other remediators out of the watches; fresh reads find them.
func (s *State) HideOthers() {
	for id := range s.Others {
		s.show(id, nil)
	}
}

// Read implements escalate.Objects.
func (h Handovers) Read(_ context.Context, o request.Object) (found *policy.Request, err error) {
	h.c.Do(func(s *State) {
		if err = s.OthersFail; err != nil {
			return
		}
		if q := s.object(o); q != nil {
			c := *q
			found = &c
		}
	})
	return found, err
}

func (s *State) object(o request.Object) *policy.Request {
	q := s.Others[requestID(&policy.Request{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})]
	if q == nil || !o.MayBe(q.UID, q.MadeBy) {
		return nil
	}
	return q
}

// TimeOut implements escalate.Objects.
func (h Handovers) TimeOut(_ context.Context, o request.Object) (wrote bool, err error) {
	return h.change(o, func(s *State, q *policy.Request) bool { q.TimedOut = time.Now(); s.PutOther(q); return true }), nil
}

// Delay implements escalate.Objects.
func (h Handovers) Delay(_ context.Context, o request.Object) (wrote bool, err error) {
	return h.change(o, func(s *State, q *policy.Request) bool { q.HealthyDelaySince = time.Now(); s.PutOther(q); return true }), nil
}

// Delete implements escalate.Objects.
func (h Handovers) Delete(_ context.Context, o request.Object, live *policy.Request) (wrote bool, err error) {
	return h.change(o, func(s *State, q *policy.Request) bool {
		if q.Begun != live.Begun || !reflect.DeepEqual(q.Conditions, live.Conditions) {
			return false
		}
		s.DropOther(q)
		return true
	}), nil
}

func (h Handovers) change(o request.Object, change func(*State, *policy.Request) bool) (wrote bool) {
	h.c.Do(func(s *State) {
		if q := s.object(o); q != nil && q.MadeBy == o.Mark {
			c := *q
			wrote = change(s, &c)
		}
	})
	return wrote
}

// FencedLease is the Lease of the instance that fences in the cluster.
type FencedLease struct {
	Held    lead.Announcement
	By      any // nil: another installation
	Renewed time.Time
	Foreign string // the holder, for ever; empty: none
	Fails   error  // the error of each call
	Last    lead.Announcement

	calls int
}

// LeaseDuration is how long an announcement is valid.
const LeaseDuration = 15 * time.Second

// Holder is who keeps an instance from the Lease; "" for nobody.
func (s *State) Holder(by any, a lead.Announcement) (foreign string) {
	l := &s.Fenced
	switch {
	case l.Foreign != "":
		return l.Foreign
	case l.Held.Instance == "", l.By == by, time.Since(l.Renewed) > LeaseDuration,
		l.Held.StoreID == a.StoreID && (l.Held.Epoch < a.Epoch || l.Held.Instance == a.Instance):
		return ""
	}
	return l.Held.Instance + " of store " + l.Held.StoreID
}

// Announce takes or renews the Lease for an instance. An instance with another
// store gets it only after its holder has not renewed it for its duration.
func (s *State) Announce(by any, a lead.Announcement) (binds time.Duration, foreign string) {
	if foreign = s.Holder(by, a); foreign != "" {
		return 0, foreign
	}
	s.next()
	s.Fenced.Held, s.Fenced.By, s.Fenced.Renewed = a, by, time.Now()
	return LeaseDuration, ""
}
