package hosts

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Checked takes in what a health check found: what must be unique is indexed, and
// the identity of a healthy host is pinned for the day on which its Node cannot
// say any more who it is. // I9, I10
func (h *Hosts) Checked(ctx context.Context, k Checked) {
	c, err := h.cluster(k.Subject.Cluster)
	d, ok := k.device()
	if err != nil || !ok || k.Subject.Err != nil {
		return
	}
	h.own.resolve(ctx, d)
	owned := c.opt.Lead.Leads() // else others write it down
	if owned {
		c.contradict(ctx, k, d)
		c.endIfChanged(ctx, k, d)
	}
	if bmc.KindOf(k.Err).RefusesAccount() { // the Secret may have been mended
		c.forgetSecret(d)
	}
	if k.Err != nil {
		return
	}
	h.opt.LockOut.Accepted(d)
	if l := k.Subject.Host.Levels[k.Level]; len(l.Devices) == 1 {
		h.opt.LockOut.Probed(l, nil)
	}
	h.index.tell(k.Subject.Host.Name, d.Key(), deviceTold{
		uuid: c.uuidOf(d, k.Reading.Identity), macs: k.Description.MACs, class: k.Description.Class(),
	})
	match, known := bmc.MACsMatch(k.Subject.MACs, k.Description.MACs)
	otherMACs := known && !match
	if !owned || !k.Subject.Healthy || k.Identity != guard.IdentityMatches || otherMACs || k.Level != 0 || k.Device != 0 {
		return // the first device tells for all
	}
	if err := c.pinHealthy(ctx, k, d); err != nil && ctx.Err() == nil {
		c.emit(event.Event{Type: event.Failed, Node: k.Subject.Node, Message: "store the identity pin: " + err.Error()})
	}
}

// pinHealthy stores the match of a healthy Node and the first device of its host,
// when something of it is new.
func (c *Cluster) pinHealthy(ctx context.Context, k Checked, d bmc.Device) error {
	s, h := k.Subject, k.Subject.Host
	if !bmc.UsableUUID(s.SystemUUID) || c.isForbidden(ctx, s) {
		return nil // a BareMetalHost that moved among them: only a person may follow it // I10
	}
	old, found, err := c.hosts.pins.get(h.Name)
	if err != nil {
		return err
	}
	next := old
	if found && !pinnedHere(old, h) {
		next = state.Pin{Host: h.Name, Version: old.Version} // nobody has vouched for these devices
	}
	next.Node, next.SystemUUID = s.Node, s.SystemUUID
	next.Address, next.Devices, next.Choice = h.Address(), devicesOf(h), choiceOf(h)
	next.Secret = strings.Join(secretsOf(c.opt.Name, h), "\n")
	if class := c.hosts.index.class(h.Name); class != "" {
		next.Class = class
	}
	if d.Identifies() {
		next.BMCUUID = k.Reading.Identity.UUID
		if bmc.UsableSerial(k.Reading.Identity.Serial) {
			next.Serial = k.Reading.Identity.Serial
		}
	}
	if next.EnrolledBy != "" { // a person's word stands; only what was not asked then is added
		next.SystemUUID, next.BMCUUID, next.Secret = old.SystemUUID, old.BMCUUID, cmp.Or(old.Secret, next.Secret)
	}
	return c.savePin(ctx, old, next, k.At)
}

// savePin stores what differs from the old pin; one that another goroutine has
// just written stays as that wrote it.
func (c *Cluster) savePin(ctx context.Context, old, next state.Pin, at time.Time) error {
	if next.At = old.At; next == old {
		return nil
	}
	next.At = at.UTC()
	_, err := c.putPin(ctx, next)
	if errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrExists) {
		return nil
	}
	return err
}

// PinProven remembers the match of Node and BMC that a run has proven, for a later
// run without a Node. A failure costs only that.
func (c *Cluster) PinProven(ctx context.Context, r remediate.Run) {
	t := r.Target
	if t.Host == "" || !bmc.UsableUUID(t.SystemUUID) {
		return
	}
	old, found, err := c.hosts.pins.get(t.Host)
	moved := old.Devices != t.Devices || old.Choice != "" && old.Choice != t.Choice
	if err == nil && found && (old.EnrolledBy != "" || t.BareMetalHost != "" && old.Devices != "" && moved) {
		return
	}
	next := old
	next.Host, next.Node, next.SystemUUID = t.Host, t.Node, t.SystemUUID
	next.Address, next.Devices, next.Choice, next.Secret = t.Address, t.Devices, t.Choice, t.Secret
	if moved {
		next.Serial, next.BMCUUID, next.Reported = "", "", ""
	}
	if err == nil {
		err = c.savePin(ctx, old, next, time.Now())
	}
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Node: t.Node, Run: r.ID, Message: "store the identity pin: " + err.Error()})
	}
}
