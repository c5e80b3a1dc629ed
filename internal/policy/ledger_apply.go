package policy

import (
	"fmt"
	"strings"
)

// apply records one change. If an object could not be decoded, its old value is
// no longer used.
func (l *Ledger) apply(c Change) {
	err := l.put(c.ID, c.Value, c.Err)
	l.enforceTargetLimit()
	old, had := l.errors[c.ID]
	if had && err == nil {
		delete(l.errors, c.ID)
		l.w.dropUndecoded(c.ID.Key())
	}
	if err != nil {
		l.errors[c.ID] = ObjectError{Object: c.ID.String(), Message: strings.ReplaceAll(err.Error(), "\n", "; ")}
		if !had {
			l.w.putUndecoded(c.ID.Key())
		}
	}
	if had != (err != nil) {
		l.touchUndecoded(c.ID.Key())
	}
	if old != l.errors[c.ID] {
		l.version++
	}
}

// touchUndecoded marks what may depend on an object that could not be decoded, or
// can be decoded again.
func (l *Ledger) touchUndecoded(k ObjectKey) {
	switch {
	case k.Kind == "Node" && k.Name != "":
		l.touchNode(k.Name)
	case k.Kind == "Node" || k.Kind == "":
		l.full = true
	case k.Kind == "Machine":
		l.touchNodeTargets(k)
	}
	l.stale = true
}

// touchNodeTargets marks every target that is a Node without a Machine, and whose Machine may be
// the one of this key.
func (l *Ledger) touchNodeTargets(k ObjectKey) {
	ofAny, named := k.Name == "" || l.w.rules.trusts(k.Group, k.Namespace), key(k.Namespace, k.Name)
	for _, c := range l.checks {
		for _, e := range c.targets {
			if e.machine != nil {
				continue
			}
			if n := l.w.nodes[e.node]; ofAny || n != nil && n.named(k.Group) == named {
				l.touch(e)
			}
		}
	}
}

// put replaces one object; a nil value removes it. It returns err, or an error of
// its own if the value does not have the type of the kind.
func (l *Ledger) put(id ObjectID, value any, err error) error {
	switch _, request := value.(*Request); {
	case request, value == nil && err == nil && l.requests[id] != nil:
		// The author of a check chooses the kind of its requests. A request must
		// never replace or remove an object of another kind, whatever its name.
		dispatch(id, value, l.setRequest)
		return err
	case err != nil && l.requests[id] != nil:
		l.setRequest(id, nil)
	}
	ok := true
	switch id.kind() {
	case "Node":
		ok = dispatch(id, value, l.setNode)
	case "Machine":
		ok = dispatch(id, value, l.setMachine)
	case MachineHealthCheckKind, NodeHealthCheckKind, FencePolicyKind:
		ok = dispatch(id, value, l.setCheck)
	case DisruptionBudgetKind:
		ok = dispatch(id, value, l.setBudget)
	case "Cluster":
		ok = dispatch(id, value, l.setCluster)
	case "Pod":
		ok = dispatch(id, value, l.setPod)
	case "Lease":
		ok = dispatch(id, value, l.setLease)
	case "BareMetalHost":
		ok = dispatch(id, value, l.setHost)
	case "ClusterVersion":
		ok = dispatch(id, value, l.setUpgrade)
	default:
		ok = dispatch(id, value, l.setRequest)
	}
	if !ok && err == nil {
		return fmt.Errorf("a %s cannot be a %T", id.Kind, value)
	}
	return err
}

// dispatch calls set with a value of type *T, or with nil for any other type.
func dispatch[T any](id ObjectID, value any, set func(ObjectID, *T)) bool {
	v, ok := value.(*T)
	set(id, v)
	return ok || value == nil
}
