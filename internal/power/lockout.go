package power

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
)

// LockOut keeps fenced from locking accounts and from asking again and again what does not
// answer. A device that refused its account to a run or a probe is left in peace for a while, by whoever asks,
// also over a restart. Health checks of such a device come ever more rarely, and hold no run back. So do probes of a level
// where a wrong password looks like a dead device.
type LockOut struct {
	*accounts
	probeBackoff
	store state.Store
}

// NewLockOut loads which accounts were refused before this process began. An error means
// that the store could not be asked.
func NewLockOut(ctx context.Context, s state.Store, instance string) (*LockOut, error) {
	kept, err := state.LoadRefusedAccounts(ctx, s, instance)
	if err != nil {
		return nil, err
	}
	return &LockOut{accounts: newAccounts(kept, time.Now()), probeBackoff: probeBackoff{failing: map[string]failing{}}, store: s}, nil
}

// RefusedLately reports whether a device of a host has refused its account, also where it may be asked again: another password may be stored by now.
func (l *LockOut) RefusedLately(h bmc.Host) bool {
	return slices.ContainsFunc(h.Levels, func(level bmc.Level) bool {
		return slices.ContainsFunc(level.Devices, func(d bmc.Device) bool {
			return l.accounts.refusal(d, func(r refusedAccount) time.Time { return r.at.Add(accountKept) }).err != nil
		})
	})
}

// BackingOff returns the error for which a level is not to be probed yet, or nil.
func (l *LockOut) BackingOff(level bmc.Level) error {
	if err := l.Refuses(level); err != nil {
		return err
	}
	p := &l.probeBackoff
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.failing[levelKey(level)]; ok && time.Now().Before(f.Next) {
		return f.err
	}
	return nil
}

// RefusedCheck returns the error with which a device that a health check may not ask yet refused its account, when it did,
// and when a health check may ask; a nil error: now.
func (l *LockOut) RefusedCheck(d bmc.Device) (at, until time.Time, err error) {
	r := l.accounts.refusal(d, refusedAccount.checkUntil)
	return r.at, r.checkUntil(), r.err
}

// Checked records how a health check of a device went; nil means that it accepted its account.
func (l *LockOut) Checked(d bmc.Device, err error) {
	if err == nil {
		l.accounts.accepted(d)
		return
	}
	l.accounts.record(d, err, true, true)
}

// ForgetAccounts lets the devices of a host be asked whose account was refused: a person
// may have mended it.
func (l *LockOut) ForgetAccounts(h bmc.Host) { l.accounts.forget(h) }

// Forget is ForgetAccounts, and lets the levels of a host be probed at once.
func (l *LockOut) Forget(h bmc.Host) {
	l.accounts.forget(h)
	l.probeBackoff.forget(h)
}

// accounts remembers which devices refused their account, whoever
// asked: BMCs lock an account that is tried again and again. Another password
// is tried at once, and has pauses of its own: entries of one account with different
// passwords do not make each other forget what was refused.
type accounts struct {
	news    chan struct{}         // something is to be stored
	checked chan struct{}         // the same, because of health checks
	kept    state.RefusedAccounts // as they were stored at the start

	mu      sync.Mutex
	refused map[account][]refusedAccount // by password, the oldest refusal first
}

func newAccounts(kept state.RefusedAccounts, now time.Time) *accounts {
	a := &accounts{news: make(chan struct{}, 1), checked: make(chan struct{}, 1), kept: kept, refused: map[account][]refusedAccount{}}
	a.load(kept.Accounts, now)
	return a
}

// account is a login, which all outlets of a PDU share; or, with part, what that
// login may do to one of them.
type account struct{ service, part, user string }

// refusedAccount is the newest refusal of an account with one password. A run does not wait for as long as a health check, and
// not because a health check was refused: its host may be off. It tries so rarely that both together lock no account.
type refusedAccount struct {
	password bmc.Secret
	salt     string
	mark     string // in place of the password after a restart
	err      error
	at       time.Time
	reading  bool          // of a reading: that of a command says nothing about what the account may read
	until    time.Time     // nobody asks before
	check    times.Backoff // no health check asks before
}

// heldUntil is when a run or a probe may ask.
func (r refusedAccount) heldUntil() time.Time { return r.until }

