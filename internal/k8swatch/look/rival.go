package look

import (
	"context"
	"errors"
	"fmt"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// otherRemediators reads whether another remediator is alive that acts on the
// target, or would. // I22
func (l *looker) otherRemediators(ctx context.Context) error {
	var g sync.WaitGroup
	questions := []func(context.Context) (string, error){l.leader, l.nodeLease, l.mayLockNode, l.foreignRequest, l.givenUpRequest}
	errs := make([]error, len(questions))
	for i, ask := range questions {
		g.Go(func() {
			var who string
			if who, errs[i] = ask(ctx); who != "" {
				l.setContested(remediate.Yes, who)
			}
		})
	}
	g.Wait()
	for i, err := range errs {
		if err != nil {
			for _, more := range errs[i+1:] {
				l.addError(more)
			}
			return err
		}
	}
	if l.unread == nil {
		l.setContested(remediate.No, "")
	}
	return nil
}

// nodeLease names the holder of medik8s' Lease on the Node.
func (l *looker) nodeLease(ctx context.Context) (string, error) {
	held := l.ahead.nodeLease
	if held == nil {
		held = &leaseHolder{}
		held.who, held.err = l.readNodeLease(ctx)
	}
	if l.askedBy(held.who) { // the check that made the request holds the Node for it
		return "", held.err
	}
	return held.who, held.err
}

// foreignRequest names a remediation request for the target that another
// remediator carries out. Every existing request counts, also one that is being
// deleted: its remediator may keep the host off until it is done.
func (l *looker) foreignRequest(ctx context.Context) (string, error) {
	if who := l.unreadRequests(); who != "" {
		return who, nil
	}
	for _, place := range l.r.View.RequestPlaces(l.placeOfMachine(), l.look.FreshNode) {
		if place.Kind == client.OwnRequests {
			continue // fenced carries these out
		}
		if who, err := l.foreignRequestIn(ctx, place); who != "" || err != nil {
			return who, err
		}
	}
	return "", nil
}

// placeOfMachine is the Machine of the target, or of one that is gone or was not read at least where it was.
func (l *looker) placeOfMachine() *policy.Machine {
	if t := l.run.Target; l.look.FreshMachine == nil && t.Machine != "" {
		return &policy.Machine{APIVersion: t.MachineAPI, Namespace: t.Namespace}
	}
	return l.look.FreshMachine
}

// foreignRequestIn is foreignRequest for one kind in one namespace.
func (l *looker) foreignRequestIn(ctx context.Context, at view.Place) (string, error) {
	list, err := l.requestsNow(ctx, at)
	if err != nil {
		return "", fmt.Errorf("list the requests of kind %s in namespace %s: %w", at.Kind.Kind, at.Namespace, err)
	}
	t := l.run.Target
	target := policy.TargetNames{Namespace: t.Namespace, Machine: t.Machine, MachineUID: t.MachineUID, Node: t.Node}
	for i := range list {
		q := &list[i]
		if !q.IsFor(target) {
			continue
		}
		if !l.r.View.CarriesOut(at.Kind) {
			return q.Contender(), nil
		}
		if who, err := l.managerNow(ctx, metal3Leader); who != "" || err != nil { // it would carry the request out, too
			return who, err
		}
	}
	return "", nil
}

// unreadRequests names a check that covers the target and whose requests were never
// listed: from the cluster or from a file, whoever makes them, also of a check that fenced finds
// Invalid: its own controller may act on it. The requests that fenced carries out ask nobody else.
func (l *looker) unreadRequests() string {
	var covering []*policy.Check
	note := func(c *policy.Check) {
		if !c.IsHandledByFenced() && l.covers(c) {
			covering = append(covering, c)
		}
	}
	l.r.View.EachCheck(note)
	for _, c := range covering {
		if why := l.r.View.Unread(c); why != "" {
			return fmt.Sprintf("%s %s covers it: %s", c.Kind, c.Key(), why)
		}
	}
	return ""
}

// covers reports whether a check covers the target as it is now. A check whose
// selector could not be read may cover it, so it does: one of a namespace, the Machines there.
func (l *looker) covers(c *policy.Check) bool {
	if c.Selector == nil {
		return c.Administrators() || c.Namespace == l.run.Target.Namespace
	}
	return c.Covers(l.look.FreshMachine, l.look.FreshNode)
}

// setContested records whether there is another remediator; a positive answer
// stays.
func (l *looker) setContested(a remediate.Answer, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a == remediate.Yes {
		l.look.Seen.Contender = who
	}
	l.look.Seen.Contested = max(l.look.Seen.Contested, a)
}

// readNodeLease names who else holds medik8s' Lease on the Node.
func (l *looker) readNodeLease(ctx context.Context) (string, error) {
	if l.run.Target.Node == "" {
		return "", nil
	}
	if exists, err := l.medik8sLeases(); err == nil && !exists { // otherwise the Lease itself tells
		l.look.NoNodeLocks = true
		return "", nil
	}
	return l.r.Locks.Foreign(ctx, l.work, l.run.Target.Node)
}

// request reads the remediation request of the run. Until the isolation nothing may be done without
// it: its check may have given up on it, or it may be gone. So an error counts as one of the whole
// API. After that the host must come back and its Node be restored, whatever the request says: it
// only stays unknown whether another remediator was asked, and whether somebody still asks. // I20, I22
func (l *looker) request(ctx context.Context) error {
	q := l.run.Request
	if q == nil || q.Kind == policy.MachineRequestKind { // the latter is the Machine, which is read anyway
		return nil
	}
	found, err := l.r.Request(ctx, *q)
	l.look.Request, l.look.RequestRead = found, err == nil
	if !l.run.Isolated.IsZero() {
		l.unread, err = err, nil
	}
	return err
}

// givenUpRequest names the check that has given up on the request of the run. It asks
// the next remediator, so this one must stop. // I22
func (l *looker) givenUpRequest(context.Context) (string, error) {
	if q := l.look.Request; q != nil && !q.TimedOut.IsZero() {
		return fmt.Sprintf("its check has given up on %s %s/%s and may ask another remediator", q.Kind, q.Namespace, q.Name), nil
	}
	return "", nil
}

// askedBy reports whether the holder of medik8s' Lease is the check that made the
// request of the run.
func (l *looker) askedBy(who string) bool {
	return l.r.Locks.AskedBy(l.look.Request, who)
}

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
	return client.ReadShared(ctx, l.r.Shared, "leader "+name, func(ctx context.Context) (string, error) {
		return l.r.Leaders.at(ctx, l.r.Servers.Work.API(), machineAPINamespace, name)
	})
}

