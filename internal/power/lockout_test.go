package power

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/must"
)

func outletOf(plug, user, password string) bmc.Device {
	return bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "192.0.2.200"},
		Parameters: map[string]string{"plug": plug}, Username: user, Password: bmc.NewSecret(password)}
}

func refusing(k bmc.Kind) error {
	return &bmc.Error{Kind: k, Op: "read power state", Err: errors.New("refused")}
}

func TestAccounts(t *testing.T) {
	mine := outletOf("1", "fence", "old")
	for name, c := range map[string]struct {
		kind  bmc.Kind
		next  bmc.Device
		after func(a *accounts)
		wait  time.Duration
		asked bool
	}{
		"the same device":                      {kind: bmc.KindAuth, next: mine},
		"another outlet, one login":            {kind: bmc.KindAuth, next: outletOf("2", "fence", "old")},
		"another user":                         {kind: bmc.KindAuth, next: outletOf("1", "root", "old"), asked: true},
		"another password":                     {kind: bmc.KindAuth, next: outletOf("1", "fence", "new"), asked: true},
		"later":                                {kind: bmc.KindAuth, next: mine, wait: AccountPause, asked: true},
		"not much later":                       {kind: bmc.KindAuth, next: mine, wait: AccountPause - time.Second},
		"a right that it lacks":                {kind: bmc.KindPrivilege, next: mine},
		"a right that it may have elsewhere":   {kind: bmc.KindPrivilege, next: outletOf("2", "fence", "old"), asked: true},
		"no answer is no refusal":              {kind: bmc.KindUnreachable, next: mine, asked: true},
		"a person mended it":                   {kind: bmc.KindAuth, next: mine, asked: true, after: func(a *accounts) { a.forget(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{mine}}}}) }},
		"a health check was let in":            {kind: bmc.KindAuth, next: mine, asked: true, after: func(a *accounts) { a.accepted(mine) }},
		"a health check with another password": {kind: bmc.KindAuth, next: mine, after: func(a *accounts) { a.accepted(outletOf("1", "fence", "new")) }},
		"a health check shows no right":        {kind: bmc.KindPrivilege, next: mine, after: func(a *accounts) { a.accepted(mine) }},
		"a person mended what is somewhere else": {kind: bmc.KindAuth, next: mine, after: func(a *accounts) {
			a.forget(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI}}}}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccounts(state.RefusedAccounts{}, time.Now())
				pdu := &outlet{err: refusing(c.kind), refusal: refusing(c.kind)}
				open := a.Guard(func(bmc.Device) (bmc.Power, error) { return pdu, nil })
				p := must.Do(open(mine))(t)
				_, err := p.Read(t.Context())
				require.Equal(t, c.kind, bmc.KindOf(err))
				if c.after != nil {
					c.after(a)
				}
				time.Sleep(c.wait)
				p = must.Do(open(c.next))(t)
				for _, ask := range []func() error{
					func() error { _, err := p.Read(t.Context()); return err },
					func() error { _, err := p.Send(t.Context(), bmc.CommandOff); return err },
				} {
					before := pdu.reads + len(pdu.sent)
					pdu.err, pdu.refusal = nil, nil
					err := ask()
					assert.Equal(t, c.asked, pdu.reads+len(pdu.sent) > before)
					if !c.asked {
						assert.Equal(t, c.kind, bmc.KindOf(err), "it is told what was said before")
					}
				}
			})
		})
	}
}

// One place says which accounts were refused. What a health check was refused holds health checks back, longer each time, and
// no run: its host may be off. What a run was refused holds both, and the run for AccountPause, however long the health
// check waits.
func TestRefusedAccountHoldsRunsForAShorterTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := outletOf("1", "fence", "old")
		l := &LockOut{accounts: newAccounts(state.RefusedAccounts{}, time.Now())}
		pdu := &outlet{err: refusing(bmc.KindAuth)}
		run := must.Do(l.Guard(func(bmc.Device) (bmc.Power, error) { return pdu, nil })(d))(t)
		reads := func() bool {
			before := pdu.reads
			_, err := run.Read(t.Context())
			require.Equal(t, bmc.KindAuth, bmc.KindOf(err))
			return pdu.reads > before
		}
		pause := func() time.Duration {
			at, until, err := l.RefusedCheck(d)
			if err == nil {
				return 0
			}
			assert.False(t, at.After(time.Now()))
			return time.Until(until)
		}
		for _, want := range []time.Duration{5, 10, 20, 40, 60, 60} { // minutes
			l.Checked(d, refusing(bmc.KindAuth))
			require.Equal(t, want*time.Minute, pause())
			require.NoError(t, l.Refuses(bmc.Level{Devices: []bmc.Device{d}}))
			time.Sleep(want * time.Minute)
			require.Zero(t, pause())
		}
		l.Checked(d, refusing(bmc.KindAuth))
		assert.True(t, reads(), "a run asks, although the health check does not")
		assert.False(t, reads(), "and then not again")
		time.Sleep(AccountPause)
		assert.True(t, reads(), "before the health check")
		assert.Equal(t, time.Hour-AccountPause, pause())

		l.Checked(d, nil)
		assert.Zero(t, pause())
		assert.True(t, reads(), "the account was accepted")
		assert.Equal(t, AccountPause, pause(), "the health check does not try what a run was refused")
		assert.Zero(t, len(l.accounts.list(time.Now().Add(AccountPause))))
		time.Sleep(3 * time.Hour)
		l.Checked(d, refusing(bmc.KindAuth))
		assert.Equal(t, AccountPause, pause(), "it begins anew")
	})
}

