package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// accounts remembers which devices refused their account, whichever probe or run
// was told: BMCs lock an account that is tried again and again. Another password
// is another account.
type accounts struct {
	mu      sync.Mutex
	refused map[account]refusedAccount
}

// account is a login, which all outlets of a PDU share; or, with part, what that
// login may do to one of them.
type account struct{ service, part, user string }

type refusedAccount struct {
	password bmc.Secret
	err      error
	until    time.Time
}

func accountRefused(err error) bool {
	k := bmc.KindOf(err)
	return k == bmc.KindAuth || k == bmc.KindPrivilege
}

// note takes in what a device said to its account.
func (a *accounts) note(d bmc.Device, err error) {
	login := account{service: d.Service(), user: d.Username}
	right := login
	right.part = d.Key()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.refused, func(_ account, r refusedAccount) bool { return !now.Before(r.until) })
	r := refusedAccount{d.Password, err, now.Add(accountPause)}
	switch bmc.KindOf(err) {
	case bmc.KindAuth:
		a.refused[login] = r
	case bmc.KindPrivilege:
		a.refused[right] = r
	}
}

// bar is the refusal of a device that is not to be asked yet; nil when it may be.
func (a *accounts) bar(d bmc.Device) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, part := range []string{"", d.Key()} {
		r, ok := a.refused[account{service: d.Service(), part: part, user: d.Username}]
		if ok && now.Before(r.until) && r.password.Reveal() == d.Password.Reveal() {
			return r.err
		}
	}
	return nil
}

// barLevel is bar for a power level: one device that is not asked stops it.
func (a *accounts) barLevel(l bmc.Level) error {
	for _, d := range l.Devices {
		if err := a.bar(d); err != nil {
			return err
		}
	}
	return nil
}

// took notes that a health check was let in.
func (a *accounts) took(d bmc.Device) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.refused[account{service: d.Service(), user: d.Username}]
	if ok && r.password.Reveal() == d.Password.Reveal() {
		delete(a.refused, account{service: d.Service(), user: d.Username})
	}
}

// forget lets the devices of a host be asked: a person may have mended the account.
func (a *accounts) forget(h bmc.Host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			maps.DeleteFunc(a.refused, func(each account, _ refusedAccount) bool { return each.service == d.Service() })
		}
	}
}

// guard makes every device that is opened remember refusals.
func (a *accounts) guard(open bmc.Opener) bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) {
		p, err := open(d)
		if err != nil {
			return nil, err
		}
		return guarded{p, d, a}, nil
	}
}

// guarded is a device that is not asked while its account is refused.
type guarded struct {
	bmc.Power
	device bmc.Device
	a      *accounts
}

// Read implements bmc.Power.
func (g guarded) Read(ctx context.Context) (bmc.Reading, error) {
	if err := g.a.bar(g.device); err != nil {
		return bmc.Reading{}, err
	}
	r, err := g.Power.Read(ctx)
	g.a.note(g.device, err)
	return r, err
}

// Send implements bmc.Power.
func (g guarded) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if err := g.a.bar(g.device); err != nil {
		return bmc.Receipt{}, err
	}
	r, err := g.Power.Send(ctx, c)
	g.a.note(g.device, err)
	return r, err
}
