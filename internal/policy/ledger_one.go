package policy

import "time"

// CheckReport is the result of one check for all of its targets. It does not
// include the refusals by other checks, budgets and the control plane. It returns
// false if the check is unknown.
func (l *Ledger) CheckReport(id CheckID, now time.Time) (CheckReport, bool) {
	now = l.evaluateDue(now)
	c := l.entry(id)
	if c == nil {
		return CheckReport{}, false
	}
	return l.checkReport(c, c.targets, now), true
}

// Waiting lists, in no order, the targets of one check with a running timeout,
// and those whose host has just been read Off. Its cost does not grow with the
// other targets.
func (l *Ledger) Waiting(id CheckID) []TargetReport {
	c := l.entry(id)
	if c == nil || c.st.state != StateActive {
		return nil
	}
	var list []TargetReport
	for _, e := range c.clocks {
		if !e.report.Due.IsZero() && !l.w.readsOff[e.node] {
			list = append(list, e.report.asOf(l.now))
		}
	}
	for node := range l.w.readsOff {
		for _, e := range l.onNode[node] {
			if e.check == c && e.report != nil {
				list = append(list, e.report.asOf(l.now))
			}
		}
	}
	return list
}

// Requests returns the remediation requests for the Machine or Node of this name, each of
// which may be nil.
func (l *Ledger) Requests(target string, m *Machine, n *Node) []*Request {
	return l.w.requests.of(target, m, n)
}

// entry returns the check with this ID, or nil.
func (l *Ledger) entry(id CheckID) *checkEntry {
	c := l.checks[keyOf(ObjectID{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}, id.Source)]
	if c == nil || c.check.ID() != id {
		return nil
	}
	return c
}

// MachineIn returns the Machine of this name in the API group of apiVersion, or
// nil.
func (l *Ledger) MachineIn(apiVersion, namespace, name string) *Machine {
	return l.w.machines[machineID{group(apiVersion), namespace, name}]
}