// managerNow names the leader of a manager on the management API.
func (l *looker) managerNow(ctx context.Context, name string) (string, error) {
	return client.ReadShared(ctx, l.r.Shared, "manager "+name, func(ctx context.Context) (string, error) {
		return l.r.Leaders.in(ctx, l.r.Servers.Manage.API(), name)
	})
}

// requestsNow lists the remediation requests of one kind in a namespace. One that is only partly
// readable counts, too.
func (l *looker) requestsNow(ctx context.Context, at view.Place) ([]policy.Request, error) {
	return client.ReadShared(ctx, l.r.Shared, at.Key, func(ctx context.Context) ([]policy.Request, error) {
		list, err := at.List(ctx)
		if err != nil {
			return nil, err
		}
		all := make([]policy.Request, len(list))
		for i := range list {
			all[i], _ = manifest.Request(list[i].Object)
			all[i].OnManagementAPI = at.OnManagementAPI
		}
		return all, nil
	})
}

// checksNow lists the MachineHealthChecks of a namespace.
func (l *looker) checksNow(ctx context.Context, ofCluster bool, namespace string) ([]policy.Check, error) {
	at, gvr := l.r.Servers.Work, client.CheckGVR
	if ofCluster {
		at, gvr = l.r.Servers.Manage, l.r.Servers.Served("machinehealthchecks")
	}
	return client.ReadShared(ctx, l.r.Shared, fmt.Sprintf("checks %s %s", gvr, namespace), func(ctx context.Context) ([]policy.Check, error) {
		return l.r.checksNow(ctx, at, gvr, namespace)
	})
}

// checksNow may get the list from the API server's cache, but not older than our view: an
// uncached list takes up to 100 ms on a busy server. Whoever may write checks makes no look fail: there may be any check
// among those that are too many or too large to read.
func (r *Reader) checksNow(ctx context.Context, s *client.Server, gvr schema.GroupVersionResource, namespace string) ([]policy.Check, error) {
	list, err := s.API().Dynamic.Resource(gvr).Namespace(namespace).List(ctx, r.View.NotOlder(s, policy.MachineHealthCheckKind, gvr.Group, namespace))
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

// mayIsolate asks the API server whether this user may isolate the Node of a run that waits because
// it could not: the next try powers the host off again, which is in vain without the right. An
// error is one of kind Forbidden if not.
func (l *looker) mayIsolate(ctx context.Context) error {
	r := l.run
	if !r.WaitsToIsolate() {
		return nil
	}
	verb := "delete"
	if r.Isolation == remediate.IsolateTaint {
		verb = "patch"
	}
	return l.work.Allows(ctx, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Name: r.Target.Node})
}

// mayLockNode asks the same about medik8s' Lease on the Node of a run that has not begun, where
// medik8s is installed: without the right the run would wait in vain for its interlock. It names
// nobody. // I22
func (l *looker) mayLockNode(ctx context.Context) (string, error) {
	if l.run.Intervened || l.run.Target.Node == "" {
		return "", nil
	}
	exists, err := l.medik8sLeases()
	return "", l.r.Locks.MayLock(ctx, l.work, l.run.Target.Node, exists, err)
}