// checkUntil is when a health check may ask.
func (r refusedAccount) checkUntil() time.Time { return times.Later(r.until, r.check.Next) }

const (
	checkPauseMax = time.Hour         // the longest pause between two health checks of an account that is refused
	accountKept   = 2 * checkPauseMax // for how long it is known that one was
	passwordsKept = 8                 // of one account
)

// record keeps a refusal of a device, of a reading or something else, of a health check or of whoever else asks. Other errors say nothing
// about the account.
func (a *accounts) record(d bmc.Device, err error, reading, check bool) {
	at := account{service: d.Service(), user: d.Username}
	switch bmc.KindOf(err) {
	case bmc.KindAuth:
	case bmc.KindPrivilege:
		at.part = d.Key()
	default:
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.dropOld(now)
	r := refusedAccount{password: d.Password, salt: rand.Text(), err: err, at: now, reading: reading}
	list := a.refused[at]
	if i := indexOf(list, at, d.Password); i >= 0 {
		r.until, r.check = list[i].until, list[i].check
		list = slices.Delete(list, i, i+1)
	}
	list = append(list, r)
	if newest := &list[len(list)-1]; check {
		newest.check = r.check.After(now, AccountPause, checkPauseMax)
		live.Signal(a.checked)
	} else {
		newest.until = now.Add(AccountPause)
		live.Signal(a.news)
	}
	a.refused[at] = list[max(0, len(list)-passwordsKept):]
}

// dropOld forgets what was refused long ago. a.mu is held.
func (a *accounts) dropOld(now time.Time) {
	for at, list := range a.refused {
		list = slices.DeleteFunc(list, func(r refusedAccount) bool { return now.Sub(r.at) > accountKept })
		if a.refused[at] = list; len(list) == 0 {
			delete(a.refused, at)
		}
	}
}

// indexOf finds the refusal of a password; -1 if it was not refused.
func indexOf(list []refusedAccount, at account, password bmc.Secret) int {
	return slices.IndexFunc(list, func(r refusedAccount) bool { return r.same(at, password) })
}

// refusal returns the refusal that keeps a device from being asked, by when it ends; the zero value if none does.
func (a *accounts) refusal(d bmc.Device, ends func(refusedAccount) time.Time) refusedAccount {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, part := range []string{"", d.Key()} {
		at := account{service: d.Service(), part: part, user: d.Username}
		list := a.refused[at]
		if i := indexOf(list, at, d.Password); i >= 0 && now.Before(ends(list[i])) {
			return list[i]
		}
	}
	return refusedAccount{}
}

// Refuses returns the error with which a device of a level refused its account a short while
// ago, or nil. To ask it again could lock the account. One device that a run or a probe may not ask yet stops the level.
func (a *accounts) Refuses(l bmc.Level) error {
	for _, d := range l.Devices {
		if r := a.refusal(d, refusedAccount.heldUntil); r.err != nil {
			return r.err
		}
	}
	return nil
}

// accepted ends the refusal of an account that a health check could use. That it may read says nothing about the right that
// a command lacked, which therefore keeps only runs back.
func (a *accounts) accepted(d bmc.Device) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := account{service: d.Service(), user: d.Username}
	if i := indexOf(a.refused[at], at, d.Password); i >= 0 {
		a.refused[at] = slices.Delete(a.refused[at], i, i+1)
		live.Signal(a.checked)
	}
	at.part = d.Key()
	if i := indexOf(a.refused[at], at, d.Password); i >= 0 {
		a.refused[at][i].check, a.refused[at][i].reading = times.Backoff{}, false
		live.Signal(a.checked)
	}
}

// forget lets the devices of a host be asked: a person may have mended the account.
func (a *accounts) forget(h bmc.Host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.refused)
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			maps.DeleteFunc(a.refused, func(each account, _ []refusedAccount) bool { return each.service == d.Service() })
		}
	}
	if len(a.refused) != before {
		live.Signal(a.news)
	}
}

// Guard makes every device that is opened remember refusals, and refuse while they last.
func (a *accounts) Guard(open bmc.Opener) bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) {
		p, err := open(d)
		if err != nil {
			return nil, err
		}
		return guarded{Power: p, device: d, a: a}, nil
	}
}

