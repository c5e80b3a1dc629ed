package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/remediate"
)

func TestSkewIsOnlyWhatIsCertain(t *testing.T) {
	sent := time.Date(2026, 1, 1, 0, 0, 10, 900e6, time.UTC)
	answered := sent.Add(300 * time.Millisecond)
	second := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	for name, c := range map[string]struct {
		date time.Time
		want time.Duration
	}{
		"no answer":              {time.Time{}, 0},
		"same second as sent":    {second(10), 0},
		"same second as answer":  {second(11), 0},
		"ahead":                  {second(20), 8800 * time.Millisecond},
		"behind":                 {second(2), -7900 * time.Millisecond},
		"a second behind, maybe": {second(9), -900 * time.Millisecond},
	} {
		assert.Equal(t, c.want, (&serverClock{date: c.date}).skew(sent, answered), name)
	}
}

func TestLeaderLease(t *testing.T) { // I22
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	holder, nobody, duration := "capbm-7", "", int32(15)
	renewed := func(ago time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(-ago)} }
	for name, c := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want remediate.Answer
	}{
		"never held":     {coordinationv1.LeaseSpec{}, remediate.No},
		"stepped down":   {coordinationv1.LeaseSpec{HolderIdentity: &nobody, RenewTime: renewed(0), LeaseDurationSeconds: &duration}, remediate.No},
		"alive":          {coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: renewed(14 * time.Second), LeaseDurationSeconds: &duration}, remediate.Yes},
		"expired":        {coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: renewed(15 * time.Second), LeaseDurationSeconds: &duration}, remediate.No},
		"holder no time": {coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration}, remediate.CannotTell},
		"holder no term": {coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: renewed(0)}, remediate.CannotTell},
	} {
		got, _ := held(c.spec, now)
		assert.Equal(t, c.want, got, name)
	}
}