// Two entries of one account with wrong passwords, or a password that is changed back and forth: each password has its own
// pauses, so the account is not asked more often for being refused with both. One that was not refused is asked at once, and
// what is remembered is limited.
func TestPasswordsOfOneAccountDoNotAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &LockOut{accounts: newAccounts(state.RefusedAccounts{}, time.Now())}
		pdu := &outlet{err: refusing(bmc.KindAuth)}
		open := l.Guard(func(bmc.Device) (bmc.Power, error) { return pdu, nil })
		one, other := outletOf("1", "fence", "wrong"), outletOf("2", "fence", "also wrong")
		for range 12 * 60 { // a probe of each, every five seconds for an hour
			for _, d := range []bmc.Device{one, other} {
				_, err := must.Do(open(d))(t).Read(t.Context())
				require.Equal(t, bmc.KindAuth, bmc.KindOf(err))
			}
			time.Sleep(5 * time.Second)
		}
		assert.LessOrEqual(t, pdu.reads, 2*int(time.Hour/AccountPause))

		checks := 0
		for range 24 * 60 { // a health check of each, every minute for a day
			for _, d := range []bmc.Device{one, other} {
				if _, _, err := l.RefusedCheck(d); err == nil {
					checks++
					l.Checked(d, refusing(bmc.KindAuth))
				}
			}
			time.Sleep(time.Minute)
		}
		assert.LessOrEqual(t, checks, 2*30)

		pdu.err = nil
		mended := outletOf("1", "fence", "right")
		must.Do(must.Do(open(mended))(t).Read(t.Context()))(t)
		l.Checked(mended, nil)
		_, _, err := l.RefusedCheck(other)
		require.Error(t, err, "it is as wrong as before")
		for i := range 3 * passwordsKept {
			l.Checked(outletOf("1", "fence", strconv.Itoa(i)), refusing(bmc.KindAuth))
		}
		assert.Len(t, l.accounts.list(time.Now()), passwordsKept)
	})
}

func newStore(t *testing.T) state.Store {
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// What a health check was refused outlives a restart, and so does how long the next pause is: a daemon that comes and goes
// asks no more often than one that runs. A clock that was set back does not extend a pause.
func TestRefusedHealthCheckOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		d, checks := outletOf("1", "fence", "wrong"), 0
		for range 24 * 60 { // a day, a start each minute
			l := must.Do(NewLockOut(t.Context(), store, "one"))(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx, func(err error) { assert.NoError(t, err) }) }()
			require.NoError(t, l.Refuses(bmc.Level{Devices: []bmc.Device{d}}), "no run is held")
			if _, _, err := l.RefusedCheck(d); err == nil {
				checks++
				l.Checked(d, refusing(bmc.KindAuth))
			}
			synctest.Wait()
			stop()
			require.NoError(t, <-ended)
			time.Sleep(time.Minute)
		}
		assert.Greater(t, checks, 20)
		assert.LessOrEqual(t, checks, 30)

		kept := must.Do(state.LoadRefusedAccounts(t.Context(), store, "one"))(t)
		require.Len(t, kept.Accounts, 1)
		kept.Accounts[0].CheckUntil = time.Now().Add(24 * time.Hour)
		l := &LockOut{accounts: newAccounts(kept, time.Now())}
		_, until, err := l.RefusedCheck(d)
		require.Equal(t, bmc.KindAuth, bmc.KindOf(err))
		assert.LessOrEqual(t, time.Until(until), checkPauseMax)
	})
}

// After a restart the passwords that were refused first are forgotten first, as before it.
func TestOldestPasswordIsForgottenFirstAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := newAccounts(state.RefusedAccounts{}, time.Now())
		with := func(i int) bmc.Device { return outletOf("1", "fence", "wrong "+strconv.Itoa(i)) }
		for i := range passwordsKept {
			before.record(with(i), refusing(bmc.KindAuth), true, false)
			time.Sleep(time.Second)
		}
		after := newAccounts(state.RefusedAccounts{Accounts: before.list(time.Now())}, time.Now())
		refuses := func(i int) bool {
			return indexOf(after.refused[account{service: with(i).Service(), user: "fence"}], account{service: with(i).Service(), user: "fence"}, with(i).Password) >= 0
		}
		another := passwordsKept
		for refuses(another) { // one in 256 has the mark of each
			another++
		}
		after.record(with(another), refusing(bmc.KindAuth), true, false)
		assert.True(t, refuses(passwordsKept-1), "the newest before the restart")
		kept := after.refused[account{service: with(0).Service(), user: "fence"}]
		assert.Len(t, kept, passwordsKept)
		assert.True(t, slices.IsSortedFunc(kept, func(x, y refusedAccount) int { return x.at.Compare(y.at) }))
	})
}