// guarded is a device that is not asked while its account is refused.
type guarded struct {
	bmc.Power
	device bmc.Device
	a      *accounts
	// onlyReads: it is read although its account lacks the right to a command.
	onlyReads bool
}

// toRead opens devices that are only read, to find one that reads On. An account that may not switch may still read. // I1, I26
func toRead(open bmc.Opener) bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) {
		p, err := open(d)
		if g, is := p.(guarded); is {
			g.onlyReads = true
			return g, err
		}
		return p, err
	}
}

// Read implements bmc.Power.
func (g guarded) Read(ctx context.Context) (bmc.Reading, error) {
	return ifAllowed(ctx, g, true, g.Power.Read)
}

// Send implements bmc.Power.
func (g guarded) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	return ifAllowed(ctx, g, false, func(ctx context.Context) (bmc.Receipt, error) { return g.Power.Send(ctx, c) })
}

// Describe implements bmc.Describer. A device that cannot be described reports nothing.
func (g guarded) Describe(ctx context.Context) (bmc.Description, error) {
	describer, ok := g.Power.(bmc.Describer)
	if !ok {
		return bmc.Description{}, nil
	}
	return ifAllowed(ctx, g, false, describer.Describe)
}

// ifAllowed asks a device whose account is not refused, and records the answer. Actors do both once more in the turn of the operation:
// many that wait for one BMC had all asked whether they may before the first of them was refused, and would lock the account together.
func ifAllowed[T any](ctx context.Context, g guarded, reading bool, ask func(context.Context) (T, error)) (T, error) {
	if err := g.refused(reading); err != nil {
		var none T
		return none, err
	}
	t := &turn{refused: func() error { return g.refused(reading) }, answered: func(err error) { g.a.record(g.device, err, reading, false) }}
	answer, err := ask(context.WithValue(ctx, turnKey{}, t))
	if !t.began.Load() {
		t.answered(err)
	}
	return answer, err
}

// refused is why the device is not asked now, nil if it may be.
func (g guarded) refused(reading bool) error {
	r := g.a.refusal(g.device, refusedAccount.heldUntil)
	if g.onlyReads && reading && !r.reading && bmc.KindOf(r.err) == bmc.KindPrivilege {
		return nil
	}
	return r.err
}

type turnKey struct{}

// turn is what an operation of a guarded device does in its turn at the service: it asks once more whether it may, and records what was
// answered before the next one begins, also if nobody waits for the answer any more.
type turn struct {
	refused  func() error
	answered func(error)
	began    atomic.Bool
}

// take runs do in the turn of the operation that ctx is of, unless the account was refused meanwhile. Without a guard it only runs do.
func take[T any](ctx context.Context, do func() (T, error)) (T, error) {
	t, guarded := ctx.Value(turnKey{}).(*turn)
	if !guarded {
		return do()
	}
	t.began.Store(true)
	if err := t.refused(); err != nil {
		var none T
		return none, err
	}
	answer, err := do()
	t.answered(err)
	return answer, err
}

var errRefusedBefore = errors.New("the account was refused a short while ago, before fenced was restarted")

// stored returns what is stored of a refusal, also of a health check: else a daemon that comes and
// goes would try a wrong password at each start, and lock the account.
func stored(at account, r refusedAccount) state.RefusedAccount {
	if r.mark == "" {
		r.mark = markOf(r.salt, at, r.password)
	}
	return state.RefusedAccount{Service: at.service, Part: at.part, User: at.user, Kind: string(bmc.KindOf(r.err)), Salt: r.salt, Mark: r.mark,
		Until: r.until.UTC(), CheckUntil: r.check.Next.UTC(), CheckPause: r.check.Pause()}
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
	return r.password.Equal(password)
}

// load restores what was stored.
func (a *accounts) load(list []state.RefusedAccount, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range list { // a clock may have been set back
		at := account{service: each.Service, part: each.Part, user: each.User}
		r := refusedAccount{
			salt: each.Salt, mark: each.Mark, until: times.Earlier(each.Until, now.Add(AccountPause)),
			err: &bmc.Error{Kind: bmc.Kind(each.Kind), Op: "log in", Addr: each.Service, Err: errRefusedBefore},
		}
		pause := min(each.CheckPause, checkPauseMax)
		r.check = times.NewBackoff(times.Earlier(each.CheckUntil, now.Add(pause)), pause)
		r.at = times.Later(r.until.Add(-AccountPause), r.check.Next.Add(-pause))
		a.refused[at] = append(a.refused[at], r)
	}
	for _, refused := range a.refused { // the newest are stored first, and the first are forgotten first
		slices.SortStableFunc(refused, func(x, y refusedAccount) int { return x.at.Compare(y.at) })
	}
}

