package k8swatch

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// Where leader Leases of rival remediators live, and what they are called.
// Sources: cluster-api-provider-baremetal and machine-api-operator, the
// LeaderElectionID of their managers.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	deletingLeader      = "cluster-api-provider-healthcheck-leader"
)

// rival reads whether the controller that would do the same is alive: its
// leader Lease is unexpired. Without a Machine there is none. // I22
func (l *looker) rival(ctx context.Context) error {
	name := powerCycleLeader
	switch {
	case l.run.Target.Machine == "":
		l.answer(remediate.No, "")
		return nil
	case l.run.Strategy == remediate.DeleteMachine:
		name = deletingLeader
	}
	ctx, clock := withClock(ctx)
	lease, err := l.api.typed.CoordinationV1().Leases(machineAPINamespace).Get(ctx, name, metav1.GetOptions{})
	if gone(err, name) {
		l.answer(remediate.No, "")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s/%s: %w", machineAPINamespace, name, err)
	}
	alive, holder := held(lease.Spec, clock.now(time.Now()))
	if alive == remediate.CannotTell {
		return fmt.Errorf("read Lease %s/%s: it has a holder, but no time", machineAPINamespace, name)
	}
	l.answer(alive, holder+" holds the leader Lease "+name)
	return nil
}

// held says whether somebody holds a Lease at the API server's time, to which
// the holder's clock is kept. A leader that stepped down leaves no holder.
func held(s coordinationv1.LeaseSpec, now time.Time) (remediate.Answer, string) {
	switch {
	case s.HolderIdentity == nil || *s.HolderIdentity == "":
		return remediate.No, ""
	case s.RenewTime == nil || s.LeaseDurationSeconds == nil:
		return remediate.CannotTell, ""
	}
	expires := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
	return remediate.Ask(now.Before(expires)), *s.HolderIdentity
}

// answer notes whether there is a rival; one that was found elsewhere stands.
func (l *looker) answer(a remediate.Answer, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a == remediate.Yes {
		l.look.Seen.Contender = who
	}
	l.look.Seen.Contested = max(l.look.Seen.Contested, a)
}
