package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"without a duration":            {"capbm-7", now, 0, LongestLeadership},
		"a negative duration":           {"capbm-7", now, -1, LongestLeadership},
		"68 years":                      {"nobody", now, 1<<31 - 1, LongestLeadership},
		"renewed in the year 2999":      {"nobody", now.AddDate(973, 0, 0), 15, 15 * time.Second},
		"2999, and for 68 years":        {"nobody", now.AddDate(973, 0, 0), 1<<31 - 1, LongestLeadership},
		"expired before the year 1":     {"nobody", time.Time{}.Add(1), 15, 0},
		"68 years, renewed an hour ago": {"nobody", now.Add(-time.Hour), 1<<31 - 1, 0},
	} {
		clock := NewLeaseClock()
		who, until := clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now, now)
		assert.Equal(t, c.held > 0, who != "", name)
		if c.held > 0 {
			assert.Equal(t, now.Add(c.held), until, name)
			who, _ = clock.HeldUntil(leaseAt("1", c.holder, c.renewed, c.seconds), LongestLeadership, now.Add(c.held), now.Add(c.held))
			assert.Empty(t, who, "%s: unchanged for its time", name)
		}
	}
}

// A holder whose clock is hours behind holds its Lease while it renews it. Somebody who writes an old time into it does
// not. // I22
func TestLeaderWithAWrongClockIsAlive(t *testing.T) {
	clock, now := NewLeaseClock(), time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	held := func(version string, renewed, at time.Time) bool {
		who, _ := clock.HeldUntil(leaseAt(version, "capi-1", renewed, 15), LongestLeadership, at, at)
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
