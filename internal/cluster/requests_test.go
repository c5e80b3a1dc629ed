package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The run of a request is the open one on its target, else its own newest one. A run that somebody
// else ordered has carried it out if it ended after the request was made.
func TestRunOfARequest(t *testing.T) {
	made := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	own := &remediate.Request{Kind: policy.FencedRemediationKind, UID: "u"}
	target := remediate.Target{Namespace: "ns", Machine: "m", MachineUID: "mu", Node: "n"}
	run := func(id string, step remediate.Step, ended time.Time, q *remediate.Request) remediate.Run {
		return remediate.Run{ID: id, Step: step, Ended: ended, Request: q, Target: target}
	}
	before, after := made.Add(-time.Minute), made.Add(time.Minute)
	for name, c := range map[string]struct {
		runs []remediate.Run
		want string
	}{
		"none":                                {nil, ""},
		"of a check, before":                  {[]remediate.Run{run("a", remediate.Done, before, nil)}, ""},
		"of a check, Done since":              {[]remediate.Run{run("a", remediate.Done, after, nil)}, "a"},
		"of a check, replaced since":          {[]remediate.Run{run("a", remediate.Reprovisioned, after, nil)}, "a"},
		"the Machine before, replaced since":  {[]remediate.Run{{ID: "a", Step: remediate.Reprovisioned, Ended: after, Target: remediate.Target{Node: "n", MachineUID: "earlier"}}}, ""},
		"of a check, dropped since":           {[]remediate.Run{run("a", remediate.Aborted, after, nil)}, ""},
		"open":                                {[]remediate.Run{run("a", remediate.PowerOff, time.Time{}, nil), run("b", remediate.Done, after, own)}, "a"},
		"its own":                             {[]remediate.Run{run("a", remediate.Done, after, own)}, "a"},
		"the newest of its own":               {[]remediate.Run{run("a", remediate.Aborted, after, own), run("b", remediate.Aborted, after, own)}, "b"},
		"its own, whatever their IDs":         {[]remediate.Run{run("b", remediate.Aborted, after, own), run("a", remediate.Done, after, own)}, "a"},
		"two of checks, one by a clock ahead": {[]remediate.Run{run("a", remediate.Done, after, nil), run("b", remediate.Done, made.Add(3*time.Hour), nil)}, "a"},
		"its own dropped, then of a check":    {[]remediate.Run{run("b", remediate.Aborted, after, own), run("a", remediate.Done, after, nil)}, "a"},
		"of a check, by a clock ahead":        {[]remediate.Run{run("a", remediate.Done, made.Add(3*time.Hour), nil)}, ""},
		"of a check, by a wrong clock":        {[]remediate.Run{{ID: "a", Step: remediate.Done, Ended: after, WrongClock: true, Target: target}}, ""},
		"of another target":                   {[]remediate.Run{{ID: "a", Step: remediate.Done, Ended: after, Target: remediate.Target{Node: "other"}}}, ""},
	} {
		rs := newRuns()
		for _, r := range c.runs {
			rs.byID[r.ID] = &r
		}
		q := policy.Requested{Request: &policy.Request{Kind: own.Kind, UID: own.UID, Created: made}, Target: policy.TargetReport{Machine: "ns/m", Node: "n", MachineUID: "mu"}}
		found := rs.ofRequests(after.Add(time.Minute)).of(&q, false)
		if c.want == "" {
			assert.Nil(t, found, name)
			continue
		}
		require.NotNil(t, found, name)
		assert.Equal(t, c.want, found.ID, name)
	}
	rs := newRuns()
	done := run("a", remediate.Done, after, nil)
	rs.byID["a"] = &done
	annotation := policy.Requested{Request: policy.AnnotatedRequest(&policy.Machine{UID: "mu"}), Target: policy.TargetReport{Machine: "ns/m", Node: "n"}}
	assert.Nil(t, rs.ofRequests(after.Add(time.Minute)).of(&annotation, false), "nobody knows when an annotation was set")
}

// A finalizer names its run. One of an older version does not: then any run of the request is taken for it. // I20
func TestLacksHolder(t *testing.T) {
	r, fresh := &remediate.Run{ID: "r-1", Step: remediate.Aborted, Intervened: true}, &remediate.Run{ID: "r-3", Step: remediate.Aborted, Attempt: 1}
	rs := runs{byID: map[string]*remediate.Run{r.ID: r, fresh.ID: fresh}}
	for name, c := range map[string]struct {
		power  *policy.PowerRequest
		newest *remediate.Run
		want   bool
	}{
		"an annotation":                   {nil, nil, false},
		"no finalizer":                    {&policy.PowerRequest{HeldFor: "r-2"}, nil, false},
		"of a known run":                  {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-1"}, r, false},
		"of one that touched nothing":     {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-3"}, fresh, true},
		"of another run than the newest":  {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-2"}, r, true},
		"of an older version":             {&policy.PowerRequest{HasFinalizer: true}, r, false},
		"of an older version, and no run": {&policy.PowerRequest{HasFinalizer: true}, nil, true},
	} {
		assert.Equal(t, c.want, rs.lacksHolder(c.power, c.newest), name)
	}
}
