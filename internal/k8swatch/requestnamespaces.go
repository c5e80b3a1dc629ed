package k8swatch

import (
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/policy"
)

// A check of a namespace concerns the Machines there. The controllers of OpenShift and of the Cluster
// API make its requests in that namespace, that of medik8s in the one of the template. So a kind that
// only such checks name is one of requests there, and for those Machines: whoever may write a check
// could name any kind, also one of which every Machine owns an object. // I2

// counts reports whether the requests of a kind count in a namespace. Without a check that names the
// kind nobody knows, so they do.
func (w wish) counts(namespace string) bool {
	return w.always || w.namespaces == nil || w.namespaces[namespace]
}

// setNamespaces notes where the requests of a kind count in the view. If that changed, they are told again:
// what counts no longer goes. r.mu is held.
func (r *requestKinds) setNamespaces(k requestKind, w wish) {
	var now map[string]bool
	if !w.always {
		now = w.namespaces
	}
	if before, known := r.namespaces[k]; known && maps.Equal(before, now) {
		return
	}
	r.namespaces[k] = now
	r.stores[k].journalAll()
}

// counts reports whether requests of a kind in a namespace count in the view.
func (r *requestKinds) counts(k requestKind, namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.namespaces[k]
	return in == nil || in[namespace]
}

// requestPlaces is where requests may be for one target, by the checks as they are now: the view may follow
// later. // I22
type requestPlaces struct {
	rules   *policy.Rules
	checks  []*policy.Check
	wishes  map[requestKind]wish
	machine *policy.Machine // also one that is gone: its remediator may still be at work
	node    *policy.Node
	side    *side // of the machine
}

func (l *looker) requestPlaces() requestPlaces {
	p := requestPlaces{rules: l.c.cfg.rules(), wishes: l.c.templates(), machine: l.look.FreshMachine, node: l.look.FreshNode}
	eachCheck(l.c, func(c *policy.Check) { p.checks = append(p.checks, c) })
	if t := l.run.Target; p.machine == nil && t.Machine != "" {
		p.machine = &policy.Machine{APIVersion: t.MachineAPI, Namespace: t.Namespace}
	}
	if p.machine != nil {
		p.side = l.c.sideOf(p.machine.APIVersion)
	}
	return p
}

// of lists the namespaces where requests of a kind may be for the target. What anybody writes elsewhere is no
// request for it, and so many of them that a list has no end delay nothing.
func (p *requestPlaces) of(k requestKind) []string {
	spaces, w := p.rules.RequestSpaces(p.checks, k.side.IsApart(), p.machine, p.node), p.wishes[k]
	if p.machine != nil && p.side == k.side && w.counts(p.machine.Namespace) {
		return spaces
	}
	return slices.DeleteFunc(spaces, func(namespace string) bool { return !w.counts(namespace) })
}
