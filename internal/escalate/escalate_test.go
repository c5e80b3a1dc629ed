package escalate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

var (
	now   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	snr   = policy.Template{APIVersion: "snr.io/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "snr"}
	power = policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}
)

// check is a FencePolicy with one template, or with several.
func check(templates ...policy.Template) *policy.Check {
	c := &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Strategy: policy.CreateRequests, SelectsNodes: true}
	if len(templates) == 1 {
		c.Template = &templates[0]
		return c
	}
	for i, t := range templates {
		c.Escalation = append(c.Escalation, policy.Escalation{Template: t, Order: i + 1, Timeout: time.Minute})
	}
	return c
}

// ask is a situation in which the check asks for a request from its n-th template.
func ask(c *policy.Check, n int, requests ...*policy.Request) escalate.Situation {
	t := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.CreateRequest}
	if len(c.Escalation) > 0 {
		t.Template = &c.Escalation[n-1].Template
	}
	return escalate.Situation{MadeBy: "me", HandedOver: policy.HandedOver{Check: c, Target: t, State: policy.StateActive, Requests: requests}}
}

// made is a request of this installation, an hour old.
func made(order int, change ...func(*policy.Request)) *policy.Request {
	q := &policy.Request{Kind: "Reboot", Namespace: "ns", Name: "n", UID: fmt.Sprint(order), MadeBy: "me", Order: &order, Created: now.Add(-time.Hour)}
	for _, f := range change {
		f(q)
	}
	return q
}

func begun(q *policy.Request)    { q.Begun = true }
func deleting(q *policy.Request) { q.Deleting = true }
func foreign(q *policy.Request)  { q.MadeBy = "others" }
func own(q *policy.Request)      { q.Power = &policy.PowerRequest{} }
func timedOut(q *policy.Request) { q.TimedOut = now.Add(-time.Minute) }
func says(kind, status string) func(*policy.Request) {
	return func(q *policy.Request) {
		q.Begun, q.Conditions = true, append(q.Conditions, policy.Condition{Type: kind, Status: status})
	}
}

func refused(s escalate.Situation) escalate.Situation {
	s.Target.Refusals = []reason.Code{reason.AlreadyRequested}
	return s
}

func recovered(s escalate.Situation) escalate.Situation {
	s.Recovered, s.Target.Action, s.Target.Verdict = true, policy.None, policy.Healthy
	return s
}

func with(s escalate.Situation, change func(*escalate.Situation)) escalate.Situation {
	change(&s)
	return s
}

