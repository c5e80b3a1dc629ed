package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// freezes are the hosts on which nothing is switched off until a person releases
// them: their BMCs have lied. From the second host of one model and firmware on,
// all of its class are frozen. // I5
type freezes struct {
	writing *semaphore.Weighted        // held while the store is written; those who ask do not wait for it
	table   *state.Table[state.Freeze] // by run, released ones too
}

func newFreezes() *freezes {
	return &freezes{writing: semaphore.NewWeighted(1), table: state.NewFreezes(func(state.Freeze) {})}
}

// load reads the freezes. What cannot be read leaves what was known.
func (f *freezes) load(ctx context.Context, s state.Store) error {
	if err := f.table.Load(ctx, s); err != nil {
		return fmt.Errorf("load freezes: %w", err)
	}
	return nil
}

// complete makes the freezes that a crash kept from being written: every run that is
// Held for a false Off has one. class is that of a host's BMC. One that is there and
// cannot be read forbids everything already.
func (f *freezes) complete(ctx context.Context, s state.Store, runs map[string]remediate.Run, class func(host string) string) error {
	for id, r := range runs {
		if _, known := f.table.Get(id); known || !lied(r) {
			continue
		}
		err := f.add(ctx, s, r, class(r.Target.Host))
		if err != nil && !errors.Is(err, state.ErrExists) && !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
	return nil
}

// lied says whether a run stands still because a BMC said Off falsely.
func lied(r remediate.Run) bool { return r.Step == remediate.Held && r.Reason == reason.FalseOff }

// add freezes the host of a run, durably; again if it was released before.
func (f *freezes) add(ctx context.Context, s state.Store, r remediate.Run, class string) error {
	if r.OffLevel > 0 || r.Level > 0 { // the outlets lied, or something between
		class = ""
	}
	if err := f.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer f.writing.Release(1)
	_, err := f.table.Update(ctx, s, r.ID, func(state.Freeze, bool) (state.Freeze, bool) {
		return state.Freeze{
			RunID: r.ID, Host: r.Target.Host, Cluster: r.Target.Cluster, Node: r.Target.Node,
			Devices: r.Target.Devices, Class: class, Reason: r.Note, At: time.Now().UTC(),
		}, true
	})
	return err
}

// on says why a target must not be switched off, and by which reason; "" when it
// may. class is that of its BMC, "" when it is not known.
func (f *freezes) on(t remediate.Target, class string) (reason.Code, string) {
	hosts := map[string]bool{}
	for _, each := range f.table.All() {
		switch {
		case !each.Active():
		case frozenThere(each, t):
			return reason.Frozen, fmt.Sprintf("run %s at %s: %s", each.RunID, each.At.Format(time.RFC3339), each.Reason)
		case class != "" && each.Class == class:
			hosts[each.Host] = true
		}
	}
	if len(hosts) < 2 {
		return "", ""
	}
	return reason.ClassFrozen, fmt.Sprintf("BMCs of %q said Off about living hosts: %s", class, strings.Join(slices.Sorted(maps.Keys(hosts)), ", "))
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
	return !slices.ContainsFunc(f.table.All(), state.Freeze.Active)
}

// release ends every freeze of a host and gives those that it ended.
func (f *freezes) release(ctx context.Context, s state.Store, o order.Order, cluster string) (released []state.Freeze, err error) {
	if err := f.writing.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer f.writing.Release(1)
	for _, each := range f.table.All() {
		if !each.Active() || each.Cluster != cluster || each.Node != o.Node && each.Host != o.Node {
			continue
		}
		saved, e := f.table.Update(ctx, s, each.RunID, func(old state.Freeze, known bool) (state.Freeze, bool) {
			old.ReleasedBy, old.ReleasedReason, old.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
			return old, known // another instance forgets only what was released
		})
		switch {
		case e != nil:
			err = errors.Join(err, e)
		case saved.RunID != "":
			released = append(released, saved)
		}
	}
	return released, err
}

// prune forgets released freezes whose runs are forgotten, too. A store that does not
// answer is asked once: whoever must freeze a host waits meanwhile.
func (f *freezes) prune(ctx context.Context, s state.Store, kept func(run string) bool) error {
	if err := f.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer f.writing.Release(1)
	for _, each := range f.table.All() {
		if each.Active() || kept(each.RunID) {
			continue
		}
		if err := f.table.Delete(ctx, s, each); err != nil {
			return err
		}
	}
	return nil
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
	if err := c.e.freezes.add(ctx, c.lead.Store(), r, c.e.classOf(r.Target.Host)); err != nil {
		return err
	}
	for _, each := range c.e.clusters { // others of the class may be frozen now
		each.wake()
	}
	return nil
}

// frozen says why a target must not be switched off.
func (c *cluster) frozen(t remediate.Target) (reason.Code, string) {
	if c.e.freezes.none() {
		return "", ""
	}
	class := ""
	for _, host := range hostNames(t) {
		if class = c.e.classOf(host); class != "" {
			break
		}
	}
	return c.e.freezes.on(t, class)
}

// StillFrozen says why a Node's host must not be switched off although its own
// freezes were released; "" when no other stands.
func (e *Engine) StillFrozen(o order.Order) string {
	c, err := e.cluster(o.Cluster)
	if err != nil {
		return ""
	}
	t, _ := c.targetOn(o.Node)
	_, why := c.frozen(t)
	return why
}

// classOf is the model and firmware of a host's BMC, as a health check found it
// last, else as it was pinned; "" when neither tells. Then only the host is frozen.
func (e *Engine) classOf(host string) string {
	if class := e.index.class(host); class != "" || host == "" {
		return class
	}
	p, _, _ := e.pins.get(host) // none is like one that cannot be read
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
