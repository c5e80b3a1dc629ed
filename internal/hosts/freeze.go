package hosts

import (
	"cmp"
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
	"github.com/fenced/fenced/internal/wire"
)

// Freezes are the hosts that nothing may switch off until a person releases them: their BMCs
// reported a false Off. As soon as two hosts of one class (model and firmware) are frozen, all
// hosts of that class are. // I5
type Freezes struct {
	writing *semaphore.Weighted        // held during writes to the store; queries do not wait for it
	table   *state.Table[state.Freeze] // by run; it holds released freezes as well
	class   func(host string) string   // of a host's BMC; "" if it is not known
}

func newFreezes(class func(host string) string) *Freezes {
	return &Freezes{class: class, writing: semaphore.NewWeighted(1), table: state.NewTable(state.Freezes, func(state.Freeze) {})}
}

// Load reads the freezes. After an error, what was known stays.
func (f *Freezes) Load(ctx context.Context, s state.Store) error {
	if err := f.table.Load(ctx, s); err != nil {
		return fmt.Errorf("load freezes: %w", err)
	}
	return nil
}

// Complete makes the freezes that a crash kept from being stored: every run that is Held for a
// false Off has one. A freeze that exists and cannot be
// read forbids everything already.
func (f *Freezes) Complete(ctx context.Context, s state.Store, runs []remediate.Run) error {
	for _, r := range runs {
		if _, known := f.table.Get(r.ID); known || !IsFalseOff(r) {
			continue
		}
		err := f.add(ctx, s, r, f.class(r.Target.Host))
		if err != nil && !errors.Is(err, state.ErrExists) && !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
	return nil
}

// IsFalseOff reports whether a run is Held because a BMC reported a false Off.
func IsFalseOff(r remediate.Run) bool { return r.Step == remediate.Held && r.Reason == reason.FalseOff }

// add stores that the host of a run is frozen, even if that freeze was released before.
func (f *Freezes) add(ctx context.Context, s state.Store, r remediate.Run, class string) error {
	if r.OffLevel > 0 || r.Level > 0 { // it may be the outlets that reported the false Off, not the BMC
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

// on returns why a target must not be switched off. why is "" if it may. class is the class of its
// BMC, "" if that is not known.
func (f *Freezes) on(t remediate.Target, class string) (code reason.Code, why string) {
	list := f.standing(t, class)
	switch {
	case len(list) == 0:
		return "", ""
	case isAbout(list[0], t):
		return reason.Frozen, fmt.Sprintf("run %s at %s: %s", list[0].RunID, list[0].At.Format(time.RFC3339), list[0].Reason)
	}
	hosts := map[string]bool{}
	for _, each := range list {
		hosts[each.Host] = true
	}
	return reason.ClassFrozen, fmt.Sprintf("BMCs of %q read Off while their hosts ran: %s", class, strings.Join(slices.Sorted(maps.Keys(hosts)), ", "))
}

// standing lists the freezes that keep a target from being switched off: one that is about it, or those of its class, if they are of
// more than one host.
func (f *Freezes) standing(t remediate.Target, class string) (list []state.Freeze) {
	hosts := map[string]bool{}
	for _, each := range f.table.All() {
		switch {
		case !each.Active():
		case isAbout(each, t):
			return []state.Freeze{each}
		case class != "" && each.Class == class:
			list = append(list, each)
			hosts[each.Host] = true
		}
	}
	if len(hosts) < 2 {
		return nil
	}
	return list
}

// isAbout reports whether a freeze is about a target: about its host, under any of its names, its
// Node, or a device of it.
func isAbout(f state.Freeze, t remediate.Target) bool {
	return f.Host != "" && slices.Contains(hostNames(t), f.Host) ||
		f.Node != "" && f.Node == t.Node && f.Cluster == t.Cluster ||
		t.SharesDevice(remediate.Target{Devices: f.Devices})
}

// release ends every freeze of a target's host, and returns those that it ended. While the Node of a freeze is seen, another Node that is
// said to be on that host does not release it: whoever may write a Machine chooses which BareMetalHost it names.
func (f *Freezes) release(ctx context.Context, s state.Store, o wire.Order, t remediate.Target, seen func(node string) bool) (released []state.Freeze, err error) {
	if err := f.writing.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer f.writing.Release(1)
	for _, each := range f.table.All() {
		named := each.Node == t.Node && t.Node != "" || each.Host == o.Of()
		others := each.Node != "" && seen(each.Node)
		if !each.Active() || each.Cluster != t.Cluster || !named && (others || !isAbout(each, t)) {
			continue
		}
		saved, e := f.table.Update(ctx, s, each.RunID, func(old state.Freeze, known bool) (state.Freeze, bool) {
			old.ReleasedBy, old.ReleasedReason, old.ReleasedAt = o.Actor, o.Reason, time.Now().UTC()
			return old, known // if it is gone, another instance has pruned it, so it was released
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

// Prune deletes released freezes whose runs are deleted. It stops at the first error: if the store
// does not answer, each further attempt would delay a freeze.
func (f *Freezes) Prune(ctx context.Context, s state.Store, kept func(run string) bool) error {
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

// Freeze stores that the host of a run is frozen, before the run is stored as Held for a false
// Off: a crash between the two must not lose the freeze. // I5
func (c *Cluster) Freeze(ctx context.Context, r remediate.Run) error {
	if err := c.hosts.Freezes.add(ctx, c.opt.Lead.Store(), r, c.hosts.catalog.class(r.Target.Host)); err != nil {
		return err
	}
	c.hosts.wakeAll() // other hosts of the class may be frozen now
	return nil
}

// Frozen returns why a target must not be switched off. why is "" if no freeze forbids it. // I5
func (c *Cluster) Frozen(t remediate.Target) (code reason.Code, why string) {
	if !c.hosts.Freezes.table.Any(state.Freeze.Active) { // the usual case
		return "", ""
	}
	return c.hosts.Freezes.on(c.withCurrentDevices(t, anyEntry), c.hosts.Freezes.classOf(t))
}

// withCurrentDevices is a target with the devices that its host has now, if it is not fixed at which it is used: the BMC that reported a false Off has it under
// another name, too. // I5
func (c *Cluster) withCurrentDevices(t remediate.Target, counts func(*hostEntry) bool) remediate.Target {
	if t.Devices != "" {
		return t
	}
	var keys []string
	for _, name := range hostNames(t) {
		if e := c.hosts.catalog.index.get(name); e != nil && counts(e) {
			keys = append(keys, e.host.Keys()...)
		}
	}
	t.Devices = strings.Join(keys, "\n")
	return t
}

func anyEntry(*hostEntry) bool { return true }

// isListed reports whether a host is an entry of hosts.d. Whoever may write a BareMetalHost chooses its devices.
func isListed(e *hostEntry) bool { return e.listed }

// classOf is the class of a target's BMC; "" if it is not known.
func (f *Freezes) classOf(t remediate.Target) (class string) {
	for _, host := range hostNames(t) {
		if class = f.class(host); class != "" {
			break
		}
	}
	return class
}

// hostNames are the names that a target's host may have: the one that was found for its run, or
// else those under which the index would find it.
func hostNames(t remediate.Target) []string {
	if t.Host != "" {
		return []string{t.Host}
	}
	return names(t.Cluster, t)
}

// Unfreeze ends the freeze of a Node's host, by order of a person who knows why its BMC reported a
// false Off. Outcome.Still says why the host must still not be switched off. // I5
func (c *Cluster) Unfreeze(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	t := c.targetNamed(o.Of())
	t.Cluster = c.opt.Name
	released, err := c.hosts.Freezes.release(ctx, c.opt.Lead.Store(), o, c.withCurrentDevices(t, isListed), func(node string) bool {
		_, seen := c.opt.View.TargetOn(node)
		return seen || !c.opt.View.Seen()
	})
	for _, f := range released {
		o.Node, o.Run = f.Node, f.RunID
		c.emit(o.Event("unfreezes " + f.Host))
	}
	if err == nil && len(released) == 0 {
		return order.Outcome{}, &reason.Refusal{Reason: reason.NotFrozen, Message: "no freeze stands on " + o.Of() + c.hosts.Freezes.elsewhere(c.withCurrentDevices(t, anyEntry))}
	}
	c.hosts.wakeAll()
	if err != nil {
		return order.Outcome{}, err
	}
	_, why := c.Frozen(t)
	return order.Outcome{Still: why}, nil
}

// elsewhere says which freezes of others keep a target frozen that has none to release, and how they end; "" if none do.
func (f *Freezes) elsewhere(t remediate.Target) string {
	const most = 4 // as many hosts as somebody reads
	class := f.classOf(t)
	_, why := f.on(t, class)
	if why == "" {
		return ""
	}
	var commands []string
	for _, each := range f.standing(t, class) {
		commands = append(commands, wire.Order{Cluster: each.Cluster, Node: cmp.Or(each.Node, each.Host)}.Command("bmc unfreeze")+" --reason WHY")
	}
	slices.Sort(commands)
	commands = slices.Compact(commands)
	more := ""
	if len(commands) > most {
		more = fmt.Sprintf("; and for %d more hosts", len(commands)-most)
		commands = commands[:most]
	}
	return " itself, but it is frozen all the same: " + why + ". Repair that, then run " + strings.Join(commands, "; ") + more
}