func TestNext(t *testing.T) {
	two := check(snr, power)
	power2 := check(power, snr)
	recent := func(q *policy.Request) { q.Created = now.Add(-time.Second) }
	running := func(s escalate.Situation, v policy.Verdict) escalate.Situation {
		s.Running, s.Target.Verdict, s.Target.Action = true, v, policy.None
		return s
	}
	delayed := check(snr)
	delayed.HealthyDelay = time.Hour
	forever := check(snr)
	forever.HealthyDelay = -1
	delay := func(ago time.Duration) func(*policy.Request) {
		return func(q *policy.Request) { q.HealthyDelaySince = now.Add(-ago) }
	}
	for name, c := range map[string]struct {
		s    escalate.Situation
		want string // what, and of which request or from which template
	}{
		"the only template":                         {ask(check(snr), 1), "Create snr"},
		"the first template":                        {ask(two, 1), "Create snr 1"},
		"something refuses it":                      {refused(ask(two, 1)), ""},
		"a run of fenced is open":                   {with(ask(two, 1), func(s *escalate.Situation) { s.Running = true }), "Wait"},
		"fenced's own template alone":               {ask(check(power), 1), ""},
		"the check is paused":                       {with(ask(two, 1), func(s *escalate.Situation) { s.State = policy.StatePaused }), ""},
		"the first is to be given up":               {ask(two, 2, made(1, says("Processing", "True"))), "TimeOut 1"},
		"the first failed by itself":                {ask(two, 2, made(1, says("Processing", "False"), says("Succeeded", "False"))), "TimeOut 1"},
		"the first was told, and works":             {ask(two, 2, made(1, timedOut, says("Processing", "True"))), "Wait 1"},
		"the first cannot say whether it works":     {ask(two, 2, made(1, timedOut, says("Processing", "Unknown"))), "Wait 1"},
		"the first has stopped":                     {ask(two, 2, made(1, timedOut, says("Processing", "False"))), "Create power 2"},
		"the first has stopped, fenced works":       {with(ask(two, 2, made(1, timedOut, says("Processing", "False"))), func(s *escalate.Situation) { s.Running = true }), "Wait"},
		"the first has a finalizer and says naught": {ask(two, 2, made(1, timedOut, begun)), "Wait 1"},
		"the first says only that it failed":        {ask(two, 2, made(1, timedOut, says("Succeeded", "False"))), "Create power 2"},
		"the first succeeded, and the Node is sick": {ask(two, 2, made(1, says("Succeeded", "True"))), "Create power 2"},
		"the first never began":                     {ask(two, 2, made(1, timedOut)), "Create power 2"},
		"the first may not have seen it":            {ask(two, 2, made(1, func(q *policy.Request) { q.TimedOut = now.Add(-time.Second) })), "Wait 1"},
		"the first is being deleted":                {ask(two, 2, made(1, timedOut, deleting, says("Processing", "False"))), "Wait 1"},
		"the second is fenced's: first goes":        {refused(ask(two, 2, made(1, timedOut, says("Processing", "False")), made(2, own))), "Delete 1"},
		"the second is fenced's, first works":       {refused(ask(two, 2, made(1, timedOut, says("Processing", "True")), made(2, own))), ""},
		"the second is another's: first stays":      {refused(ask(check(power, snr), 2, made(1, timedOut, own, says("Processing", "False")), made(2))), ""},
		"somebody else's request":                   {recovered(ask(two, 1, made(1, foreign))), ""},
		"recovered":                                 {recovered(ask(two, 1, made(1, deleting), made(2))), "Delete 2"},
		"recovered, all go already":                 {recovered(ask(two, 1, made(1, deleting))), ""},
		"recovered, to be delayed":                  {recovered(ask(delayed, 1, made(1))), "Delay 1"},
		"recovered, delayed":                        {recovered(ask(delayed, 1, made(1, delay(time.Minute)))), ""},
		"recovered, delay over":                     {recovered(ask(delayed, 1, made(1, delay(2*time.Hour)))), "Delete 1"},
		"recovered, for ever":                       {recovered(ask(forever, 1, made(1, delay(2*time.Hour)))), ""},
		"recovered, confirmed":                      {with(recovered(ask(forever, 1, made(1))), func(s *escalate.Situation) { s.Confirmed = true }), "Delete 1"},
		"fenced works, in time":                     {running(ask(power2, 1, made(1, own, recent)), policy.Indeterminate), ""},
		"fenced works, and its time is over":        {running(ask(power2, 1, made(1, own)), policy.Indeterminate), "TimeOut 1"},
		"fenced needs a person":                     {running(ask(power2, 1, made(1, own, recent, says("Succeeded", "False"))), policy.Indeterminate), "TimeOut 1"},
		"fenced works, and was told":                {running(ask(power2, 1, made(1, own, timedOut)), policy.Indeterminate), ""},
		"the Node is gone":                          {with(ask(two, 1, made(1)), func(s *escalate.Situation) { s.NodeGone = true }), "Delete 1"},
		"the Node is gone, its remediator works":    {with(ask(two, 1, made(1, says("Processing", "True"))), func(s *escalate.Situation) { s.NodeGone = true }), ""},
		"the Node goes for good": {with(ask(two, 1, made(1, says("PermanentNodeDeletionExpected", "True"))),
			func(s *escalate.Situation) { s.NodeGone = true }), ""},
		"the Node is gone for good": {with(ask(two, 1, made(1, says("PermanentNodeDeletionExpected", "True"), says("Succeeded", "True"))),
			func(s *escalate.Situation) { s.NodeGone = true }), "Delete 1"},
		"Disabled, the Node is sick":  {with(ask(two, 1, made(1)), func(s *escalate.Situation) { s.State = policy.StateDisabled }), ""},
		"Disabled, the Node is Ready": {with(ask(two, 1, made(1)), func(s *escalate.Situation) { s.State, s.NodeReady = policy.StateDisabled, true }), "Delete 1"},
	} {
		step := escalate.Next(c.s, now)
		got := string(step.Do)
		switch {
		case step.Request != nil:
			got += " " + step.Request.UID
		case step.Do == escalate.Create:
			got += " " + step.Template.Name
			if step.Order != nil {
				got += fmt.Sprint(" ", *step.Order)
			}
		}
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, step.Do == escalate.Wait, step.Why != "", name)
	}
}

