package policy

import "time"

// SetFiles replaces the checks and budgets that come from files, whose Source names the file.
// Those of the cluster stay.
func (l *Ledger) SetFiles(now time.Time, checks []Check, budgets []DisruptionBudget) {
	keep := map[checkKey]bool{}
	for i := range checks {
		keep[keyOf(objectOf(&checks[i]), checks[i].Source)] = true
	}
	for k, e := range l.checks {
		if k.source != "" && !keep[k] {
			delete(l.w.machineChecks, e.check.ID())
			l.replaceCheck(k, e, nil)
		}
	}
	for k := range l.budgets {
		if k.source != "" {
			delete(l.budgets, k)
		}
	}
	for i := range checks {
		l.setCheck(objectOf(&checks[i]), &checks[i])
	}
	for i := range budgets {
		l.setBudget(ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: budgets[i].Name}, &budgets[i])
	}
	l.findSpaces()
	l.stale = true
	l.version++
	l.enforceTargetLimit()
	l.evaluateDue(now)
}

func objectOf(c *Check) ObjectID {
	return ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}
