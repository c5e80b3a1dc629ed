package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// fromFiles are the checks and budgets of policies.d as the ledger takes them.
func fromFiles(o ClusterOptions) []policy.Change {
	var list []policy.Change
	for i := range o.FileChecks {
		c := &o.FileChecks[i]
		list = append(list, policy.Change{ID: checkObject(c), Value: c})
	}
	for i := range o.FileBudgets {
		b := &o.FileBudgets[i]
		list = append(list, policy.Change{Value: b,
			ID: policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: b.Name}})
	}
	return list
}

func checkObject(c *policy.Check) policy.ObjectID {
	return policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// follow brings the ledger up to date with the view, the open runs and the
// time. It says whether anything may have to be done differently, and when time
// alone could change something; zero = never.
func (c *cluster) follow(ctx context.Context, now time.Time) (moved bool, due time.Time) {
	changes := c.opt.Watch.Changes()
	c.watchView()           // after them: an outage that ended since may be what they show the end of // I16
	c.hosts.Follow(changes) // before the ledger: a host that is seen there is known here // I10
	c.mu.Lock()
	for i := range changes {
		c.keepStorm(&changes[i])
	}
	c.noteHealth(now, changes)
	c.ledger.Apply(now, changes...)
	if c.moved {
		c.ledger.SetRuns(now, c.openTargets())
		c.moved = false
	}
	c.ledger.Advance(now)
	if moved = c.ledger.Version() != c.seen || !c.judged; moved {
		c.rememberStorms(now)
	}
	c.judged, c.seen = true, c.ledger.Version() // others let time pass in the ledger, too
	due, _ = c.ledger.Next()
	c.mu.Unlock()
	c.hosts.NoteOwnNode(ctx, changes)
	return moved, due
}

// openTargets names the open runs: policy counts their targets as not healthy
// and asks for nothing more. c.mu is held.
func (c *cluster) openTargets() []policy.OpenRun {
	var open []policy.OpenRun
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		r := c.runs[id]
		if !r.Open() {
			continue
		}
		o := policy.OpenRun{ID: r.ID, Node: r.Target.Node, ControlPlane: r.ControlPlane}
		if r.Target.Machine != "" {
			o.Machine = r.Target.Namespace + "/" + r.Target.Machine
		}
		open = append(open, o)
	}
	return open
}
