package escalate

import (
	"path/filepath"
	"strings"
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
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/must"
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
			Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now.Add(-time.Hour)}})}},
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
		r := must.Do(reserve())(t)
		r.Objects[len(r.Objects)-1].Gone = now
		rs.Put(r)
	}
	_, err := reserve()
	refusal, _ := reason.AsRefusal(err)
	require.NotNil(t, refusal)
	assert.Equal(t, reason.FencesPerDay, refusal.Reason)
	require.ErrorContains(t, err, "50 objects were made for it")
	now = now.Add(25 * time.Hour)
	r := must.Do(reserve())(t)
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

func openStore(t *testing.T) state.Store {
	t.Helper()
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestAsked(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := Record{
		ID: "1", Check: "FencePolicy.fenced.io p", Target: remediate.Target{Cluster: "c", Node: "n"}, Started: at,
		Objects: []request.Object{{APIVersion: "a/v1", Kind: "K", Namespace: "ns", Name: "n", Template: "t", Mark: "s/c/1", Made: at}},
	}
	saved := must.Do(Save(ctx, s, r))(t)
	_, err := Save(ctx, s, r)
	require.ErrorIs(t, err, state.ErrExists)
	saved.Objects[0].UID = "u"
	saved = must.Do(Save(ctx, s, saved))(t)
	must.Do(state.SaveRefusedAccounts(ctx, s, state.RefusedAccounts{Instance: "a"}))(t) // of the same kind
	list := must.Do(Load(ctx, s))(t)
	assert.Equal(t, []Record{saved}, list)

	_, err = Save(ctx, s, Record{ID: "2"})
	require.ErrorContains(t, err, "no cluster")
	require.NoError(t, remove(ctx, s, saved))
	list, _ = Load(ctx, s)
	assert.Empty(t, list)
}

// A record that cannot be read still says on what nobody may act, even if its target has another
// Node since. Only one whose key says nothing is an error.
func TestAskedThatCannotBeRead(t *testing.T) {
	ctx, s := t.Context(), openStore(t)
	target := remediate.Target{Cluster: "c d", Node: "n", NodeUID: "u", Namespace: "ns", Machine: "m"}
	saved := must.Do(Save(ctx, s, Record{ID: "1", Target: target}))(t)
	saved.Target.Node = "another"
	saved = must.Do(Save(ctx, s, saved))(t)
	bare := Record{ID: "2", Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: strings.Repeat("m", 250)}}
	must.Do(Save(ctx, s, bare))(t)
	long := bare
	long.ID, long.Target.Node = "3", strings.Repeat("n", 250)
	_, err := Save(ctx, s, long)
	require.NoError(t, err, "the key has room")
	records, err := s.List(ctx, state.KindMeta)
	require.NoError(t, err)
	for _, r := range records {
		if strings.HasPrefix(r.Key, "asked ") {
			r.Data = []byte("{")
			_, err = s.Put(ctx, r)
			require.NoError(t, err)
		}
	}
	list := must.Do(Load(ctx, s))(t)
	found := map[string]remediate.Target{}
	for _, r := range list {
		assert.Contains(t, r.Unreadable, r.Key)
		assert.True(t, r.Blocking())
		found[r.ID] = r.Target
	}
	long.Target.Namespace, long.Target.Machine = "", ""
	assert.Equal(t, map[string]remediate.Target{
		"1": {Cluster: "c d", Node: "n", Namespace: "ns", Machine: "m"}, "2": bare.Target, "3": long.Target,
	}, found)
	_, err = Save(ctx, s, list[0])
	require.Error(t, err, "what it held would be lost")

	_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "asked c 4 n - -", Data: []byte(`{"v":1,"data":{"id":"5","check":"","target":{"cluster":"c","node":""},"objects":null,"started":"2026-01-01T00:00:00Z"}}`)})
	require.NoError(t, err)
	for _, key := range []string{"asked 6", "asked c %1b[2J n - -", "asked c 7 %zz - -", "asked c 8 - ns -", "asked - 9 n - -"} {
		_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: key, Data: []byte("{")})
		require.NoError(t, err)
	}
	list, err = Load(ctx, s)
	require.ErrorIs(t, err, state.ErrUnreadable)
	require.ErrorContains(t, err, `"asked 6" does not name a target`)
	require.ErrorContains(t, err, `"\x1b[2J" is no name`)
	require.Len(t, list, 4)
	for _, r := range list {
		if r.ID == "4" {
			assert.Contains(t, r.Unreadable, `it holds the record of "5"`)
		}
		require.NoError(t, remove(ctx, s, r), "a person may give it up")
	}
}

// What changes nothing for this cluster requests no decision: an instance reads all records after
// each change in the store, and most clusters have none.
func TestLoadingRecordsWakesOnlyForAChange(t *testing.T) {
	m := cluster.New(cluster.Options{Name: "c"}, time.Now())
	rs := NewRecords(m)
	record := func(cluster, id string) Record {
		return Record{ID: id, Target: remediate.Target{Cluster: cluster, Node: "n"}, Objects: []request.Object{{Kind: "K"}}}
	}
	wakes := func(begins bool, all ...Record) bool { return rs.Load(all, begins) }
	assert.False(t, wakes(false))
	assert.False(t, wakes(false, record("d", "1")), "of another cluster")
	assert.True(t, wakes(false, record("c", "1")))
	assert.False(t, wakes(false, record("c", "1")), "as before")
	require.NoError(t, m.Runs.BeginLeadership(nil))
	assert.False(t, wakes(true, record("c", "1")))
	assert.False(t, wakes(false), "in a leadership what is known is newer")
	assert.Len(t, rs.All(), 1)
	m.Runs.EndLeadership()
	assert.True(t, wakes(false))
	assert.Empty(t, rs.All())
}

// A target that was not considered again is wanted no more.
func TestWantedIsForgottenWithoutItsTarget(t *testing.T) {
	c := &Cluster{wanted: map[key]ask{}}
	now := time.Now()
	one, two := key{"p", "|one"}, key{"p", "|two"}
	for _, k := range []key{one, two} {
		c.wanted[k] = ask{cluster.Candidate{Check: &policy.Check{}, Draft: remediate.Run{Target: remediate.Target{Node: k.target}}}, now}
	}
	require.Len(t, c.asks(now), 2)
	c.KeepOnly(func(_, target string) bool { return target == two.target })
	left := c.asks(now)
	require.Len(t, left, 1)
	assert.Equal(t, "|two", left[0].Draft.Target.Node)
}
