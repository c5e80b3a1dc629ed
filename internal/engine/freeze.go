package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// falseOff is the reason of a run whose host lived while its BMC said Off.
const falseOff = "FalseOff"

// freezes are the hosts on which nothing is switched off until a person releases
// them: their BMCs have lied. From the second host of one model and firmware on,
// all of its class are frozen. // I5
type freezes struct {
	mu  sync.Mutex
	all map[string]state.Freeze // by run, released ones too
}

// loadFreezes reads the freezes and makes those that a crash kept from being
// written: every run that is Held for a false Off has one.
func loadFreezes(ctx context.Context, s state.Store, runs []remediate.Run) (*freezes, error) {
	list, err := state.LoadFreezes(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("load freezes: %w", err)
	}
	f := &freezes{all: map[string]state.Freeze{}}
	for _, each := range list {
		f.all[each.RunID] = each
	}
	for _, r := range runs {
		if _, known := f.all[r.ID]; !known && lied(r) {
			if err := f.add(ctx, s, r, classPinned(ctx, s, r)); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// lied says whether a run stands still because a BMC said Off falsely.
func lied(r remediate.Run) bool { return r.Step == remediate.Held && r.Reason == falseOff }

// classPinned is the class that was stored for a run's host; "" when none was.
func classPinned(ctx context.Context, s state.Store, r remediate.Run) string {
	p, err := state.LoadPin(ctx, s, r.Target.Host)
	if err != nil { // then only the host is frozen
		return ""
	}
	return p.Class
}

// add freezes the host of a run, durably; again if it was released before.
func (f *freezes) add(ctx context.Context, s state.Store, r remediate.Run, class string) error {
	if r.OffLevel > 0 || r.Level > 0 { // the outlets lied, or something between
		class = ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := state.Freeze{
		RunID: r.ID, Version: f.all[r.ID].Version, Host: r.Target.Host, Cluster: r.Target.Cluster, Node: r.Target.Node,
		Devices: r.Target.Devices, Class: class, Reason: r.Note, At: time.Now().UTC(),
	}
	saved, err := state.SaveFreeze(ctx, s, next)
	if err != nil {
		return err
	}
	f.all[r.ID] = saved
	return nil
}

// on says why a target must not be switched off, and by which reason; "" when it
// may. class is that of its BMC, "" when it is not known.
func (f *freezes) on(t remediate.Target, class string) (policy.Reason, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hosts := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(f.all)) {
		each := f.all[id]
		switch {
		case !each.Active():
		case frozenThere(each, t):
			return policy.Frozen, fmt.Sprintf("run %s at %s: %s", each.RunID, each.At.Format(time.RFC3339), each.Reason)
		case class != "" && each.Class == class:
			hosts[each.Host] = true
		}
	}
	if len(hosts) < 2 {
		return "", ""
	}
	return policy.ClassFrozen, fmt.Sprintf("BMCs of %q said Off about living hosts: %s", class, strings.Join(slices.Sorted(maps.Keys(hosts)), ", "))
}

// frozenThere says whether a freeze is about a target: its host, under whatever
// name, its Node, or a device of it.
func frozenThere(f state.Freeze, t remediate.Target) bool {
	return f.Host != "" && slices.Contains(hostNames(t), f.Host) ||
		f.Node != "" && f.Node == t.Node && f.Cluster == t.Cluster ||
		shareDevice(remediate.Target{Devices: f.Devices}, t)
}

// none says whether nothing is frozen, as it mostly is.
func (f *freezes) none() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, each := range f.all {
		if each.Active() {
			return false
		}
	}
	return true
}

// release ends every freeze of a host and gives those that it ended.
func (f *freezes) release(ctx context.Context, s state.Store, o Order, cluster string) (released []state.Freeze, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, each := range f.all {
		if !each.Active() || each.Cluster != cluster || each.Node != o.Node && each.Host != o.Node {
			continue
		}
		each.ReleasedBy, each.ReleasedReason, each.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
		saved, e := state.SaveFreeze(ctx, s, each)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		f.all[id] = saved
		released = append(released, saved)
	}
	return released, err
}

// prune forgets released freezes whose runs are forgotten, too.
func (f *freezes) prune(ctx context.Context, s state.Store, kept func(run string) bool) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, each := range f.all {
		if each.Active() || kept(id) {
			continue
		}
		if e := state.DeleteFreeze(ctx, s, each); e != nil {
			err = errors.Join(err, e)
			continue
		}
		delete(f.all, id)
	}
	return err
}

// freeze freezes the host of a run that is about to be Held for a false Off. It
// comes before the run's own record: no crash may come between the two. // I5
func (c *cluster) freeze(ctx context.Context, r remediate.Run) error {
	c.mu.Lock()
	known := lied(c.runs[r.ID])
	c.mu.Unlock()
	if !lied(r) || known {
		return nil
	}
	class := c.e.index.class(r.Target.Host)
	if class == "" {
		class = classPinned(ctx, c.e.opt.Store, r)
	}
	if err := c.e.freezes.add(ctx, c.e.opt.Store, r, class); err != nil {
		return err
	}
	for _, each := range c.e.clusters { // others of the class may be frozen now
		each.wake()
	}
	return nil
}

// frozen says why a target must not be switched off.
func (c *cluster) frozen(ctx context.Context, t remediate.Target) (policy.Reason, string) {
	if c.e.freezes.none() {
		return "", ""
	}
	class := ""
	for _, host := range hostNames(t) {
		if class = c.classOf(ctx, host); class != "" {
			break
		}
	}
	return c.e.freezes.on(t, class)
}

// StillFrozen says why a Node's host must not be switched off although its own
// freezes were released; "" when no other stands.
func (e *Engine) StillFrozen(ctx context.Context, o Order) string {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return ""
	}
	t, _ := c.targetOn(o.Node)
	_, why := c.frozen(ctx, t)
	return why
}

// classOf is the model and firmware of a host's BMC, as a health check found it
// last, else as it was pinned.
func (c *cluster) classOf(ctx context.Context, host string) string {
	if class := c.e.index.class(host); class != "" {
		return class
	}
	p, err := state.LoadPin(ctx, c.e.opt.Store, host)
	if err != nil || host == "" {
		return ""
	}
	return p.Class
}

// hostNames are those that a target's host may have: the one that was found for
// its run, else those that it would be found under.
func hostNames(t remediate.Target) []string {
	if t.Host != "" {
		return []string{t.Host}
	}
	return names(t.Cluster, t.Node, t.BareMetalHost)
}
