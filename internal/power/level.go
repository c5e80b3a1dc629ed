package power

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// OpenLevel combines all devices of a host's level into one Power, with the
// levels below it as witnesses: an outlet that reads Off proves nothing while the
// BMC still reads On, or has not been read. If the first level has a single
// device, the result is the Power of that device. // I1
func OpenLevel(open bmc.Opener, h bmc.Host, level int) (bmc.Power, error) {
	if level < 0 || level >= len(h.Levels) || len(h.Levels[level].Devices) == 0 {
		return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: h.Name, Err: fmt.Errorf("the host has no power level %d", level+1)}
	}
	l := &levelPower{}
	for _, d := range h.Levels[level].Devices {
		p, err := openDevice(open, d)
		if err != nil {
			_ = l.Close(context.Background()) // nothing has been sent to them
			return nil, err
		}
		l.devices, l.names = append(l.devices, p), append(l.names, d.String())
	}
	services := map[string]*witnesses{}
	for i := range level {
		for _, d := range h.Levels[i].Devices {
			p, err := openDevice(toRead(open), d)
			if err != nil { // a device that cannot be opened is no witness
				l.missing++
				continue
			}
			l.addWitness(d, p, services, h.Levels[level].Devices)
		}
	}
	if len(l.devices) == 1 && len(l.witnesses) == 0 && l.missing == 0 {
		return l.devices[0], nil
	}
	return l, nil
}

func openDevice(open bmc.Opener, d bmc.Device) (bmc.Power, error) {
	if d.Unusable != nil {
		return nil, d.Unusable
	}
	return open(d)
}

// levelPower is several devices that switch one host.
type levelPower struct {
	devices   []bmc.Power
	witnesses []*witnesses
	missing   int // devices of lower levels that could not be opened

	sessions []uint64 // of the devices at the last reading
	serial   uint64   // changes with any of them

	names   []string  // of the devices
	heardOn string    // the device that read On last in a reading that failed, because another one refused the account
	heardAt time.Time // the beginning of that reading

	last     bmc.Command // the last command
	accepted bool        // whether each device accepted it
	since    time.Time   // answers of witnesses from before this time do not count
}

// MissingWitnesses returns how many devices of lower levels could not be opened.
func (l *levelPower) MissingWitnesses() int { return l.missing }

// serials numbers the sessions of all levels, so that readings from different
// sessions never look alike. The top bit separates them from those of single
// devices.
var serials atomic.Uint64

const levelSerial = 1 << 63

// Read reads all devices at the same time. A level is Off if each of its devices
// is Off and no witness contradicts. It is On if one device is On, because one
// outlet feeds the whole host. Otherwise one device that cannot be read makes the
// level unreadable.
func (l *levelPower) Read(ctx context.Context) (bmc.Reading, error) {
	began := time.Now()
	l.askWitnesses(ctx, false)
	parts := make([]bmc.Reading, len(l.devices))
	errs := forAll(l.devices, func(i int, p bmc.Power) (err error) {
		if parts[i], err = p.Read(ctx); err != nil {
			parts[i] = bmc.Reading{At: time.Now()} // the error makes it Unknown
		}
		return err
	})
	l.askWitnesses(ctx, true) // the level's own devices come first
	r := l.combine(parts)
	if err := worst(errs); err != nil && (r.State != bmc.On || bmc.KindOf(err).RefusesAccount()) {
		if on := slices.IndexFunc(parts, func(p bmc.Reading) bool { return p.State == bmc.On }); on >= 0 {
			l.heardOn, l.heardAt = l.names[on], began
		}
		return bmc.Reading{}, err
	}
	if r.State == bmc.Off {
		r = l.consultWitnesses(ctx, began, r)
	}
	return r, nil
}

// askWitnesses starts rounds of the witnesses at the level's own services, or of
// the others.
func (l *levelPower) askWitnesses(ctx context.Context, shared bool) {
	for _, ws := range l.witnesses {
		if ws.shared == shared {
			ws.startRound(ctx, l.since)
		}
	}
}

