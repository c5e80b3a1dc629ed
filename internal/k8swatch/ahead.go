package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// ahead is what a look reads at the same time as the Machine, because the record of the run
// already says what is to be read. It is used only once the Machine is known.
type ahead struct {
	checks    []policy.Check // of the Machine's namespace
	checksErr error
	// leaders are the holders of the leader Leases of OpenShift's Machine API; empty if none was read.
	leaders   map[string]*leaseHolder
	nodeLease *leaseHolder // of medik8s; nil: not read
}

// leaseHolder says who holds a Lease; "" if nobody does.
type leaseHolder struct {
	who string
	err error
}

// readAhead starts the reads in g. Their errors are those of whoever uses the result.
func (l *looker) readAhead(ctx context.Context, g *sync.WaitGroup) {
	a, t := &l.ahead, l.run.Target
	if t.Node != "" {
		a.nodeLease = &leaseHolder{}
		g.Go(func() { a.nodeLease.who, a.nodeLease.err = l.readNodeLease(ctx) })
	}
	if t.Machine == "" {
		return
	}
	ofCluster := client.GroupOf(t.MachineAPI) == client.ClusterGroup
	g.Go(func() { a.checks, a.checksErr = l.checksNow(ctx, ofCluster, t.Namespace) })
	if ofCluster { // its manager counts only for some checks
		return
	}
	a.leaders = map[string]*leaseHolder{checkLeader: {}}
	if l.run.Strategy != remediate.DeleteMachine { // the actuator rarely counts for a deletion: leaderNow reads it then
		a.leaders[powerCycleLeader] = &leaseHolder{}
	}
	for name, held := range a.leaders {
		g.Go(func() { held.who, held.err = l.readLeader(ctx, name) })
	}
}

// leaderNow names the holder of a leader Lease.
func (l *looker) leaderNow(ctx context.Context, name string) (string, error) {
	if held := l.ahead.leaders[name]; held != nil {
		return held.who, held.err
	}
	return l.readLeader(ctx, name)
}

// The reads below are the same for all targets, so looks of the same moment share them.

func (l *looker) readLeader(ctx context.Context, name string) (string, error) {
	return client.ReadShared(ctx, l.c.shared, "leader "+name, func(ctx context.Context) (string, error) {
		return l.c.leaders.at(ctx, l.c.work.API(), machineAPINamespace, name)
	})
}

// managerNow names the leader of a manager on the management API.
func (l *looker) managerNow(ctx context.Context, name string) (string, error) {
	return client.ReadShared(ctx, l.c.shared, "manager "+name, func(ctx context.Context) (string, error) {
		return l.c.leaders.in(ctx, l.c.manage.API(), name)
	})
}

// requestsNow lists the remediation requests of one kind in a namespace. One that is only partly
// readable counts, too.
func (l *looker) requestsNow(ctx context.Context, st *store, namespace string) ([]policy.Request, error) {
	return client.ReadShared(ctx, l.c.shared, fmt.Sprintf("requests %p %s", st, namespace), func(ctx context.Context) ([]policy.Request, error) {
		list, err := st.listNow(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all := make([]policy.Request, len(list))
		for i := range list {
			all[i], _ = manifest.Request(list[i].Object)
			all[i].OnManagementAPI = st.side.IsApart()
		}
		return all, nil
	})
}

// checksNow lists the MachineHealthChecks of a namespace.
func (l *looker) checksNow(ctx context.Context, ofCluster bool, namespace string) ([]policy.Check, error) {
	at, gvr := l.c.work, client.CheckGVR
	if ofCluster {
		at, gvr = l.c.manage, l.c.served("machinehealthchecks")
	}
	return client.ReadShared(ctx, l.c.shared, fmt.Sprintf("checks %s %s", gvr, namespace), func(ctx context.Context) ([]policy.Check, error) {
		return at.checksNow(ctx, gvr, namespace)
	})
}

// checksNow may get the list from the API server's cache, but not older than our view: an
// uncached list takes up to 100 ms on a busy server. Whoever may write checks makes no look fail: there may be any check
// among those that are too many or too large to read.
func (s *side) checksNow(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]policy.Check, error) {
	list, err := s.API().Dynamic.Resource(gvr).Namespace(namespace).List(ctx, s.notOlder(policy.MachineHealthCheckKind, gvr.Group, namespace))
	switch err = client.CheckList(list, err); {
	case client.MayBeUnserved(err) && s.IsNotServed(ctx, client.Resource{Kind: policy.MachineHealthCheckKind, Group: gvr.Group, Plural: gvr.Resource}):
		return nil, nil
	case errors.Is(err, client.ErrBodyTooLarge):
		return []policy.Check{unreadCheck(namespace)}, nil
	case err != nil:
		return nil, fmt.Errorf("list the MachineHealthChecks of %s: %w", namespace, err)
	}
	found := make([]policy.Check, len(list.Items))
	for i := range list.Items {
		found[i] = manifest.MachineHealthCheck(list.Items[i].Object)
	}
	if list.GetContinue() != "" {
		found = append(found, unreadCheck(namespace))
	}
	return found, nil
}

// unreadCheck is the check that none of a namespace asks more of its own controller than: it may cover each Machine there,
// as without a selector, and has it deleted. The Machine is contested if that controller is alive. // I22
func unreadCheck(namespace string) policy.Check {
	return policy.Check{Kind: policy.MachineHealthCheckKind, Namespace: namespace, Source: "cluster", Strategy: policy.DeleteMachines}
}
