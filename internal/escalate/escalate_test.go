package escalate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/request"
)

var (
	now  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	snr  = policy.Template{APIVersion: "snr.io/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "snr"}
	next = policy.Template{APIVersion: "mdr.io/v1", Kind: "ReplaceTemplate", Namespace: "ns", Name: "mdr"}
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

// asked is the situation of a sick target whose first remediator was asked a while ago.
func asked(c *policy.Check, ago time.Duration, change ...func(*escalate.Situation)) escalate.Situation {
	s := escalate.Situation{
		AskedTarget: policy.AskedTarget{Check: c, State: policy.StateActive, Target: policy.TargetReport{Verdict: policy.Unhealthy}},
		Object:      request.Object{APIVersion: "snr.io/v1", Kind: "Reboot", Namespace: "ns", Name: "n", UID: "u", Template: "snr", Mark: "me", Made: now.Add(-ago)},
		Live:        &policy.Request{APIVersion: "snr.io/v1", Kind: "Reboot", Namespace: "ns", Name: "n", UID: "u", TemplateName: "snr", MadeBy: "me"},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func says(kind, status string) func(*escalate.Situation) {
	return func(s *escalate.Situation) {
		s.Live.Begun, s.Live.Conditions = true, append(s.Live.Conditions, policy.Condition{Type: kind, Status: status})
	}
}

func told(s *escalate.Situation) {
	s.Live.TimedOut, s.Object.TimedOut = now.Add(-time.Minute), now.Add(-time.Minute)
}
func toldNow(s *escalate.Situation)   { s.Live.TimedOut, s.Object.TimedOut = now, now }
func begun(s *escalate.Situation)     { s.Live.Begun = true }
func deleting(s *escalate.Situation)  { s.Live.Deleting = true }
func recovered(s *escalate.Situation) { s.Recovered, s.NodeReady = true, true }
func ready(s *escalate.Situation)     { s.NodeReady = true }
func gone(s *escalate.Situation)      { s.Gone = true }
func noCheck(s *escalate.Situation)   { s.Check, s.State = nil, "" }
func unmarked(s *escalate.Situation)  { s.Live.MadeBy = "you" }
func disabled(s *escalate.Situation)  { s.State = policy.StateDisabled }
func invalid(s *escalate.Situation)   { s.State = policy.StateInvalid }
func paused(s *escalate.Situation)    { s.State = policy.StatePaused }
func confirmed(s *escalate.Situation) { s.Confirmed = true }
func delayed(by time.Duration) func(*escalate.Situation) {
	return func(s *escalate.Situation) { s.Live.HealthyDelaySince = now.Add(-by) }
}

func TestNext(t *testing.T) {
	one, two := check(snr), check(snr, next)
	slow, forever := check(snr), check(snr)
	slow.HealthyDelay, forever.HealthyDelay = time.Hour, -1
	of := func(c *policy.Check, change ...func(*escalate.Situation)) escalate.Situation {
		return asked(c, time.Hour, change...)
	}
	for name, c := range map[string]struct {
		s      escalate.Situation
		want   escalate.Do
		over   bool
		tidies bool
	}{
		"the only one has all the time":            {s: of(one, begun)},
		"in time":                                  {s: asked(two, time.Second, begun)},
		"its time is over":                         {of(two, says("Processing", "True")), escalate.TimeOut, true, false},
		"it has failed in time":                    {asked(two, time.Second, says("Succeeded", "False")), escalate.TimeOut, true, false},
		"told, and it works":                       {of(two, told, says("Processing", "True")), escalate.Wait, true, false},
		"told, and cannot say whether it works":    {of(two, told, says("Processing", "Unknown")), escalate.Wait, true, false},
		"told, and it has stopped":                 {of(two, told, says("Processing", "False")), escalate.Delete, true, false},
		"told, has a finalizer and says naught":    {of(two, told, begun), escalate.Wait, true, false},
		"told, and says only that it failed":       {of(two, told, says("Succeeded", "False")), escalate.Delete, true, false},
		"it succeeded, and the target is sick":     {of(two, says("Succeeded", "True")), escalate.Delete, true, false},
		"told, and it never began":                 {of(two, told), escalate.Delete, true, false},
		"told, and it may not have seen it":        {of(two, toldNow), escalate.Wait, true, false},
		"told, and deleted":                        {s: of(two, told, deleting, says("Processing", "False")), want: escalate.Wait},
		"the mark is gone":                         {s: of(two, unmarked, recovered), want: escalate.Wait},
		"recovered":                                {of(two, recovered, says("Processing", "True")), escalate.Delete, false, true},
		"recovered, it goes already":               {s: of(two, recovered, deleting), want: escalate.Wait},
		"recovered, to be delayed":                 {of(slow, recovered), escalate.Delay, false, true},
		"recovered, delayed":                       {s: of(slow, recovered, delayed(time.Minute))},
		"recovered, delay over":                    {of(slow, recovered, delayed(2*time.Hour)), escalate.Delete, false, true},
		"recovered, for ever":                      {s: of(forever, recovered, delayed(2*time.Hour))},
		"recovered, confirmed":                     {of(forever, recovered, confirmed), escalate.Delete, false, true},
		"the check is gone, it works":              {s: of(one, noCheck, says("Processing", "True")), want: escalate.TimeOut},
		"the check is gone, told, it works":        {s: of(one, noCheck, told, says("Processing", "True")), want: escalate.Wait},
		"the check is gone, it has stopped":        {s: of(one, noCheck, told, says("Processing", "False")), want: escalate.Delete},
		"the check is gone, the Node is Ready":     {s: of(one, noCheck, ready, says("Processing", "True")), want: escalate.TimeOut},
		"gone, Ready, told, and it works":          {s: of(one, noCheck, ready, told, says("Processing", "True")), want: escalate.Wait},
		"gone, Ready, and it never began":          {of(one, noCheck, ready), escalate.Delete, false, true},
		"gone, Ready, and it has stopped":          {of(one, noCheck, ready, says("Processing", "False")), escalate.Delete, false, true},
		"the template was changed":                 {s: of(check(next), begun), want: escalate.TimeOut},
		"the Node cannot be read":                  {s: of(one, noCheck, func(s *escalate.Situation) { s.Unknown = true })},
		"the check is paused":                      {s: of(two, paused)},
		"Disabled, the Node is sick":               {s: of(one, disabled)},
		"Disabled, the Node is Ready":              {of(one, disabled, ready), escalate.Delete, false, true},
		"Disabled, Ready, and it works":            {s: of(one, disabled, ready, says("Processing", "True"))},
		"Disabled, Ready, and it says naught":      {s: of(one, disabled, ready, begun)},
		"Disabled, Ready, and it has stopped":      {of(one, disabled, ready, says("Processing", "False")), escalate.Delete, false, true},
		"Invalid, Ready, and it works":             {s: of(one, invalid, ready, says("Processing", "True"))},
		"another template, Ready, and it works":    {s: of(check(next), ready, says("Processing", "True")), want: escalate.TimeOut},
		"the target is gone, it never began":       {of(one, gone), escalate.Delete, false, true},
		"the target is gone, it works":             {s: of(one, gone, says("Processing", "True")), want: escalate.Wait},
		"the target is gone, it says naught":       {s: of(one, gone, begun), want: escalate.Wait},
		"the target goes for good":                 {s: of(one, gone, says("PermanentNodeDeletionExpected", "True")), want: escalate.Wait},
		"the target is gone for good":              {of(one, gone, says("PermanentNodeDeletionExpected", "True"), says("Succeeded", "True")), escalate.Delete, false, true},
		"the target is gone, it stopped":           {of(one, gone, says("Processing", "False")), escalate.Delete, false, true},
		"the target is gone for good, it failed":   {of(one, gone, says("PermanentNodeDeletionExpected", "True"), says("Processing", "False"), says("Succeeded", "False")), escalate.Delete, false, true},
		"the target is gone, it failed, and works": {s: of(one, gone, says("Processing", "True"), says("Succeeded", "False")), want: escalate.Wait},
		"the target is gone, it only failed":       {of(one, gone, says("Succeeded", "False")), escalate.Delete, false, true},
		"told, it has stopped and failed":          {of(two, told, says("Processing", "False"), says("Succeeded", "False")), escalate.Delete, true, false},
		"the target and the check are gone":        {s: of(one, gone, noCheck, begun), want: escalate.Wait},
		"the check is gone, the mark, too":         {s: of(one, noCheck, unmarked, ready), want: escalate.Wait},
		"the check is gone, and it never began":    {s: of(one, noCheck), want: escalate.TimeOut},
		"the check is gone, told, it never began":  {s: of(one, noCheck, told), want: escalate.Delete},
	} {
		step := escalate.Next(c.s, now)
		assert.Equal(t, c.want, step.Do, name)
		assert.Equal(t, []bool{c.over, c.tidies}, []bool{step.Over, step.Tidies}, name)
		assert.Equal(t, step.Do == escalate.Nothing, step.Why == "", name)
	}
}

// Who was told to stop and has not stopped still works on its host: what waits for it keeps its place in
// the limits, for a while. // I11
func TestStandsStill(t *testing.T) {
	one, two, works := check(snr), check(snr, next), says("Processing", "True")
	since := func(ago time.Duration) func(*escalate.Situation) {
		return func(s *escalate.Situation) { s.DeletingSince = now.Add(-ago) }
	}
	toldAgo := func(ago time.Duration) func(*escalate.Situation) {
		return func(s *escalate.Situation) { s.Live.TimedOut = now.Add(-ago) }
	}
	for name, c := range map[string]struct {
		s    escalate.Situation
		want bool
	}{
		"in time":                            {asked(two, time.Second, works), false},
		"told, and it works":                 {asked(two, time.Hour, told, works), false},
		"told for long, and it works":        {asked(two, time.Hour, told, works, func(s *escalate.Situation) { s.Object.TimedOut = now.Add(-escalate.IgnoredAfter) }), true},
		"told just now, it may begin yet":    {asked(two, time.Hour, toldNow), false},
		"no check, told, and it works":       {asked(one, time.Hour, noCheck, toldAgo(time.Minute), works), false},
		"no check, told for long":            {asked(one, time.Hour, noCheck, toldAgo(escalate.IgnoredAfter), works), true},
		"deleted, and it works":              {asked(one, time.Hour, recovered, deleting, works, since(time.Minute)), false},
		"deleted for long, and it works":     {asked(one, time.Hour, recovered, deleting, works, since(escalate.IgnoredAfter)), true},
		"deleted, and it has stopped":        {asked(one, time.Hour, recovered, deleting, says("Processing", "False"), since(0)), true},
		"the target is gone, and it works":   {asked(one, time.Hour, gone, works), false},
		"the mark is gone, and it works":     {asked(one, time.Hour, unmarked, works), false},
		"the mark is gone, it never began":   {asked(one, time.Hour, unmarked), true},
		"the mark is gone, it may yet begin": {asked(one, time.Minute, unmarked), false},
	} {
		assert.Equal(t, c.want, escalate.Next(c.s, now).StandsStill, name)
	}
}

func TestIgnored(t *testing.T) {
	assert.Contains(t, escalate.Ignored(asked(check(snr), time.Hour), now), "nobody carries out Reboot ns/n")
	for name, s := range map[string]escalate.Situation{
		"a remediator has begun":    asked(check(snr), time.Hour, begun),
		"it is too early":           asked(check(snr), escalate.IgnoredAfter-1),
		"it goes":                   asked(check(snr), time.Hour, deleting),
		"the next template follows": asked(check(snr, next), time.Hour),
		"the Node is well":          asked(check(snr), time.Hour, recovered),
		"the check is gone":         asked(check(snr), time.Hour, noCheck),
	} {
		assert.Empty(t, escalate.Ignored(s, now), name)
	}
}

// TestRecord: a record blocks until its newest object is known to be gone.
func TestRecord(t *testing.T) {
	r := escalate.Record{}
	assert.False(t, r.Blocking())
	r.Objects = []request.Object{{Kind: "A", Template: "t", TimedOut: now, Gone: now}, {Kind: "B"}}
	assert.True(t, r.Blocking())
	r.Objects[1].Gone = now
	assert.False(t, r.Blocking())

	made := request.Object{UID: "u", Made: now.Add(-time.Hour)}
	assert.True(t, made.IsGone(now, true, now), "its remediator took its finalizer off")
	assert.False(t, made.IsGone(now.Add(-59*time.Second), false, now), "it may act on what it saw")
	assert.True(t, made.IsGone(now.Add(-time.Minute), false, now))
	made.UID, made.Made = "", now.Add(-119*time.Second)
	assert.False(t, made.IsGone(made.Made, false, now), "it may still appear")
	assert.True(t, made.IsGone(made.Made, false, now.Add(time.Second)))
}

// While it is not known what was made, an object without a mark may be it, and one with another mark is not. // I22
func TestObjectThatMayBeIt(t *testing.T) {
	o := request.Object{Mark: "store/c/1"}
	assert.True(t, o.MayBe("u", "store/c/1"))
	assert.True(t, o.MayBe("u", ""))
	assert.False(t, o.MayBe("u", "store/c/2"))
	o.UID = "u"
	assert.True(t, o.MayBe("u", ""), "it has lost its mark")
	assert.False(t, o.MayBe("v", "store/c/1"), "it was made again from a backup")
	assert.False(t, o.MayBe("v", ""))
}

// remediator is a model of one that follows medik8s' contract, some rounds late.
type remediator struct {
	live    *policy.Request // nil: its object is gone
	works   bool
	notices int // rounds until it does the next thing
}

// Whatever the delays of two remediators, no two of them work at the same time, and each of them
// gets its turn. // I22
func TestOneRemediatorAtATime(t *testing.T) {
	c := check(snr, next)
	for seed := range 400 {
		var all []*remediator
		var objects []request.Object
		clock := now
		for round := range 400 {
			clock = clock.Add(2 * time.Second)
			r := escalate.Record{Objects: objects}
			if !r.Blocking() && len(all) < 2 {
				e := c.Escalation[len(all)]
				kind := map[int]string{0: "Reboot", 1: "Replace"}[len(all)]
				objects = append(objects, request.Object{APIVersion: e.Template.APIVersion, Kind: kind, UID: "u", Template: e.Template.Name, Mark: "me", Made: clock})
				all = append(all, &remediator{notices: seed % 45, live: &policy.Request{
					APIVersion: e.Template.APIVersion, Kind: kind, TemplateName: e.Template.Name, MadeBy: "me"}})
				continue
			}
			if len(objects) == 0 {
				continue
			}
			newest, last := &objects[len(objects)-1], all[len(all)-1]
			if last.live != nil {
				s := escalate.Situation{AskedTarget: policy.AskedTarget{Check: c, State: policy.StateActive}, Object: *newest, Live: last.live}
				switch step := escalate.Next(s, clock); step.Do {
				case escalate.TimeOut:
					last.live.TimedOut, newest.TimedOut = clock, clock
				case escalate.Delete:
					last.live = nil
				}
			}
			if last.live == nil && newest.Gone.IsZero() {
				newest.Gone = clock
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
		require.Len(t, all, 2, "seed %d: each got its turn", seed)
	}
}

// act lets a remediator see its object or the end of it, some rounds late. It begins only on an object
// that exists.
func (r *remediator) act(delay int) {
	switch {
	case r.notices > 0:
		r.notices--
	case r.live == nil:
	case r.live.TimedOut.IsZero() && !r.works:
		r.works, r.live.Begun, r.notices = true, true, delay
		r.live.Conditions = []policy.Condition{{Type: "Processing", Status: "True"}}
	case !r.live.TimedOut.IsZero() && r.works:
		r.works = false
		r.live.Conditions = []policy.Condition{{Type: "Processing", Status: "False"}}
	}
}

// A record ends by what its check finds: a Node that is Ready may still be unhealthy by another
// condition. An end without a healthy target is no success.
func TestEnds(t *testing.T) {
	check := &policy.Check{}
	for name, c := range map[string]struct {
		target     policy.AskedTarget
		ends, well bool
	}{
		"unhealthy":                             {policy.AskedTarget{Check: check, State: policy.StateActive}, false, false},
		"recovered":                             {policy.AskedTarget{Check: check, State: policy.StateActive, Recovered: true, NodeReady: true}, true, true},
		"Ready, unhealthy by another condition": {policy.AskedTarget{Check: check, State: policy.StateActive, NodeReady: true}, false, false},
		"Ready, the check paused":               {policy.AskedTarget{Check: check, State: policy.StatePaused, NodeReady: true}, false, false},
		"Ready, the check Disabled":             {policy.AskedTarget{Check: check, State: policy.StateDisabled, NodeReady: true}, true, true},
		"Ready, the check Invalid":              {policy.AskedTarget{Check: check, State: policy.StateInvalid, NodeReady: true}, true, true},
		"Ready, no check":                       {policy.AskedTarget{NodeReady: true}, true, true},
		"no check":                              {policy.AskedTarget{}, true, false},
		"gone":                                  {policy.AskedTarget{Check: check, State: policy.StateActive, Gone: true}, true, false},
		"not decoded":                           {policy.AskedTarget{Unknown: true}, false, false},
	} {
		ends, well := escalate.Ends(c.target)
		assert.Equal(t, c.ends, ends, name)
		assert.Equal(t, c.well, well, name)
	}
}
