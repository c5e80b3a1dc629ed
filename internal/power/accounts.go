package power

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// accounts remembers which devices refused their account, whichever probe or run
// was told: BMCs lock an account that is tried again and again. Another password
// is another account.
type accounts struct {
	news chan struct{}         // something is to be stored
	kept state.RefusedAccounts // as they were stored at the start

	mu      sync.Mutex
	refused map[account]refusedAccount
}

func newAccounts(kept state.RefusedAccounts, now time.Time) *accounts {
	a := &accounts{news: make(chan struct{}, 1), kept: kept, refused: map[account]refusedAccount{}}
	a.load(kept.Accounts, now)
	return a
}

// account is a login, which all outlets of a PDU share; or, with part, what that
// login may do to one of them.
type account struct{ service, part, user string }

type refusedAccount struct {
	password bmc.Secret
	salt     string
	mark     string // in place of the password after a restart
	err      error
	until    time.Time
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
	r := refusedAccount{password: d.Password, salt: rand.Text(), err: err, until: now.Add(AccountPause)}
	switch bmc.KindOf(err) {
	case bmc.KindAuth:
		a.refused[login] = r
	case bmc.KindPrivilege:
		a.refused[right] = r
	default:
		return
	}
	a.changed()
}

// bar is the refusal of a device that is not to be asked yet; nil when it may be.
func (a *accounts) bar(d bmc.Device) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, part := range []string{"", d.Key()} {
		at := account{service: d.Service(), part: part, user: d.Username}
		if r, ok := a.refused[at]; ok && now.Before(r.until) && r.same(at, d.Password) {
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
	at := account{service: d.Service(), user: d.Username}
	if r, ok := a.refused[at]; ok && r.same(at, d.Password) {
		delete(a.refused, at)
		a.changed()
	}
}

// forget lets the devices of a host be asked: a person may have mended the account.
func (a *accounts) forget(h bmc.Host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.refused)
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			maps.DeleteFunc(a.refused, func(each account, _ refusedAccount) bool { return each.service == d.Service() })
		}
	}
	if len(a.refused) != before {
		a.changed()
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

// Describe implements bmc.Describer. A device that cannot be described reports nothing.
func (g guarded) Describe(ctx context.Context) (bmc.Description, error) {
	describer, ok := g.Power.(bmc.Describer)
	if !ok {
		return bmc.Description{}, nil
	}
	if err := g.a.bar(g.device); err != nil {
		return bmc.Description{}, err
	}
	d, err := describer.Describe(ctx)
	g.a.note(g.device, err)
	return d, err
}