func TestIgnored(t *testing.T) {
	fresh := func(q *policy.Request) { q.Created = now.Add(-escalate.IgnoredAfter + 1) }
	assert.Contains(t, escalate.Ignored(refused(ask(check(snr), 1, made(1))), now), "nobody carries out Reboot ns/n")
	for name, s := range map[string]escalate.Situation{
		"a remediator has begun":    refused(ask(check(snr), 1, made(1, begun))),
		"it is too early":           refused(ask(check(snr), 1, made(1, fresh))),
		"it goes":                   refused(ask(check(snr), 1, made(1, deleting))),
		"it is somebody else's":     refused(ask(check(snr), 1, made(1, foreign))),
		"the next template follows": refused(ask(check(snr, power), 1, made(1))),
		"the Node is well":          recovered(ask(check(snr), 1, made(1))),
	} {
		assert.Empty(t, escalate.Ignored(s, now), name)
	}
}

// remediator is a model of one that follows medik8s' contract, after some delay.
type remediator struct {
	q       *policy.Request
	works   bool
	told    bool // it has seen that it must stop
	notices int  // rounds until it does the next thing
}

// Whatever the delays of three remediators, no two of them work at the same time, fenced's own run
// is one of them, and each of them gets its turn. // I22
func TestOneRemediatorAtATime(t *testing.T) {
	for seed := range 400 {
		c := check(snr, power, policy.Template{APIVersion: "mdr.io/v1", Kind: "DeletionTemplate", Namespace: "ns", Name: "mdr"})
		var all []*remediator
		clock := now
		for round := range 200 {
			clock = clock.Add(2 * time.Second)
			s := ask(c, min(len(all)+1, 3))
			for _, r := range all {
				if r.works || !r.q.Deleting { // else its object is gone
					s.Requests = append(s.Requests, r.q)
				}
				s.Running = s.Running || r.q.Power != nil && r.works
			}
			waiting := len(all) > 0 && clock.Sub(all[len(all)-1].q.Created) < time.Minute
			if waiting || len(all) == 3 {
				s = refused(s)
			}
			switch step := escalate.Next(s, clock); step.Do {
			case escalate.Create:
				q := made(*step.Order, func(q *policy.Request) { q.Created = clock })
				if step.Template.IsOwn() {
					own(q)
				}
				all = append(all, &remediator{q: q, notices: seed % (3 + round%5)})
			case escalate.TimeOut:
				step.Request.TimedOut = clock
			case escalate.Delete:
				step.Request.Deleting = true // and stays while its remediator works
			}
			working := 0
			for i, r := range all {
				r.act((seed + 7*i + round) % 5)
				if r.works {
					working++
				}
			}
			require.LessOrEqual(t, working, 1, "seed %d round %d", seed, round)
		}
		require.Len(t, all, 3, "seed %d: each got its turn", seed)
	}
}

// act lets a remediator see its request or the end of it, some rounds late.
func (r *remediator) act(delay int) {
	switch {
	case r.notices > 0:
		r.notices--
	case r.q.TimedOut.IsZero() && !r.q.Deleting && !r.works:
		r.works, r.q.Begun, r.notices = true, true, delay
		r.q.Conditions = []policy.Condition{{Type: "Processing", Status: "True"}}
	case !r.q.TimedOut.IsZero() && r.works && !r.told:
		r.told, r.notices = true, delay
		if r.q.Power != nil { // fenced says so at once, and brings the host back meanwhile
			r.q.Conditions = []policy.Condition{{Type: "Processing", Status: "False"}}
		}
	case r.told && r.works:
		r.works = false
		r.q.Conditions = []policy.Condition{{Type: "Processing", Status: "False"}}
	}
}
