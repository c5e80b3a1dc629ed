package fake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Handovers makes the requests for other remediators; it implements engine.Handovers.
type Handovers struct{ c *Cluster }

// Handovers returns what makes the requests for other remediators.
func (c *Cluster) Handovers() Handovers { return Handovers{c} }

// Missing implements engine.Handovers.
func (h Handovers) Missing(context.Context, *policy.Check, policy.Template) (why string, err error) {
	h.c.Do(func(s *State) { why = s.TemplateMissing })
	return why, nil
}

// Create implements engine.Handovers.
func (h Handovers) Create(_ context.Context, check *policy.Check, t remediate.Target, from policy.Template, order *int, _ bool) (err error) {
	var wait func()
	h.c.Do(func(s *State) { wait = s.OnHandover })
	if wait != nil {
		wait()
	}
	h.c.Do(func(s *State) {
		s.uids++
		q := policy.Request{APIVersion: from.APIVersion, Kind: strings.TrimSuffix(from.Kind, "Template"), Namespace: Namespace, Name: t.Machine,
			UID: fmt.Sprintf("request-%d", s.uids), Created: time.Now(), TemplateName: from.Name, Check: check.Mark(), MadeBy: "", Order: order}
		if check.SelectsNodes {
			q.Name, q.NodeName = t.Node, t.Node
		}
		if from.IsOwn() {
			q.Power = &policy.PowerRequest{}
			s.putRequest(&q)
			return
		}
		if s.Others[requestID(&q)] != nil {
			err = errors.New("it exists already")
			return
		}
		s.PutOther(&q)
	})
	return err
}

// PutOther adds or replaces a request for another remediator.
func (s *State) PutOther(q *policy.Request) {
	s.next()
	s.Others[requestID(q)] = q
	shown := *q
	s.show(requestID(q), &shown)
}

// TimeOut implements engine.Handovers.
func (h Handovers) TimeOut(_ context.Context, q *policy.Request) error {
	return h.change(q, func(q *policy.Request) { q.TimedOut = time.Now() })
}

// Delay implements engine.Handovers.
func (h Handovers) Delay(_ context.Context, q *policy.Request) error {
	return h.change(q, func(q *policy.Request) { q.HealthyDelaySince = time.Now() })
}

func (h Handovers) change(q *policy.Request, change func(*policy.Request)) error {
	h.c.Do(func(s *State) {
		if old := s.Others[requestID(q)]; old != nil {
			c := *old
			change(&c)
			s.PutOther(&c)
		}
		if q.Power != nil {
			s.ChangeRequest(q.Name, change)
		}
	})
	return nil
}

// Delete implements engine.Handovers.
func (h Handovers) Delete(_ context.Context, q *policy.Request) error {
	h.c.Do(func(s *State) {
		if q.Power != nil {
			s.Withdraw(q.Name)
			return
		}
		s.next()
		delete(s.Others, requestID(q))
		s.show(requestID(q), nil)
	})
	return nil
}
