package k8swatch

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// leaseAt is a Lease in one version; a zero renewal or duration is not written.
func leaseAt(version, holder string, renewed time.Time, seconds int32) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leader", UID: "u", ResourceVersion: version}}
	l.Spec.HolderIdentity = &holder
	if !renewed.IsZero() {
		l.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	}
	if seconds != 0 {
		l.Spec.LeaseDurationSeconds = &seconds
	}
	return l
}

// A Lease that is read for the first time is held as the times in it say, and never for longer than
// the cap. // I22
func TestLeaderLease(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		holder  string
		renewed time.Time
		seconds int32
		held    time.Duration
	}{
		"stepped down":                  {"", now, 15, 0},
		"alive":                         {"capbm-7", now.Add(-14 * time.Second), 15, time.Second},
		"expired":                       {"capbm-7", now.Add(-15 * time.Second), 15, 0},
		"without a time":                {"capbm-7", time.Time{}, 15, 15 * time.Second},
		"without a duration":            {"capbm-7", now, 0, longestLeadership},
		"a negative duration":           {"capbm-7", now, -1, longestLeadership},
		"68 years":                      {"nobody", now, 1<<31 - 1, longestLeadership},
		"renewed in the year 2999":      {"nobody", now.AddDate(973, 0, 0), 15, 15 * time.Second},
		"2999, and for 68 years":        {"nobody", now.AddDate(973, 0, 0), 1<<31 - 1, longestLeadership},
		"expired before the year 1":     {"nobody", time.Time{}.Add(1), 15, 0},
		"68 years, renewed an hour ago": {"nobody", now.Add(-time.Hour), 1<<31 - 1, 0},
	} {
		clock := newLeaseClock()
		who, until := clock.heldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), longestLeadership, now, now)
		assert.Equal(t, c.held > 0, who != "", name)
		if c.held > 0 {
			assert.Equal(t, now.Add(c.held), until, name)
			who, _ = clock.heldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), longestLeadership, now.Add(c.held), now.Add(c.held))
			assert.Empty(t, who, "%s: unchanged for its time", name)
		}
	}
}

// A holder whose clock is hours behind holds its Lease while it renews it. Somebody who writes an old time into it does
// not. // I22
func TestLeaderWithAWrongClockIsAlive(t *testing.T) {
	clock, now := newLeaseClock(), time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	held := func(version string, renewed, at time.Time) bool {
		who, _ := clock.heldUntil(leaseAt(version, "capi-1", renewed, 15), longestLeadership, at, at)
		return who != ""
	}
	behind := func(at time.Time) time.Time { return at.Add(-3 * time.Hour) }
	assert.False(t, held("1", behind(now), now), "the first observation")
	later := now.Add(10 * time.Second)
	assert.True(t, held("2", behind(later), later), "it changed within its duration")
	assert.True(t, held("2", behind(later), later.Add(14*time.Second)))
	assert.False(t, held("2", behind(later), later.Add(15*time.Second)), "and stands still since")
	assert.False(t, held("3", behind(now), later.Add(16*time.Second)), "no leader goes back in time")
	hour := later.Add(time.Hour)
	assert.False(t, held("4", behind(hour), hour), "the version before was read long ago")
}

// Anybody may have a Lease of a manager's name in a namespace of their own. It counts where the manager is installed, or where
// the administrator says that it is, and a refusal names it. // I22
func TestLeaderCountsOnlyWhereItIsInstalled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	leases := map[string]*coordinationv1.Lease{}
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/leases") {
			status(w, http.StatusNotFound, "NotFound", "x")
			return
		}
		_, namespace, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/leases"), "/namespaces/")
		list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		list.ResourceVersion = "9"
		mu.Lock()
		for ns, l := range leases {
			if namespace == "" || namespace == ns {
				list.Items = append(list.Items, *l)
			}
		}
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	})
	alive := func() remediate.Answer {
		got, err := c.ControllerAlive(t.Context(), policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2})
		require.NoError(t, err)
		return got
	}
	put := func(namespace string) {
		l := leaseAt("1", "nobody", time.Now(), 1<<31-1)
		l.Namespace, l.Name, l.UID = namespace, clusterAPILeader, "of-"+l.UID
		mu.Lock()
		defer mu.Unlock()
		leases[namespace] = l
	}
	put("tenant")
	assert.Equal(t, remediate.No, alive(), "a tenant's Lease")
	found, err := c.leaders.elsewhere(t.Context(), c.manage.api(), clusterAPILeader)
	require.NoError(t, err)
	assert.Equal(t, []string{"tenant"}, found, "which is told")
	c.leaders.namespaces = []string{"tenant"}
	assert.Equal(t, remediate.Yes, alive(), "the administrator names it")
	c.leaders.namespaces = nil
	put("capi-system")
	who, err := c.leaders.in(t.Context(), c.manage.api(), clusterAPILeader)
	require.NoError(t, err)
	assert.Equal(t, "nobody holds the Lease capi-system/"+clusterAPILeader, who)
}

// A kubelet that writes times beyond the calendar into its Node and its Lease keeps no run from being saved.
func TestTimesOfAKubeletAreJSON(t *testing.T) {
	t.Parallel()
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/leases/n") {
			status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"n","namespace":"kube-node-lease","resourceVersion":"1","uid":"u"},
			"spec":{"holderIdentity":"n","leaseDurationSeconds":40,"renewTime":"9999-12-31T23:59:59.000000-12:00"}}`)
	})
	l := c.Look(t.Context(), remediate.Run{Target: remediate.Target{Node: "n"}}, nil)
	require.True(t, l.Seen.Lease.Known)
	require.Equal(t, "1", l.Seen.Lease.ResourceVersion)
	l.Seen.Lease.RenewTime = l.Seen.Lease.RenewTime.UTC()
	_, err := json.Marshal(l.Seen.Lease)
	require.NoError(t, err)
	for _, year := range []int{-5000, 0, 1, 2026, 9999, 10000, 290000} { // protobuf holds more than JSON
		at := metav1.NewTime(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))
		n := policyNode(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", LastTransitionTime: at}}}})
		_, err := json.Marshal(n.Conditions[0].LastTransition.UTC())
		assert.NoError(t, err, year)
	}
}

// Whoever wrote the highest number of changes into a Lease does not keep fenced from taking it.
func TestLeaseWithTheHighestNumberOfChangesIsTaken(t *testing.T) {
	for was, want := range map[int32]int32{0: 1, 7: 8, math.MaxInt32: math.MaxInt32} {
		l := leaseAt("1", "nobody", time.Now(), 15)
		l.Spec.LeaseTransitions = &was
		(&nodeLocks{holder: "fenced-1"}).holdNode(l, remediate.Run{}, time.Now())
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
		l.Spec.LeaseTransitions, l.Spec.HolderIdentity = &was, nil
		(&announcer{}).takeLease(l, Announcement{Instance: "a"})
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
	}
}
