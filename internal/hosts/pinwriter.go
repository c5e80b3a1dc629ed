package hosts

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// pinWriter stores the pins of one cluster's hosts, as long as this instance owns the cluster.
type pinWriter struct {
	cluster string
	lead    Lead
	view    View
	catalog *catalog
	emit    func(event.Event)
}

// put stores a pin, and then caches it.
func (w *pinWriter) put(ctx context.Context, p state.Pin) (state.Pin, error) {
	return w.save(ctx, p, w.catalog.pins.put)
}

// supersede is put for a pin that is newer evidence than what contradicted the cached one.
func (w *pinWriter) supersede(ctx context.Context, p state.Pin) (state.Pin, error) {
	return w.save(ctx, p, w.catalog.pins.supersede)
}

// save stores a pin, and caches it as the caller says. If another pin is stored by now, save caches
// that one: it may be this very pin, from a write that the store did not answer.
func (w *pinWriter) save(ctx context.Context, p state.Pin, cache func(state.Pin)) (state.Pin, error) {
	saved, err := state.SavePin(ctx, w.lead.Store(), p)
	if err == nil {
		cache(saved)
	} else if isConflict(err) {
		if stored, readError := state.LoadPin(ctx, w.lead.Store(), p.Host); readError == nil {
			w.catalog.pins.put(stored)
		}
	}
	return saved, err
}

// isConflict reports whether another goroutine or instance wrote the record first.
func isConflict(err error) bool {
	return errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrExists)
}

// update stores next if it differs from the old pin. A pin that another goroutine has just written
// stays as it is.
func (w *pinWriter) update(ctx context.Context, old, next state.Pin, at time.Time) error {
	if next.At = old.At; next == old {
		return nil
	}
	next.At = at.UTC()
	write := w.put
	if old.Contradicted != "" {
		write = w.supersede
	}
	if _, err := write(ctx, next); !isConflict(err) {
		return err
	}
	return nil
}

// healthy stores that a healthy Node and the first device of its host match, if something about
// that is new. What contradicted an older pin is over.
func (w *pinWriter) healthy(ctx context.Context, k Checked, d bmc.Device, old state.Pin) error {
	s, h, next := k.Subject, k.Subject.Host, old
	if !pinnedHere(old, h) {
		next = state.Pin{Host: h.Name, Version: old.Version} // nobody has enrolled these devices
	}
	next.Contradicted = ""
	next.Node, next.SystemUUID, next.MachineUID = s.Node, s.SystemUUID, pinnedMachine(h, s.MachineUID)
	next.Address, next.Devices, next.Choice = h.Address(), devicesOf(h), choiceOf(h)
	next.Secret = strings.Join(secretsOf(w.cluster, h), "\n")
	if class := w.catalog.index.get(h.Name).class(); class != "" {
		next.Class = class
	}
	if d.Identifies() {
		next.BMCUUID = k.Reading.Identity.UUID
		if bmc.UsableSerial(k.Reading.Identity.Serial) {
			next.Serial = k.Reading.Identity.Serial
		}
	}
	if next.EnrolledBy != "" { // the enrolment stays; only what an older one lacks is added
		next.SystemUUID, next.BMCUUID, next.Secret, next.Contradicted = old.SystemUUID, old.BMCUUID, cmp.Or(old.Secret, next.Secret), old.Contradicted
	}
	return w.update(ctx, old, next, k.At)
}

// proven stores that a run has proven which machine a BMC powers, for a later run without a Node.
// It leaves an enrolment as it is, the pin of a BareMetalHost that has moved, and one that is
// contradicted: what the run has read may be older than that.
func (w *pinWriter) proven(ctx context.Context, t remediate.Target) error {
	if t.Host == "" || !bmc.UsableUUID(t.SystemUUID) {
		return nil
	}
	old, found, err := w.catalog.pins.get(t.Host)
	if err != nil {
		return err
	}
	moved := old.Devices != t.Devices || old.Choice != "" && old.Choice != t.Choice
	if found && (old.EnrolledBy != "" || old.Contradicted != "" || t.BareMetalHost != "" && old.Devices != "" && moved) {
		return nil
	}
	next := old
	next.Host, next.Node, next.SystemUUID = t.Host, t.Node, t.SystemUUID
	next.Address, next.Devices, next.Choice, next.Secret = t.Address, t.Devices, t.Choice, t.Secret
	if moved {
		next.Serial, next.BMCUUID, next.Reported = "", "", ""
	}
	return w.update(ctx, old, next, time.Now())
}
