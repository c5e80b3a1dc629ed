package fake

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

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

// create makes the object of a request.Draft.
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

// object is the object of a record.
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
