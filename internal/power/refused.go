package power

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

var errRefusedBefore = errors.New("the account was refused a short while ago, before fenced was restarted")

// refusal is what is kept of one over a restart: else a daemon that comes and goes would
// try a wrong password at each start, and lock the account.
func refusal(at account, r refusedAccount) state.RefusedAccount {
	if r.mark == "" {
		r.mark = markOf(r.salt, at, r.password)
	}
	return state.RefusedAccount{Service: at.service, Part: at.part, User: at.user, Kind: string(bmc.KindOf(r.err)), Salt: r.salt, Mark: r.mark, Until: r.until.UTC()}
}

// markOf is one byte by which another password is known, most likely.
func markOf(salt string, at account, password bmc.Secret) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + at.service + "\x00" + at.user + "\x00" + password.Reveal()))
	return hex.EncodeToString(sum[:1])
}

// same says whether a password is the one that was refused.
func (r refusedAccount) same(at account, password bmc.Secret) bool {
	if r.mark != "" {
		return r.mark == markOf(r.salt, at, password)
	}
	return r.password.Reveal() == password.Reveal()
}

// load takes in what was kept.
func (a *accounts) load(list []state.RefusedAccount, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range list {
		until := each.Until
		if most := now.Add(AccountPause); until.After(most) { // the clock was set back
			until = most
		}
		a.refused[account{service: each.Service, part: each.Part, user: each.User}] = refusedAccount{
			salt: each.Salt, mark: each.Mark, until: until,
			err: &bmc.Error{Kind: bmc.Kind(each.Kind), Op: "log in", Addr: each.Service, Err: errRefusedBefore},
		}
	}
}

// list is what is to be kept.
func (a *accounts) list(now time.Time) (list []state.RefusedAccount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, r := range a.refused {
		if now.Before(r.until) {
			list = append(list, refusal(at, r))
		}
	}
	return list
}

// changed tells run that there is something to keep.
func (a *accounts) changed() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// run stores which accounts are refused, until ctx ends. failed is told of the first error
// in a row.
func (a *accounts) run(ctx context.Context, s state.Store, failed func(error)) error {
	kept, told := a.kept, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.news:
		}
		kept.Accounts = a.list(time.Now())
		saved, err := state.SaveRefusedAccounts(ctx, s, kept)
		if err == nil {
			kept = saved
		} else if stood, unread := state.LoadRefusedAccounts(ctx, s, kept.Instance); unread == nil {
			kept.Version = stood.Version // only the answer was lost, perhaps
		}
		if err != nil && !told && ctx.Err() == nil {
			failed(err)
		}
		if told = err != nil; !told {
			continue
		}
		a.changed()
		select {
		case <-ctx.Done():
		case <-time.After(storeRetry):
		}
	}
}

// storeRetry is the pause after the refused accounts could not be stored.
const storeRetry = time.Second
