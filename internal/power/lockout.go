package power

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// LockOut keeps fenced from locking accounts and from asking again and again what does not
// answer. A device that refused its account is left in peace for a while, by whoever asks,
// also over a restart. Probes of a level where a wrong password looks like a dead device
// come ever more rarely.
type LockOut struct {
	accounts *accounts
	backoff  probeBackoff
	store    state.Store
}

// NewLockOut loads which accounts were refused before this process began. An error means
// that the store could not be asked.
func NewLockOut(ctx context.Context, s state.Store, instance string) (*LockOut, error) {
	kept, err := state.LoadRefusedAccounts(ctx, s, instance)
	if err != nil {
		return nil, err
	}
	return &LockOut{accounts: newAccounts(kept, time.Now()), backoff: probeBackoff{failing: map[string]failing{}}, store: s}, nil
}

// Run stores which accounts are refused, until ctx ends. failed is told of the first error
// in a row; it is tried again.
func (l *LockOut) Run(ctx context.Context, failed func(error)) error {
	return l.accounts.run(ctx, l.store, failed)
}

// Guard makes every device that is opened remember refusals, and refuse while they last.
func (l *LockOut) Guard(open bmc.Opener) bmc.Opener { return l.accounts.guard(open) }

// Refuses is how a device of a level refused its account a short while ago; nil when none
// did. To ask it again could lock the account.
func (l *LockOut) Refuses(level bmc.Level) error { return l.accounts.barLevel(level) }

// BackingOff is why a level is not to be probed yet; nil when it may be.
func (l *LockOut) BackingOff(level bmc.Level) error {
	return cmp.Or(l.accounts.barLevel(level), l.backoff.wait(level))
}

// Probed takes in how a probe of a level went; nil: it answered.
func (l *LockOut) Probed(level bmc.Level, err error) { l.backoff.note(level, err) }

// Accepted notes that a device let its account in.
func (l *LockOut) Accepted(d bmc.Device) { l.accounts.took(d) }

// ForgetAccounts lets the devices of a host be asked whose account was refused: a person
// may have mended it.
func (l *LockOut) ForgetAccounts(h bmc.Host) { l.accounts.forget(h) }

// Forget is ForgetAccounts, and lets the levels of a host be probed at once.
func (l *LockOut) Forget(h bmc.Host) {
	l.accounts.forget(h)
	l.backoff.forget(h)
}