// combine makes one reading of the readings of all devices.
func (l *levelPower) combine(parts []bmc.Reading) bmc.Reading {
	r := bmc.Reading{At: parts[0].At}
	asked := parts[0].At
	var on, off int
	var raws, uuids, serialNumbers, systems, faults []string
	var sessions []uint64
	for _, p := range parts {
		switch p.State {
		case bmc.On:
			on++
		case bmc.Off:
			off++
		}
		if p.At.Before(r.At) { // as old as its oldest part
			r.At = p.At
		}
		if begun := p.At.Add(-p.Took); begun.Before(asked) {
			asked = begun
		}
		if p.Fault != "" {
			faults = append(faults, p.Fault)
		}
		raws, sessions = append(raws, p.Raw), append(sessions, p.Session)
		uuids, serialNumbers = append(uuids, p.Identity.UUID), append(serialNumbers, p.Identity.Serial)
		systems = append(systems, p.Identity.System)
	}
	r.Took = r.At.Sub(asked) // the reading starts with the first request
	switch {
	case off == len(parts):
		r.State = bmc.Off
	case on > 0: // one outlet feeds the whole host
		r.State, r.Partial = bmc.On, on < len(parts)
	}
	if !slices.Equal(sessions, l.sessions) {
		l.sessions, l.serial = sessions, serials.Add(1)|levelSerial
	}
	r.Session, r.Fault, r.Raw = l.serial, strings.Join(faults, ", "), bmc.Printable(strings.Join(raws, " + "), maxRaw)
	if len(parts) == 1 {
		r.Identity = parts[0].Identity
		return r
	}
	r.Identity = bmc.Identity{UUID: strings.Join(uuids, "+"), Serial: strings.Join(serialNumbers, "+"), System: strings.Join(systems, "+")}
	r.Parts = parts
	return r
}

// maxRaw limits Reading.Raw, in bytes.
const maxRaw = 64

// Send sends the command to all devices at the same time; each must accept it.
// Answers of witnesses from before it no longer count. Repeating an accepted
// command changes nothing.
func (l *levelPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if repeats := c == l.last && l.accepted; !repeats {
		for _, ws := range l.witnesses {
			ws.cancelRound()
		}
		defer func() { l.since = time.Now() }()
	}
	r, err := l.send(ctx, c)
	l.last, l.accepted = c, err == nil
	return r, err
}

func (l *levelPower) send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	receipts := make([]bmc.Receipt, len(l.devices))
	errs := forAll(l.devices, func(i int, p bmc.Power) (err error) {
		receipts[i], err = p.Send(ctx, c)
		return err
	})
	if err := worst(errs); err != nil {
		return bmc.Receipt{}, combineErrors(err, errs)
	}
	already := !slices.ContainsFunc(receipts, func(r bmc.Receipt) bool { return !r.Already })
	return bmc.Receipt{Already: already}, nil
}

// combineErrors returns err, one of errs, with what is known about the command's
// arrival at all devices: Maybe if one accepted it and another did not. // I2
func combineErrors(err error, errs []error) error {
	sent := sentOf(errs[0])
	for _, e := range errs[1:] {
		if sentOf(e) != sent {
			sent = bmc.SentMaybe
		}
	}
	whole := bmc.Error{Kind: bmc.KindOf(err), Op: "send", Addr: "a power level", Sent: sent, Err: err}
	if e, ok := errors.AsType[*bmc.Error](err); ok {
		whole.Op, whole.Addr, whole.Err = e.Op, e.Addr, e.Err
	}
	return &whole
}

// sentOf returns what err says about the arrival of a command; nil means
// accepted.
func sentOf(err error) bmc.Sent {
	if err == nil {
		return bmc.SentYes
	}
	if e, ok := errors.AsType[*bmc.Error](err); ok {
		return e.Sent
	}
	return bmc.SentMaybe
}

// Close ends the sessions with all devices and witnesses.
func (l *levelPower) Close(ctx context.Context) error {
	var witnessed []error
	var wait sync.WaitGroup
	wait.Go(func() { witnessed = forAll(l.witnesses, func(_ int, ws *witnesses) error { return ws.close(ctx) }) })
	errs := forAll(l.devices, func(_ int, p bmc.Power) error { return p.Close(ctx) })
	wait.Wait()
	return errors.Join(append(errs, witnessed...)...)
}

// forAll runs f for all elements at the same time and returns their errors in
// order.
func forAll[T any](all []T, f func(int, T) error) []error {
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() { errs[i] = f(i, one) })
	}
	wait.Wait()
	return errs
}

// worst returns the most important error: a refused account, which no repetition
// corrects, else the first; nil if there is none.
func worst(errs []error) error {
	var found error
	for _, err := range errs {
		if bmc.KindOf(err).RefusesAccount() {
			return err
		}
		if found == nil {
			found = err
		}
	}
	return found
}
