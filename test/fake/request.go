package fake

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// lookAtRequest adds the request of a run to a look.
func (s *State) lookAtRequest(r remediate.Run, f *run.Fresh) {
	for _, q := range s.Others {
		if q.NodeName != "" && q.NodeName == r.Target.Node || q.NodeName == "" && q.Name == r.Target.Machine {
			f.Observation.Contested, f.Observation.Contender = remediate.Yes, "a request asks another remediator"
		}
	}
	if r.Request == nil || r.Request.Kind == policy.MachineRequestKind {
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
