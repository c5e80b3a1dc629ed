package k8swatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Where Leases of rival remediators live, and what they are called. Sources:
// the LeaderElectionID of the managers of cluster-api-provider-baremetal,
// machine-api-operator and cluster-api; medik8s' lease library.
const (
	machineAPINamespace = "openshift-machine-api"
	powerCycleLeader    = "controller-leader-election-capbm"
	deletingLeader      = "cluster-api-provider-healthcheck-leader"
	clusterAPINamespace = "capi-system"
	clusterAPILeader    = "controller-leader-election-capi"
	medik8sLeases       = "medik8s-leases"
	medik8sHolder       = "NodeHealthCheck-"
)

// rivals reads whether somebody else who is alive would act on the target, or
// acts already. // I22
func (l *looker) rivals(ctx context.Context) error {
	var g sync.WaitGroup
	questions := []func(context.Context) (string, error){l.leader, l.nodeLease, l.requested}
	errs := make([]error, len(questions))
	for i, ask := range questions {
		g.Go(func() {
			var who string
			if who, errs[i] = ask(ctx); who != "" {
				l.answer(remediate.Yes, who)
			}
		})
	}
	g.Wait()
	for i, err := range errs {
		if err != nil {
			for _, more := range errs[i+1:] {
				l.failed(more)
			}
			return err
		}
	}
	l.answer(remediate.No, "")
	return nil
}

// leader names the controller that would do the same to the Machine, if its
// leader Lease is unexpired. Without a Machine there is none.
func (l *looker) leader(ctx context.Context) (string, error) {
	t := l.run.Target
	switch {
	case t.Machine == "":
		return "", nil
	case groupOf(t.MachineAPI) == clusterGroup:
		if acts, err := l.managerActs(ctx); err != nil || !acts {
			return "", err
		}
		return holder(ctx, l.manage, clusterAPINamespace, clusterAPILeader)
	case l.run.Strategy == remediate.DeleteMachine:
		return holder(ctx, l.work, machineAPINamespace, deletingLeader)
	}
	return holder(ctx, l.work, machineAPINamespace, powerCycleLeader)
}

// managerActs says whether the Cluster API's own manager would mark the
// Machine: a check without a template covers it and is not paused. One that is
// paused is ours, if it was handed over, or nobody's.
func (l *looker) managerActs(ctx context.Context) (bool, error) {
	m := l.look.FreshMachine
	if m == nil {
		return false, nil
	}
	list, err := l.c.clusterResource("machinehealthchecks", m.Namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks of %s: %w", m.Namespace, err)
	}
	if list.GetContinue() != "" {
		return false, fmt.Errorf("list the MachineHealthChecks of %s: there are more than %d", m.Namespace, pageSize)
	}
	for i := range list.Items {
		check := manifest.MachineHealthCheck(list.Items[i].Object)
		if l.covers(&check) && !check.Paused && check.Template == nil {
			return true, nil
		}
	}
	return false, nil
}

// nodeLease names who holds medik8s' Lease on the Node.
func (l *looker) nodeLease(ctx context.Context) (string, error) {
	if l.run.Target.Node == "" {
		return "", nil
	}
	who, err := holder(ctx, l.work, medik8sLeases, "node-"+l.run.Target.Node)
	if err != nil || who == "" {
		return "", err
	}
	check, is := strings.CutPrefix(strings.Fields(who)[0], medik8sHolder)
	if !is {
		return who, nil
	}
	u, err := l.work.dynamic.Resource(nodeCheckGVR).Get(ctx, check, metav1.GetOptions{})
	if err != nil {
		return who, nil // whoever it is, it holds the Lease
	}
	c := manifest.NodeHealthCheck(u.Object)
	for _, t := range templatesOf(&c) {
		if groupOf(t.APIVersion) != fencedGroup {
			return who, nil
		}
	}
	return "", nil // it asks us to do it
}

// holder names who holds a Lease now, in a sentence; "" is nobody.
func holder(ctx context.Context, cl *clients, namespace, name string) (string, error) {
	ctx, clock := withClock(ctx)
	lease, err := cl.typed.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if gone(err, name) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
	}
	switch alive, who := held(lease.Spec, clock.now(time.Now())); alive {
	case remediate.No:
		return "", nil
	case remediate.Yes:
		return who + " holds the Lease " + name, nil
	}
	return "", fmt.Errorf("read Lease %s/%s: it has a holder, but no time", namespace, name)
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

// requested names a remediation request for the target that another remediator
// carries out. Any that exists counts, also one that is being deleted: its
// remediator may keep the host off until it is through.
func (l *looker) requested(ctx context.Context) (string, error) {
	for _, st := range l.c.requests.watched() {
		if st.group == fencedGroup {
			continue // we are the one who is asked
		}
		if at, why := st.state(); at.IsZero() { // never read: only those must wait whom it may be about
			if l.concerns(st) {
				return fmt.Sprintf("a check makes requests of kind %s for it, which cannot be read: %s", st.kind, why), nil
			}
			continue
		}
		list, err := st.listNow(ctx)
		if err != nil {
			return "", fmt.Errorf("list the requests of kind %s: %w", st.kind, err)
		}
		for i := range list {
			q, _ := manifest.Request(list[i].Object) // one that is half readable is there all the same
			if requestFor(&q, l.run.Target) {
				return fmt.Sprintf("%s %s/%s asks another remediator to repair it", q.Kind, q.Namespace, q.Name), nil
			}
		}
	}
	return "", nil
}

// concerns says whether a check that makes such requests covers the target.
func (l *looker) concerns(requests *store) (yes bool) {
	for _, st := range requests.side.watched() {
		if !st.checks {
			continue
		}
		st.eachCheck(func(c *policy.Check) {
			names := slices.ContainsFunc(templatesOf(c), func(t policy.Template) bool {
				kind, _ := requestOf(t)
				return kind.Group == requests.group && kind.Kind == requests.kind
			})
			yes = yes || names && l.covers(c)
		})
	}
	return yes
}

// covers says whether a check covers the target as it is now.
func (l *looker) covers(c *policy.Check) bool {
	m, n := l.look.FreshMachine, l.look.FreshNode
	switch {
	case c.Selector == nil:
		return true
	case c.SelectsNodes:
		return n != nil && c.Selector.Matches(labels.Set(n.Labels))
	}
	return m != nil && m.Namespace == c.Namespace && m.Group() == groupOf(c.APIVersion) && c.Selector.Matches(labels.Set(m.Labels))
}

// requestFor: a request is for the Node that it names, for the Machine that owns
// it, or else for the one whose name it has.
func requestFor(q *policy.Request, t remediate.Target) bool {
	for _, o := range q.Owners {
		if o.UID != "" && o.UID == t.MachineUID {
			return true
		}
	}
	if q.NodeName != "" {
		return q.NodeName == t.Node
	}
	return t.Machine != "" && q.Name == t.Machine && q.Namespace == t.Namespace || t.Node != "" && q.Name == t.Node
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
