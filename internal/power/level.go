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

// OpenLevel makes one Power of all devices of a host's level, and of the levels
// below it as witnesses: an outlet that reads Off proves nothing while the BMC
// still reads On, or has not been heard. The only device of the first level is its
// own Power. // I1
func OpenLevel(open bmc.Opener, h bmc.Host, level int) (bmc.Power, error) {
	if level < 0 || level >= len(h.Levels) || len(h.Levels[level].Devices) == 0 {
		return nil, &bmc.Error{Kind: bmc.KindUnsupported, Op: "open", Addr: h.Name, Err: fmt.Errorf("the host has no power level %d", level+1)}
	}
	l := &levelPower{}
	for _, d := range h.Levels[level].Devices {
		p, err := openDevice(open, d)
		if err != nil {
			_ = l.Close(context.Background()) // nothing was asked of them yet
			return nil, err
		}
		l.devices = append(l.devices, p)
	}
	services := map[string]*witnesses{}
	for i := range level {
		for _, d := range h.Levels[i].Devices {
			if p, err := openDevice(open, d); err == nil { // one that cannot be opened has nothing to say
				l.gather(d, p, services, h.Levels[level].Devices)
			}
		}
	}
	if len(l.devices) == 1 && len(l.witnesses) == 0 {
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

	sessions []uint64 // of the devices at the last reading
	serial   uint64   // changes with any of them

	last     bmc.Command // that was given
	accepted bool        // by each device
	since    time.Time   // what witnesses saw before this says nothing
}

// serials numbers the sessions of all levels: no two readings from different
// ones look alike. The top bit keeps them apart from those of single devices.
var serials atomic.Uint64

const levelSerial = 1 << 63

// Read asks all devices at once. A level is Off when each device of it is and no
// witness says otherwise, and On when one is, since one outlet feeds the whole host;
// else one that cannot be read makes the whole unreadable.
func (l *levelPower) Read(ctx context.Context) (bmc.Reading, error) {
	began := time.Now()
	l.ask(ctx, false)
	parts := make([]bmc.Reading, len(l.devices))
	errs := each(l.devices, func(i int, p bmc.Power) (err error) {
		if parts[i], err = p.Read(ctx); err != nil {
			parts[i] = bmc.Reading{At: time.Now()} // whatever came with the error: Unknown
		}
		return err
	})
	l.ask(ctx, true) // its own devices come first
	r := l.together(parts)
	if err := worst(errs); err != nil && (r.State != bmc.On || bmc.KindOf(err).RefusesAccount()) {
		return bmc.Reading{}, err
	}
	if r.State == bmc.Off {
		r = l.hear(ctx, began, r)
	}
	return r, nil
}

// ask lets the witnesses be asked, those at the level's own services or the others.
func (l *levelPower) ask(ctx context.Context, shared bool) {
	for _, ws := range l.witnesses {
		if ws.shared == shared {
			ws.ask(ctx, l.since)
		}
	}
}

// together makes one reading of those of all devices.
func (l *levelPower) together(parts []bmc.Reading) bmc.Reading {
	r := bmc.Reading{At: parts[0].At}
	asked := parts[0].At
	var on, off int
	var raws, uuids, serialNumbers, faults []string
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
	}
	r.Took = r.At.Sub(asked) // so that the reading begins with the first question
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
	r.Identity = bmc.Identity{UUID: strings.Join(uuids, "+"), Serial: strings.Join(serialNumbers, "+")}
	r.Parts = parts
	return r
}

// maxRaw bounds Reading.Raw, in bytes.
const maxRaw = 64

// Send gives the command to all devices at once; each must accept it. What the
// witnesses saw before it says nothing; to repeat what was accepted changes nothing.
func (l *levelPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if repeats := c == l.last && l.accepted; !repeats {
		for _, ws := range l.witnesses {
			ws.drop()
		}
		defer func() { l.since = time.Now() }()
	}
	r, err := l.send(ctx, c)
	l.last, l.accepted = c, err == nil
	return r, err
}

func (l *levelPower) send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	receipts := make([]bmc.Receipt, len(l.devices))
	errs := each(l.devices, func(i int, p bmc.Power) (err error) {
		receipts[i], err = p.Send(ctx, c)
		return err
	})
	if err := worst(errs); err != nil {
		return bmc.Receipt{}, together(err, errs)
	}
	already := !slices.ContainsFunc(receipts, func(r bmc.Receipt) bool { return !r.Already })
	return bmc.Receipt{Already: already}, nil
}

// together is err, one of errs, with what is known about the command's arrival at
// all devices: where one took it and another did not, maybe. // I2
func together(err error, errs []error) error {
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

// sentOf is what err tells about a command; nil is a command that was accepted.
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
	wait.Go(func() { witnessed = each(l.witnesses, func(_ int, ws *witnesses) error { return ws.close(ctx) }) })
	errs := each(l.devices, func(_ int, p bmc.Power) error { return p.Close(ctx) })
	wait.Wait()
	return errors.Join(append(errs, witnessed...)...)
}

// each runs f for all at once and gives their errors in order.
func each[T any](all []T, f func(int, T) error) []error {
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() { errs[i] = f(i, one) })
	}
	wait.Wait()
	return errs
}

// worst is the error that says most: a refused account, which no repetition
// mends, else the first; nil when there is none.
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
