package escalate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// A record does not grow without end: what no rule needs goes, and then nothing more is made.
func TestRecordIsBounded(t *testing.T) {
	now := time.Now()
	reboot := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "reboot"}
	check := policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "cluster",
		Strategy: policy.CreateRequests, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}, Template: &reboot,
	}
	limits := guard.Limits{MaxInFlight: 50, MaxInFlightPercent: 100, MaxInFlightPerZone: 50, MaxInFlightTotal: 50, MaxFencesPerDay: 500, ZoneBreakerMin: 50}
	m := cluster.New(cluster.Options{Name: "c", Limits: cluster.NewLimits(limits, remediate.Limits{RunTimeout: time.Hour})}, now)
	m.Follow(now, []policy.Change{
		{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: &check},
		{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n"}, Value: &policy.Node{Name: "n", UID: "u",
			Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now.Add(-time.Hour)}}}},
	}, time.Time{})
	rs := NewRecords(m)
	reserve := func() (Record, error) {
		t.Helper()
		m.Follow(now, nil, time.Time{})
		checks := m.Objects.ActingChecks(now)
		require.Len(t, checks, 1)
		require.Len(t, checks[0].Targets, 1)
		c, ok := m.CandidateForCheck(m.Objects.Check(check.ID()), &checks[0].Targets[0])
		require.True(t, ok)
		return rs.Reserve(c, request.Object{Kind: "Reboot", APIVersion: reboot.APIVersion, Namespace: "ns", Name: "n", Template: reboot.Name}, 0, time.Time{}, now)
	}
	for range MaxObjects {
		r, err := reserve()
		require.NoError(t, err)
		r.Objects[len(r.Objects)-1].Gone = now
		rs.Put(r)
	}
	_, err := reserve()
	refusal, _ := reason.AsRefusal(err)
	require.NotNil(t, refusal)
	assert.Equal(t, reason.FencesPerDay, refusal.Reason)
	require.ErrorContains(t, err, "50 objects were made for it")
	now = now.Add(25 * time.Hour)
	r, err := reserve()
	require.NoError(t, err)
	assert.Len(t, r.Objects, 2, "the newest of the template stays")
}

// What a record says is what the limits count of it. // I11, I12, I15
func TestRepairOfARecord(t *testing.T) {
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	record := func(change ...func(*Record)) Record {
		r := Record{ID: "1", Version: 1, Check: "c", Target: remediate.Target{Cluster: "c", Node: "n"}, Labels: map[string]string{"a": "b"}, Objects: []request.Object{
			{Kind: "K", Namespace: "ns", Name: "first", Template: "t", Made: at(1), TimedOut: at(2), Gone: at(3)}, {Kind: "K", Namespace: "ns", Name: "second", Template: "u", Made: at(4)}}}
		for _, f := range change {
			f(&r)
		}
		return r
	}
	gone, ended := func(r *Record) { r.Objects[1].Gone = at(5) }, func(r *Record) { r.Ended = at(6) }
	recovered, timedOut := func(r *Record) { r.Recovered = true }, func(r *Record) { r.Objects[1].TimedOut = at(5) }
	first := cluster.Try{Attempt: policy.Attempt{Kind: "K", TemplateName: "t", Started: at(1), TimedOut: at(2)}, Ended: at(3), Gone: true}
	for name, c := range map[string]struct {
		r        Record
		asks, by string
		inFlight bool
		second   cluster.Try
	}{
		"at work":                        {record(), "c", "K ns/second of record 1", true, cluster.Try{Open: true}},
		"it stands still":                {record(func(r *Record) { r.Idle = at(5) }), "c", "K ns/second of record 1", false, cluster.Try{Open: true}},
		"its object is gone":             {record(gone), "c", "", false, cluster.Try{Ended: at(5), Gone: true}},
		"its check is gone":              {record(gone, ended), "", "", false, cluster.Try{Ended: at(6), Gone: true}},
		"recovered":                      {record(gone, ended, recovered), "", "", false, cluster.Try{Ended: at(6), Gone: true, Done: true}},
		"somebody else has repaired it":  {record(gone, ended, recovered, timedOut), "", "", false, cluster.Try{Ended: at(6), Gone: true}},
		"given up":                       {record(ended, func(r *Record) { r.GivenUp = &remediate.Order{} }), "", "", false, cluster.Try{Ended: at(6)}},
		"given up, and the object stays": {record(func(r *Record) { r.GivenUp = &remediate.Order{} }), "c", "", false, cluster.Try{}},
	} {
		c.second.Attempt = policy.Attempt{Kind: "K", TemplateName: "u", Started: at(4), TimedOut: c.r.Objects[1].TimedOut}
		assert.Equal(t, cluster.Repair{ID: "1", Target: c.r.Target, By: c.by, Check: c.asks, InFlight: c.inFlight, Stored: true, NodeLabels: c.r.Labels,
			Tries: []cluster.Try{first, c.second}}, c.r.repair(), name)
	}
	lost := Record{ID: "9", Target: remediate.Target{Cluster: "c", Node: "n"}, Version: 1, Unreadable: "it holds nothing"}
	assert.Equal(t, cluster.Repair{ID: "9", Target: lost.Target, By: "what record 9 asks for, which cannot be read", ControlPlane: true, Stored: true}, lost.repair())
}