// When many devices refuse their accounts at once, what health checks were refused is stored in few writes and in a record of
// limited size, and what holds runs is in it.
func TestManyRefusedAccountsAreStoredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		l := must.Do(NewLockOut(t.Context(), store, "one"))(t)
		saves := 0
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx, func(error) { saves++ }) }()
		for i := range 2 * accountsStored {
			d := outletOf("1", "fence", "wrong")
			d.Endpoint.Host = "192.0.2.1" + strconv.Itoa(i)
			l.Checked(d, refusing(bmc.KindAuth))
			time.Sleep(10 * time.Millisecond)
		}
		held := outletOf("1", "fence", "wrong")
		_, err := must.Do(l.Guard(func(bmc.Device) (bmc.Power, error) { return &outlet{err: refusing(bmc.KindAuth)}, nil })(held))(t).Read(t.Context())
		require.Error(t, err)
		synctest.Wait() // this one does not wait
		stop()
		require.NoError(t, <-ended)
		assert.LessOrEqual(t, saves, 5)
		kept := must.Do(state.LoadRefusedAccounts(t.Context(), store, "one"))(t)
		assert.Len(t, kept.Accounts, accountsStored)
		again := must.Do(NewLockOut(t.Context(), store, "one"))(t)
		assert.Error(t, again.Refuses(bmc.Level{Devices: []bmc.Device{held}}))
	})
}

// Many hosts of one chassis are asked at once, with a password that is wrong by now. The first refusal holds back all that still wait
// for their turn there, also where a login is refused after whoever wanted it has given up: together they would lock the account.
func TestOneRefusalStopsAllThatWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, right := newYard(), bmc.NewSecret("new")
		y.read = func(_ context.Context, d bmc.Device) (bmc.Reading, error) { // it does not end with its ctx
			time.Sleep(time.Second)
			if !d.Password.Equal(right) {
				return bmc.Reading{}, refusing(bmc.KindAuth)
			}
			return bmc.Reading{State: bmc.On, At: time.Now()}, nil
		}
		open := newAccounts(state.RefusedAccounts{}, time.Now()).Guard(NewActors(y.open).Urgent())
		var devices []bmc.Device
		for i := range 8 {
			d := deviceAt("chassis")
			d.Endpoint.System, d.Username, d.Password = "/redfish/v1/Systems/"+strconv.Itoa(i), "fence", bmc.NewSecret("old")
			devices = append(devices, d)
		}
		readAll := func(limit time.Duration) (logins int, kinds []bmc.Kind) {
			y.mu.Lock()
			before := len(y.log)
			y.mu.Unlock()
			var reads sync.WaitGroup
			kinds = make([]bmc.Kind, len(devices))
			for i, d := range devices {
				p := opened(t, open, d)
				reads.Go(func() {
					_, err := p.Read(within(t, limit))
					kinds[i] = bmc.KindOf(err)
				})
			}
			reads.Wait()
			time.Sleep(time.Minute)
			y.mu.Lock()
			defer y.mu.Unlock()
			for _, did := range y.log[before:] {
				if strings.HasPrefix(did, "read ") {
					logins++
				}
			}
			return logins, kinds
		}
		logins, kinds := readAll(time.Minute)
		assert.Equal(t, 1, logins)
		assert.Equal(t, slices.Repeat([]bmc.Kind{bmc.KindAuth}, len(devices)), kinds)
		time.Sleep(AccountPause)
		logins, _ = readAll(time.Minute)
		assert.Equal(t, 1, logins, "one more try when the pause is over")
		time.Sleep(AccountPause)
		logins, kinds = readAll(100 * time.Millisecond)
		assert.Equal(t, 1, logins)
		assert.NotContains(t, kinds, bmc.KindAuth, "nobody waited for the answer")
		logins, _ = readAll(time.Minute)
		assert.Zero(t, logins, "it was remembered all the same")
		for i := range devices {
			devices[i].Password = right
		}
		logins, kinds = readAll(time.Minute)
		assert.Equal(t, len(devices), logins)
		assert.NotContains(t, kinds, bmc.KindAuth)
	})
}

// A right that an account lacks at one outlet says nothing about the others, also for health checks.
func TestRightThatIsLackingHoldsNoOtherOutlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &LockOut{accounts: newAccounts(state.RefusedAccounts{}, time.Now())}
		one, other := outletOf("1", "fence", "old"), outletOf("2", "fence", "old")
		l.Checked(one, refusing(bmc.KindPrivilege))
		_, _, err := l.RefusedCheck(other)
		require.NoError(t, err)
		_, _, err = l.RefusedCheck(one)
		assert.Equal(t, bmc.KindPrivilege, bmc.KindOf(err))
		l.Checked(one, nil)
		_, _, err = l.RefusedCheck(one)
		assert.NoError(t, err)
	})
}
