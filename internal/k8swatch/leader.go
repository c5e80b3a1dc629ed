package k8swatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The leader Leases of other remediation controllers, and the namespace of
// OpenShift's. Sources: the LeaderElectionID of the managers of
// cluster-api-provider-baremetal, machine-api-operator and cluster-api.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	checkLeader         = "cluster-api-provider-healthcheck-leader"
	clusterAPILeader    = "controller-leader-election-capi"
	metal3Leader        = "controller-leader-election-capm3"
)

// leader names the controllers that would act on the Machine, if their leader
// Leases have not expired. Without a Machine there are none.
func (l *looker) leader(ctx context.Context) (string, error) {
	t := l.run.Target
	if t.Machine == "" {
		return "", nil
	}
	checks, err := l.coveringChecks(ctx)
	if err != nil {
		return "", err
	}
	if groupOf(t.MachineAPI) == clusterGroup {
		for i := range checks {
			if checks[i].Template == nil { // its own manager marks the Machine
				return l.managerNow(ctx, clusterAPILeader)
			}
		}
		return "", nil
	}
	return machineRivals(l.look.FreshMachine, checks, func(name string) (string, error) { return l.leaderNow(ctx, name) })
}

// machineRivals names the controllers of OpenShift's Machine API that are alive and
// would act on this Machine. checks cover it and are not paused; holder names who
// holds a leader Lease. docs/install.md has the same rule for administrators. // I22
//
//   - The controller of the checks deletes the Machine, or asks another remediator
//     to repair it, if a check says so. For a check with the bare-metal strategy it
//     only annotates the Machine, except that it deletes a Failed one.
//   - The bare-metal actuator switches a host off while its Machine carries that
//     annotation or is being deleted. It leaves all other hosts alone. It counts
//     already if a living controller may annotate the Machine at any moment.
func machineRivals(m *policy.Machine, checks []policy.Check, holder func(name string) (string, error)) (string, error) {
	if m == nil {
		return "", nil
	}
	deletes, annotates := askedOfController(m, checks)
	actuates := m.ExternalRemediationRequested || m.Deleting
	var found []string
	if deletes || annotates {
		controller, err := holder(checkLeader)
		if err != nil {
			return "", err
		}
		if deletes && controller != "" {
			found = append(found, controller)
		}
		actuates = actuates || annotates && controller != ""
	}
	if actuates {
		actuator, err := holder(powerCycleLeader)
		if err != nil {
			return "", err
		}
		if actuator != "" {
			found = append(found, actuator)
		}
	}
	return strings.Join(found, "; "), nil
}

// askedOfController reports whether any of the checks makes its own controller
// delete the Machine or ask another remediator, and whether any makes it annotate
// the Machine for the bare-metal actuator.
func askedOfController(m *policy.Machine, checks []policy.Check) (deletes, annotates bool) {
	for i := range checks {
		switch c := &checks[i]; {
		case c.Strategy == policy.PowerCycleHosts && m.Phase != "Failed":
			annotates = true
		case !isHandledByFenced(c):
			deletes = true
		}
	}
	return deletes, annotates
}

// coveringChecks returns the MachineHealthChecks that cover the target and are not
// paused. A paused check is fenced's, if it was handed over, or nobody's.
func (l *looker) coveringChecks(ctx context.Context) ([]policy.Check, error) {
	m, t := l.look.FreshMachine, l.run.Target
	switch {
	case m == nil && l.look.Seen.Machine.Exists == remediate.CannotTell:
		return nil, fmt.Errorf("find the checks of Machine %s/%s: it could not be read", t.Namespace, t.Machine)
	case m == nil:
		return nil, nil
	}
	if l.ahead.checksErr != nil {
		return nil, l.ahead.checksErr
	}
	var found []policy.Check
	for i := range l.ahead.checks {
		if c := &l.ahead.checks[i]; l.covers(c) && !c.Paused {
			found = append(found, *c)
		}
	}
	return found, nil
}

// leaderAnywhere names the leader of a controller whose namespace is the
// administrator's choice, by the name of its Lease.
func leaderAnywhere(ctx context.Context, cl *clients, name string) (string, error) {
	ctx, clock := withClock(ctx)
	list, err := cl.typed.Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), Limit: pageSize,
	})
	if err = checkList(list, err); err != nil {
		return "", fmt.Errorf("list the Leases %s: %w", name, err)
	}
	if list.Continue != "" {
		return "", fmt.Errorf("list the Leases %s: there are more than %d", name, pageSize)
	}
	for i := range list.Items {
		if who, err := holderOf(&list.Items[i], clock.now(time.Now())); err != nil || who != "" {
			return who, err
		}
	}
	return "", nil
}

// holder names the current holder of a Lease, in a sentence; "" if there is none.
func holder(ctx context.Context, cl *clients, namespace, name string) (string, error) {
	ctx, clock := withClock(ctx)
	lease, err := cl.lease(ctx, namespace, name)
	if isGone(err, name) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
	}
	return holderOf(lease, clock.now(time.Now()))
}

func holderOf(l *coordinationv1.Lease, now time.Time) (string, error) {
	switch alive, who := isHeld(l.Spec, now); alive {
	case remediate.No:
		return "", nil
	case remediate.Yes:
		return who + " holds the Lease " + l.Name, nil
	}
	return "", fmt.Errorf("read Lease %s/%s: it has a holder, but no renewTime", l.Namespace, l.Name)
}

// isHeld reports whether a Lease is held at the API server's time, with which the
// holder's clock is synchronized. A leader that stepped down leaves no holder.
func isHeld(s coordinationv1.LeaseSpec, now time.Time) (remediate.Answer, string) {
	switch {
	case s.HolderIdentity == nil || *s.HolderIdentity == "":
		return remediate.No, ""
	case s.RenewTime == nil || s.LeaseDurationSeconds == nil || *s.LeaseDurationSeconds <= 0:
		return remediate.CannotTell, ""
	}
	expires := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
	return remediate.Ask(now.Before(expires)), *s.HolderIdentity
}
