package lead

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

const (
	// actMargin is how much of a claim must be left when an action begins: nobody knows whether
	// an action that is cut off was carried out. // I19
	actMargin  = time.Second
	claimRetry = time.Second // after the records of a claimed cluster could not be read
)

// Cluster is what a Lead needs from the cluster that it leads.
type Cluster interface {
	// Load reads what the store has about the cluster. From then on, until EndLeadership, this instance's
	// own memory of the runs is the newest. After an error nothing has begun. // I20
	Load(ctx context.Context, s state.Store) error
	// Resume continues the open runs, each in the leadership.
	Resume()
	// Release ends the use of BMCs other than by runs.
	Release()
	// EndLeadership is called when the leadership is over and everything in it has stopped.
	EndLeadership()
	// MayAct reports whether this instance may do anything to the cluster. If it only observes
	// the cluster, it leaves the Lease to an installation that acts.
	MayAct() bool
	// SlotMismatches compares the cluster's runs in flight with the runs that have slots. lacking
	// need a slot, and needless need none any more. // I11
	SlotMismatches(taken map[string]bool) (lacking, needless []string)
	// Wake asks for a decision.
	Wake()
}

// Options is what the Lead of one cluster is made from.
type Options struct {
	Name              string // of the cluster
	Instance, StoreID string // name this instance and its store to other installations
	Cluster           Cluster
	Owners            state.Owners
	Store             state.Store
	Slots             *Slots
	Announcer         Announcer
	Awake             func() suspend.Awake
	Emit              func(event.Event)
}

// Lead is this instance's right to act on one cluster.
type Lead struct {
	opt          Options
	leaseWanted  chan struct{}              // this instance may act by now, so it needs the Lease
	current      atomic.Pointer[Leadership] // nil while this instance does not own the cluster
	ownerUnknown bool                       // reported already; only ReportOwnerless uses it
}

// New returns the Lead of one cluster. It does not lead until Serve is called.
func New(opt Options) *Lead { return &Lead{opt: opt, leaseWanted: make(chan struct{}, 1)} }

// Serve leads the cluster until the claim ends. Each time this host was suspended, it begins a new
// leadership.
func (l *Lead) Serve(ctx context.Context, claim state.Claim) {
	for ctx.Err() == nil {
		l.lead(ctx, claim)
	}
}

// lead is one leadership. What a former one had in memory does not count: another instance may
// have acted since. // I19
func (l *Lead) lead(ctx context.Context, claim state.Claim) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if until := claim.Until(); !until.IsZero() && !time.Now().Before(until) { // the claim is about to end
		<-ctx.Done()
		return
	}
	t := l.begin(ctx, claim)
	if t == nil {
		return
	}
	suspended := t.awake.Wait(ctx)
	stop()
	l.opt.Cluster.Release()
	t.end()
	l.current.Store(nil)
	l.opt.Cluster.EndLeadership()
	l.opt.Cluster.Release() // what has begun since
	if suspended != "" {
		l.emit(event.OwnerChanged, "", suspended+": the state is read again")
	} else {
		l.emit(event.OwnerChanged, "", "releases ownership of the cluster"+epochText(claim))
	}
	l.opt.Cluster.Wake()
}

