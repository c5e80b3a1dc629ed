package hosts

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
		if _, known := f.table.Get(id); known || !Lied(r) {
			continue
		}
		err := f.add(ctx, s, r, class(r.Target.Host))
		if err != nil && !errors.Is(err, state.ErrExists) && !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
	return nil
}

// Lied says whether a run stands still because a BMC said Off falsely.
func Lied(r remediate.Run) bool { return r.Step == remediate.Held && r.Reason == reason.FalseOff }

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
		t.SharesDevice(remediate.Target{Devices: f.Devices})
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

// Freeze freezes the host of a run that is about to be Held for a false Off. It
// comes before the run's own record: no crash may come between the two. // I5
func (c *Cluster) Freeze(ctx context.Context, r remediate.Run) error {
	if err := c.hosts.freezes.add(ctx, c.opt.Lead.Store(), r, c.hosts.classOf(r.Target.Host)); err != nil {
		return err
	}
	c.hosts.wakeAll() // others of the class may be frozen now
	return nil
}

func (h *Hosts) wakeAll() {
	for _, c := range h.clusters {
		c.opt.View.Wake()
	}
}

// Frozen says why a target must not be switched off.
func (c *Cluster) Frozen(t remediate.Target) (reason.Code, string) {
	if c.hosts.freezes.none() {
		return "", ""
	}
	class := ""
	for _, host := range hostNames(t) {
		if class = c.hosts.classOf(host); class != "" {
			break
		}
	}
	return c.hosts.freezes.on(t, class)
}

// classOf is the model and firmware of a host's BMC, as a health check found it
// last, else as it was pinned; "" when neither tells. Then only the host is frozen.
func (h *Hosts) classOf(host string) string {
	if class := h.index.class(host); class != "" || host == "" {
		return class
	}
	p, _, _ := h.pins.get(host) // none is like one that cannot be read
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