// accountsStored is how many refusals are stored: what a record may hold is limited.
const accountsStored = 1000

// list returns what is to be stored: first what keeps runs back, then the newest.
func (a *accounts) list(now time.Time) (list []state.RefusedAccount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, refused := range a.refused {
		for _, r := range refused {
			if now.Before(r.until) || r.check.Failing() && now.Sub(r.at) <= accountKept { // the next pause is longer
				list = append(list, stored(at, r))
			}
		}
	}
	slices.SortFunc(list, func(x, y state.RefusedAccount) int {
		return cmp.Or(y.Until.Compare(x.Until), y.CheckUntil.Compare(x.CheckUntil), strings.Compare(x.Salt, y.Salt))
	})
	return list[:min(len(list), accountsStored)]
}

// Run stores which accounts are refused, until ctx ends, and tries again after an error. It
// calls saved after each try.
func (l *LockOut) Run(ctx context.Context, saved func(error)) error {
	a, s := l.accounts, l.store
	kept, last := a.kept, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.news:
		case <-a.checked: // perhaps of many devices: all with one password
			select {
			case <-ctx.Done():
				return nil
			case <-a.news:
			case <-time.After(time.Until(last.Add(checksStored))):
			}
		}
		last = time.Now()
		kept.Accounts = a.list(time.Now())
		now, err := state.SaveRefusedAccounts(ctx, s, kept)
		if err == nil {
			kept = now
		} else if stood, unread := state.LoadRefusedAccounts(ctx, s, kept.Instance); unread == nil {
			kept.Version = stood.Version // only the answer was lost, perhaps
		}
		if ctx.Err() != nil {
			return nil
		}
		if saved(err); err == nil {
			continue
		}
		live.Signal(a.news)
		select {
		case <-ctx.Done():
		case <-time.After(storeRetry):
		}
	}
}

const (
	storeRetry   = time.Second      // the pause after the refused accounts could not be stored
	checksStored = 10 * time.Second // at most so often what health checks found is stored
)

const (
	// ProbeRetry is the pause after a probe that a gate refused.
	ProbeRetry = 30 * time.Second
	// FailedTwice: a level that does not answer is passed over for the next only
	// when it did not in two probes in a row.
	FailedTwice = 2

	backoffMost = 10 * time.Minute // between two probes of a power level that keeps failing
	backoffKept = time.Hour        // after that it is as if it had never failed
)

// probeBackoff spaces out the probes of power levels that keep failing where a wrong
// password looks like a dead device: ipmitool and most agents cannot tell. It is
// for probes; a run asks in its own time.
type probeBackoff struct {
	mu      sync.Mutex
	failing map[string]failing
}

// failing is a power level that did not answer.
type failing struct {
	times.Backoff
	inRow int
	err   error
}

// levelKey names a power level by what it switches.
func levelKey(l bmc.Level) string { return strings.Join(bmc.Host{Levels: []bmc.Level{l}}.Keys(), "\n") }

// Probed records how a probe of a level went; nil means that it answered. One that only had to make way for others
// says nothing about the level.
func (p *probeBackoff) Probed(l bmc.Level, err error) {
	if !slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return !d.IsNative() }) || errors.Is(err, ErrInUse) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), levelKey(l)
	maps.DeleteFunc(p.failing, func(_ string, f failing) bool { return now.Sub(f.Next) > backoffKept })
	if err == nil {
		delete(p.failing, key)
		return
	}
	f := p.failing[key]
	f.inRow, f.err, f.Next = f.inRow+1, err, now
	if f.inRow >= FailedTwice { // before that the next level is not tried
		f.Backoff = f.After(now, ProbeRetry, backoffMost)
	}
	p.failing[key] = f
}

// forget lets the levels of a host be probed at once.
func (p *probeBackoff) forget(h bmc.Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range h.Levels {
		delete(p.failing, levelKey(l))
	}
}