// begin reads what the store has about the cluster, and begins a leadership. It returns nil if the
// claim ended first.
func (l *Lead) begin(ctx context.Context, claim state.Claim) *Leadership {
	var t *Leadership
	var failing event.Told[bool]
	for {
		t = newLeadership(ctx, claim, l.opt.Awake())
		err := l.opt.Cluster.Load(ctx, claim.Store)
		if err == nil {
			break
		}
		if failing.News(true) && ctx.Err() == nil {
			l.emit(event.Failed, "", "take the cluster over; it is tried again until it succeeds: "+err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(claimRetry):
		}
	}
	l.current.Store(t)
	t.Go(func(ctx context.Context) { l.runLease(ctx, t) })
	t.Go(func(ctx context.Context) { l.runSlots(ctx, t) })
	l.opt.Cluster.Resume()
	l.emit(event.OwnerChanged, "", "owns the cluster"+epochText(claim))
	l.opt.Cluster.Wake()
	return t
}

// epochText names the epoch of a claim. It is "" if there can be only one epoch.
func epochText(claim state.Claim) string {
	if claim.Until().IsZero() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d", claim.Epoch)
}

func (l *Lead) emit(typ string, code reason.Code, message string) {
	l.opt.Emit(event.Event{Type: typ, Cluster: l.opt.Name, Reason: code, Message: message})
}

// Leads reports whether this instance owns the cluster, as far as it knows.
func (l *Lead) Leads() bool { return l.current.Load() != nil }

// Shared reports whether this instance owns a cluster that another instance could own as well.
func (l *Lead) Shared() bool {
	t := l.current.Load()
	return t != nil && !t.claim.Until().IsZero()
}

// Enter keeps the leadership from ending until the caller calls Leave. It returns nil if there is
// none. What was decided in one leadership is not done in a later one. // I19
func (l *Lead) Enter() *Leadership {
	if t := l.current.Load(); t != nil && t.enter() {
		return t
	}
	return nil
}

// Spawn runs f in a goroutine, in the leadership. It returns false if there is none.
func (l *Lead) Spawn(f func(context.Context)) bool {
	t := l.current.Load()
	return t != nil && t.Spawn(f)
}

// Bound returns a context for an action that begins now. The context ends as soon as this instance
// may no longer act. why says why the action must not begin; "" if it may. The caller runs in the
// leadership. // I19, I22
func (l *Lead) Bound(ctx context.Context, destructive bool) (bounded context.Context, cancel context.CancelFunc, why string) {
	t := l.current.Load()
	if t == nil {
		return nil, nil, l.WhyNot()
	}
	now := time.Now()
	by, why := t.until(destructive, now)
	switch {
	case why != "":
		return nil, nil, why
	case !by.IsZero() && by.Sub(now) < actMargin:
		return nil, nil, "the claim to the cluster runs out"
	}
	bounded, cancel = t.bound(ctx, destructive, by)
	return bounded, cancel, ""
}

// Store is the store for records about the cluster. It can be written only in a leadership, and
// only while the epoch of that is the newest. // I19
func (l *Lead) Store() state.Store {
	if t := l.current.Load(); t != nil {
		return t.claim.Store
	}
	return standby{l.opt.Store}
}

// standby is the store of a cluster that another instance owns. It can only be read.
type standby struct{ state.Store }

// Put implements state.Store.
func (standby) Put(context.Context, state.Record) (uint64, error) { return 0, state.ErrNotOwner }

// Delete implements state.Store.
func (standby) Delete(context.Context, state.Kind, string, uint64) error { return state.ErrNotOwner }

// WhyNot returns why this instance does not own the cluster. It is "" if it does.
func (l *Lead) WhyNot() string {
	if l.Leads() {
		return ""
	}
	o := l.opt.Owners.Owner(l.opt.Name)
	why := fmt.Sprintf("instance %s owns the cluster (epoch %d)", o.Instance, o.Epoch)
	switch {
	case o.Epoch == 0:
		why = "no instance owns the cluster now"
	case o.Instance == l.opt.Instance:
		why = "this instance is about to own the cluster, or to give it up"
	}
	if o.Problem != "" {
		why += ", as far as this instance knows: " + o.Problem
	}
	return why
}

// Refuse refuses an order that only the owner of the cluster can carry out. It returns nil for the
// owner.
func (l *Lead) Refuse() error {
	why := l.WhyNot()
	if why == "" {
		return nil
	}
	if o := l.opt.Owners.Owner(l.opt.Name); o.Epoch != 0 && o.Instance != l.opt.Instance {
		why += "; orders are given there"
	}
	return &reason.Refusal{Reason: reason.NotOwner, Message: why}
}

// WhyNotAct returns why this instance must not begin anything in the cluster. It is "" if it may.
func (l *Lead) WhyNotAct(now time.Time) string {
	answer, why := l.Contested(now)
	if answer == remediate.CannotTell && l.Leads() && !l.opt.Cluster.MayAct() {
		return "" // it takes the Lease when it may act; until then another gate forbids it
	}
	return why
}

// HeldBy returns which other installation holds the cluster's Lease, "" if none is known to.
func (l *Lead) HeldBy() string {
	if t := l.current.Load(); t != nil {
		return t.lease.holder()
	}
	return ""
}

// Contested answers whether another installation acts on the cluster, and which.
func (l *Lead) Contested(now time.Time) (remediate.Answer, string) {
	t := l.current.Load()
	if t == nil {
		return remediate.CannotTell, l.WhyNot()
	}
	_, answer, why := t.lease.known(now)
	return answer, why
}

// ReportOwnerless reports once that this instance cannot read from the store who owns the cluster,
// or cannot become the owner. Only one goroutine may call it.
func (l *Lead) ReportOwnerless() {
	switch why := l.opt.Owners.Owner(l.opt.Name).Problem; {
	case why == "":
		l.ownerUnknown = false
	case !l.ownerUnknown && !l.Leads():
		l.ownerUnknown = true
		l.emit(event.Failed, "", "know who owns the cluster, or take it: "+why)
	}
}

// StepAside makes this instance leave the cluster to the others, or no longer. It returns false if the
// store has no other users.
func (l *Lead) StepAside(aside bool) (shared bool) { return l.opt.Owners.StepAside(l.opt.Name, aside) }

// Next says who owns the cluster if this instance leaves it to the others.
func (l *Lead) Next() string {
	o := l.opt.Owners.Owner(l.opt.Name)
	switch {
	case o.Epoch != 0 && o.Instance != l.opt.Instance:
		return fmt.Sprintf("instance %s owns the cluster", o.Instance)
	case o.Standby != "" && o.Standby != l.opt.Instance:
		return fmt.Sprintf("instance %s stands by and takes the cluster over", o.Standby)
	}
	return "no other instance stands by; start one on another host"
}

// Leadership is the time in which this instance owns a cluster. Everything that acts on the cluster
// runs in a leadership, and has stopped when it is over.
type Leadership struct {
	claim        state.Claim
	awake        suspend.Awake // a leadership ends with a suspend of this host
	lease        leaseStatus
	slots        slotQueue
	compareSlots chan struct{}   // runs may have begun or ended
	lost         <-chan struct{} // closed when the claim is lost, or is to be released
	ctx          context.Context

	mu     sync.Mutex
	over   bool
	inside sync.WaitGroup
}

func newLeadership(ctx context.Context, claim state.Claim, awake suspend.Awake) *Leadership {
	return &Leadership{claim: claim, awake: awake, compareSlots: make(chan struct{}, 1), lost: ctx.Done(), ctx: ctx}
}

// Spawn runs f in a goroutine, in the leadership. It returns false if that is over.
func (t *Leadership) Spawn(f func(context.Context)) bool {
	if !t.enter() {
		return false
	}
	defer t.Leave()
	t.Go(f)
	return true
}

// Go is Spawn for a caller that runs in the leadership, so that it cannot be over.
func (t *Leadership) Go(f func(context.Context)) { t.inside.Go(func() { f(t.ctx) }) }

// enter keeps the leadership from ending until the caller calls Leave. It returns false if the
// leadership is over.
func (t *Leadership) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.inside.Add(1)
	}
	return !t.over
}

