package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

func (p *play) violate(format string, args ...any) {
	p.result.Violations = append(p.result.Violations, fmt.Sprintf(format, args...))
}

// judge looks at everything from outside, once the daemon has stopped.
func (p *play) judge(ctx context.Context) error {
	if err := p.s.Died(); err != nil {
		return err
	}
	p.judgeLog()
	deletions, err := p.s.Cluster.AllNodeDeletions()
	if err != nil {
		return err
	}
	p.result.Deletions = len(deletions)
	of := map[string][]rig.Deletion{}
	for _, d := range deletions {
		of[d.Name] = append(of[d.Name], d)
	}
	nodes, err := p.nodes(ctx)
	if err != nil {
		return err
	}
	for _, w := range p.targets {
		p.judgeTarget(w, of[w.Name])
		n := nodes[w.Name]
		if lacks := w.Undressed(&n); len(lacks) > 0 {
			p.violate("%s came back without %s", w.Name, strings.Join(lacks, ", "))
		}
	}
	for _, w := range p.others {
		n := nodes[w.Name]
		c := w.BMC.(*ipmisim.GoBMC).Counts()
		if n.UID != w.Registered.UID || len(of[w.Name]) > 0 || c.Off+c.On > 0 || len(w.Undressed(&n)) > 0 {
			p.violate("%s was healthy and was touched: %d deletions, commands %+v", w.Name, len(of[w.Name]), c)
		}
	}
	return p.judgeRuns(ctx)
}

// judgeTarget compares one host's own power with the deletions of its Node.
func (p *play) judgeTarget(w *scene.Worker, deletions []rig.Deletion) {
	b := w.BMC.(*ipmisim.GoBMC)
	changes := b.Changes()
	p.result.Attempts += len(changes) / 2
	if !b.Power() {
		p.violate("%s is off", w.Name)
	}
	uids := map[string]bool{}
	for _, d := range deletions {
		if d.User != rig.FencedUser || d.UID == "" || d.ResourceVersion == "" {
			p.violate("%s was deleted by %s with the preconditions %q, %q", w.Name, d.User, d.UID, d.ResourceVersion)
		}
		if uids[d.UID] {
			p.violate("Node %s of UID %s was deleted twice", w.Name, d.UID)
		}
		uids[d.UID] = true
		if !offDuring(changes, d.Received, d.Done) {
			p.violate("Node %s was deleted at %s while its host was on", w.Name, d.Received.Format(time.RFC3339Nano))
		}
	}
	if !uids[string(w.Registered.UID)] {
		p.violate("Node %s was not deleted", w.Name)
	}
	if len(deletions) != len(changes)/2 {
		p.violate("%s was switched %d times and deleted %d times", w.Name, len(changes), len(deletions))
	}
}

// offDuring says whether a host was off all the time from one moment to another.
func offDuring(changes []ipmisim.Change, from, to time.Time) bool {
	on := true
	for _, c := range changes {
		switch {
		case !c.At.After(from):
			on = c.On
		case !c.At.After(to) && c.On:
			return false
		}
	}
	return !on
}

// judgeLog looks for what no log should have.
func (p *play) judgeLog() {
	log := p.s.LogTail(1 << 40)
	for _, bad := range []string{"panic:", "fatal error:", "goroutine 1 [", "WARNING: DATA RACE"} {
		if n := strings.Count(log, bad); n > 0 {
			p.violate("the log has %q %d times", bad, n)
		}
	}
}

// judgeRuns reads the state file that the daemon left.
func (p *play) judgeRuns(ctx context.Context) error {
	store, err := boltstore.Open(filepath.Join(filepath.Dir(p.s.Config()), "state.db"))
	if err != nil {
		return err
	}
	runs, err := state.LoadRuns(ctx, store)
	if err != nil {
		return fmt.Errorf("read the runs: %w", err)
	}
	p.result.Runs = len(runs)
	of := map[string]int{}
	for _, r := range runs {
		of[r.Target.Node]++
		if r.Step != remediate.Done || r.Reason != "" {
			p.violate("run %s on %s ended %s %s %s", r.ID, r.Target.Node, r.Step, r.Reason, r.Note)
		}
	}
	for _, w := range p.targets {
		if of[w.Name] != 1 {
			p.violate("%s had %d runs", w.Name, of[w.Name])
		}
	}
	if left, err := state.LoadSlots(ctx, store); err != nil || len(left) > 0 {
		p.violate("%d slots are left, error %v", len(left), err)
	}
	return store.Close()
}

// unfinished says what keeps a run that was given up from its end.
func (p *play) unfinished(ctx context.Context) (list []string) {
	st, err := p.client.Status(ctx)
	if err != nil {
		return []string{"fenced does not answer: " + err.Error()}
	}
	for _, r := range st.Value.Runs {
		list = append(list, fmt.Sprintf("%s is still in %s, attempt %d: %s", r.Node, r.Step, r.Attempt, r.Note))
	}
	slices.Sort(list)
	return list
}
