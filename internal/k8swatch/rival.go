package k8swatch

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	l.setContested(remediate.No, "")
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

// isHandledByFenced reports whether fenced carries out all requests of a check.
func isHandledByFenced(c *policy.Check) bool {
	all := c.Templates()
	others := slices.ContainsFunc(all, func(t policy.Template) bool { return !t.IsOwn() })
	return len(all) > 0 && !others
}

// foreignRequest names a remediation request for the target that another
// remediator carries out. Every existing request counts, also one that is being
// deleted: its remediator may keep the host off until it is done.
func (l *looker) foreignRequest(ctx context.Context) (string, error) {
	if who := l.unreadRequests(); who != "" {
		return who, nil
	}
	for _, st := range l.c.requests.watched() {
		kind := schema.GroupKind{Group: st.group, Kind: st.kind}
		if kind == ownRequests {
			continue // fenced carries these out
		}
		if at, why := st.state(); at.IsZero() { // never read: only targets that it may concern must wait
			if l.mayConcern(st) {
				return fmt.Sprintf("a check makes requests of kind %s for it, which cannot be read: %s", st.kind, why), nil
			}
			continue
		}
		list, err := l.requestsNow(ctx, st)
		if err != nil {
			return "", fmt.Errorf("list the requests of kind %s: %w", st.kind, err)
		}
		for i := range list {
			q := &list[i]
			if !requestFor(q, l.run.Target) {
				continue
			}
			if !l.c.cfg.carriesOut(kind) {
				return fmt.Sprintf("%s %s/%s asks another remediator to repair it", q.Kind, q.Namespace, q.Name), nil
			}
			if who, err := l.managerNow(ctx, metal3Leader); who != "" || err != nil { // it would carry the request out, too
				return who, err
			}
		}
	}
	return "", nil
}

// unreadRequests names a check that covers the target and whose requests are
// never read.
func (l *looker) unreadRequests() (who string) {
	for _, s := range l.c.sides() {
		l.eachCovering(s, func(c *policy.Check) {
			if t := foreignTemplate(c); t != nil {
				who = fmt.Sprintf("%s %s makes requests from a %s for it, which are not read", c.Kind, c.Key(), t.Kind)
			}
		})
	}
	return who
}

// mayConcern reports whether a check that makes such requests covers the target.
func (l *looker) mayConcern(requests *store) (yes bool) {
	l.eachCovering(requests.side, func(c *policy.Check) {
		yes = yes || slices.ContainsFunc(c.Templates(), func(t policy.Template) bool {
			kind, _ := requestOf(t)
			return kind.Group == requests.group && kind.Kind == requests.kind
		})
	})
	return yes
}

// eachCovering calls visit for the watched checks of one API that cover the
// target.
func (l *looker) eachCovering(s *side, visit func(*policy.Check)) {
	for _, st := range s.watched() {
		if st.checks {
			st.eachCheck(func(c *policy.Check) {
				if l.covers(c) {
					visit(c)
				}
			})
		}
	}
}

// covers reports whether a check covers the target as it is now. A check whose
// selector could not be read may cover it, so it does.
func (l *looker) covers(c *policy.Check) bool {
	return c.Selector == nil || c.Covers(l.look.FreshMachine, l.look.FreshNode)
}

// requestFor: a request is for the Node that it names, for the Machine that owns
// it, or else for the target with its name.
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