// Leave lets the leadership end again. Call it once for each Enter.
func (t *Leadership) Leave() { t.inside.Done() }

// end lets nothing more begin in the leadership, and waits until everything in it has stopped.
func (t *Leadership) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.inside.Wait()
}

// until returns when this instance must stop acting, as far as is known now: when its claim ends
// and, for a destructive action, when another installation may begin to act. by is zero if there is
// no such end. why says why this instance must not act at all; "" if it may.
func (t *Leadership) until(destructive bool, now time.Time) (by time.Time, why string) {
	if why := t.awake.Over(); why != "" {
		return time.Time{}, why
	}
	by = t.claim.Until()
	if !destructive {
		return by, ""
	}
	announced, _, why := t.lease.known(now)
	if by.IsZero() || !announced.IsZero() && announced.Before(by) {
		by = announced
	}
	return by, why
}

// ending reports whether the claim is lost, or is to be released.
func (t *Leadership) ending() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// boundCheck is how often an action in progress is checked. A claim is renewed less often.
const boundCheck = time.Second

// bound returns a context that ends with the claim and with the cluster's Lease. Both are renewed
// while the action is in progress, so the end moves: an agent may take longer than what is left of
// them at any moment. If one is not renewed, the context ends at the last known end. If one is lost
// earlier, the context ends at once. bmc.Over also knows the last known end, and a suspend, before anything has noticed it. The caller runs
// in the leadership. // I19, I22
func (t *Leadership) bound(ctx context.Context, destructive bool, by time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if by.IsZero() {
		return ctx, cancel
	}
	var end atomic.Pointer[time.Time]
	first := by
	end.Store(&first)
	t.Go(func(context.Context) {
		defer cancel()
		for now := time.Now(); now.Before(by); now = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(boundCheck, by.Sub(now))):
			}
			if t.awake.Over() != "" {
				return
			}
			if t.ending() { // a renewal from now on is not this instance's
				continue
			}
			next, why := t.until(destructive, time.Now())
			if why != "" {
				return
			}
			by = next
			end.Store(&next)
		}
	})
	return bmc.Until(ctx, func() time.Time {
		if t.awake.Over() != "" { // no clock of ctx has run meanwhile
			return time.Time{}
		}
		return *end.Load()
	}), cancel
}
