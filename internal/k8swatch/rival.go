package k8swatch

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
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
	places := l.requestPlaces()
	for _, st := range l.c.requests.watched() {
		kind := schema.GroupKind{Group: st.Group, Kind: st.Kind}
		if kind == client.OwnRequests {
			continue // fenced carries these out
		}
		if at, _ := st.state(); at.IsZero() {
			continue // never read: unreadRequests refused the targets that it may concern
		}
		for _, namespace := range places.of(requestKind{st.side, kind}) {
			if who, err := l.foreignRequestIn(ctx, st, namespace); who != "" || err != nil {
				return who, err
			}
		}
	}
	return "", nil
}

// foreignRequestIn is foreignRequest for one kind in one namespace.
func (l *looker) foreignRequestIn(ctx context.Context, st *store, namespace string) (string, error) {
	list, err := l.requestsNow(ctx, st, namespace)
	if err != nil {
		return "", fmt.Errorf("list the requests of kind %s in namespace %s: %w", st.Kind, namespace, err)
	}
	for i := range list {
		q := &list[i]
		if t := l.run.Target; !q.IsFor(t.Namespace, t.Machine, t.MachineUID, t.Node) {
			continue
		}
		if !l.c.cfg.carriesOut(schema.GroupKind{Group: st.Group, Kind: st.Kind}) {
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
		if !client.IsHandledByFenced(c) && l.covers(c) {
			covering = append(covering, c)
		}
	}
	eachCheck(l.c, note)
	for _, c := range covering {
		if why := l.c.requests.unread(c); why != "" {
			return fmt.Sprintf("%s %s covers it: %s", c.Kind, c.Key(), why)
		}
	}
	return ""
}

// eachCheck visits the checks of the view, and those from files.
func eachCheck(c *Cluster, visit func(*policy.Check)) {
	for _, s := range c.sides() {
		for _, st := range s.watched() {
			if st.checks {
				st.eachCheck(visit)
			}
		}
	}
	for i := range c.cfg.Checks {
		visit(&c.cfg.Checks[i])
	}
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
	return l.c.Foreign(ctx, l.work, l.run.Target.Node)
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
	found, err := l.c.Requests().Get(ctx, *q)
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
	return l.c.AskedBy(l.look.Request, who)
}
