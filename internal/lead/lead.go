package lead

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

const (
	// actMargin is what must be left of a claim when a command is begun: one that
	// is cut short may or may not have been carried out. // I19
	actMargin  = time.Second
	claimRetry = time.Second // after the records of a claimed cluster could not be read
)

// Cluster is what a Lead asks of the cluster that it leads, and tells it.
type Cluster interface {
	// Load takes in what the store has about the cluster: from then on, until End, this
	// instance's own memory of the runs is the newest. On an error nothing has begun. // I20
	Load(ctx context.Context, s state.Store) error
	// Resume goes on with the open runs, each in the leadership.
	Resume()
	// Release ends what holds on to a BMC beside the runs.
	Release()
	// End says that the leadership is over, and everything in it has stopped.
	End()
	// MayAct says whether there is anything that this instance could do to the cluster:
	// one that is only observed belongs to whoever acts on it.
	MayAct() bool
	// Unsettled compares the cluster's runs in flight with those that have slots. // I11
	Unsettled(taken map[string]bool) (lacking, needless []string)
	// Wake asks for a decision.
	Wake()
}

// Options is what the Lead of one cluster is made from.
type Options struct {
	Name              string // of the cluster
	Instance, StoreID string // tell other installations who acts here
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
	opt  Options
	stir chan struct{} // there may be a Lease to take where there was none
	now  atomic.Pointer[Leadership]
	told bool // why the owner is not known; for ReportOwnerless alone
}

// New makes the Lead of one cluster. It leads nothing until Guard is called.
func New(opt Options) *Lead { return &Lead{opt: opt, stir: make(chan struct{}, 1)} }

// Guard leads the cluster until its claim ends, in one leadership after the other where
// this host is suspended in between.
func (l *Lead) Guard(ctx context.Context, claim state.Claim) {
	for ctx.Err() == nil {
		l.lead(ctx, claim)
	}
}

// lead is one leadership. What was remembered of a former one does not count: another
// instance may have gone on since. // I19
func (l *Lead) lead(ctx context.Context, claim state.Claim) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if until := claim.Until(); !until.IsZero() && !time.Now().Before(until) { // it is about to end
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
	l.now.Store(nil)
	l.opt.Cluster.End()
	l.opt.Cluster.Release() // what has begun until then
	if suspended != "" {
		l.emit(event.OwnerChanged, "", suspended+": the state is read again")
	} else {
		l.emit(event.OwnerChanged, "", "gives the cluster up"+epochText(claim))
	}
	l.opt.Cluster.Wake()
}

// begin loads what the store has about the cluster and begins a leadership on that; nil
// when the claim ended before it could be done.
func (l *Lead) begin(ctx context.Context, claim state.Claim) *Leadership {
	told := false
	for {
		t, err := l.load(ctx, claim)
		if err == nil {
			return t
		}
		if !told && ctx.Err() == nil {
			told = true
			l.emit(event.Failed, "", "take the cluster over, which is tried again until it can be done: "+err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(claimRetry):
		}
	}
}

func (l *Lead) load(ctx context.Context, claim state.Claim) (*Leadership, error) {
	t := newLeadership(ctx, claim, l.opt.Awake())
	if err := l.opt.Cluster.Load(ctx, claim.Store); err != nil {
		return nil, err
	}
	l.now.Store(t)
	t.Spawn(func(ctx context.Context) { l.runLease(ctx, t) })
	t.Spawn(func(ctx context.Context) { l.runSlots(ctx, t) })
	l.opt.Cluster.Resume()
	l.emit(event.OwnerChanged, "", "guards the cluster"+epochText(claim))
	l.opt.Cluster.Wake()
	return t, nil
}

// epochText names the epoch of a claim, if there can be another one.
func epochText(claim state.Claim) string {
	if claim.Until().IsZero() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d", claim.Epoch)
}

func (l *Lead) emit(typ string, code reason.Code, message string) {
	l.opt.Emit(event.Event{Type: typ, Cluster: l.opt.Name, Reason: code, Message: message})
}

// Leads says whether this instance owns the cluster, as far as it knows.
func (l *Lead) Leads() bool { return l.now.Load() != nil }

// Shared says whether this instance owns a cluster that another one could own, too.
func (l *Lead) Shared() bool {
	t := l.now.Load()
	return t != nil && !t.claim.Until().IsZero()
}

// Enter keeps the leadership from ending until Leave is called; nil when there is none.
// What is decided in one leadership is not done in a later one. // I19
func (l *Lead) Enter() *Leadership {
	if t := l.now.Load(); t != nil && t.enter() {
		return t
	}
	return nil
}

// Spawn runs f while this instance owns the cluster; false when it does not.
func (l *Lead) Spawn(f func(context.Context)) bool {
	t := l.now.Load()
	return t != nil && t.Spawn(f)
}

// Bound ends an action that is begun now when this instance may act no longer, or says
// why the action must not be begun. The caller runs in the leadership. // I19, I22
func (l *Lead) Bound(ctx context.Context, destructive bool) (bounded context.Context, cancel context.CancelFunc, why string) {
	t := l.now.Load()
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

// Store is where what is known about the cluster is written: only in a leadership, and
// only while its epoch is the newest. // I19
func (l *Lead) Store() state.Store {
	if t := l.now.Load(); t != nil {
		return t.claim.Store
	}
	return standby{l.opt.Store}
}

// standby is the store of a cluster that another instance owns: it is only read.
type standby struct{ state.Store }

// Put implements state.Store.
func (standby) Put(context.Context, state.Record) (uint64, error) { return 0, state.ErrNotOwner }

// Delete implements state.Store.
func (standby) Delete(context.Context, state.Kind, string, uint64) error { return state.ErrNotOwner }

// WhyNot says why this instance may not act on the cluster; "" when it may, as far
// as the store knows.
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

// Refuse refuses an order that only the owner of the cluster can carry out; nil for the
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

// WhyNotAct says why this instance must not begin anything in the cluster; "" when it
// may.
func (l *Lead) WhyNotAct(now time.Time) string {
	t := l.now.Load()
	if t == nil {
		return l.WhyNot()
	}
	if !l.opt.Cluster.MayAct() {
		return "" // another gate forbids it
	}
	_, why := t.lease.contested(now)
	return why
}

// Contested says whether another installation acts on the cluster, and which.
func (l *Lead) Contested(now time.Time) (remediate.Answer, string) {
	if t := l.now.Load(); t != nil {
		return t.lease.contested(now)
	}
	return remediate.CannotTell, l.WhyNot()
}

// ReportOwnerless reports once that the store does not let this instance know whose the
// cluster is, or take it. It is for one goroutine.
func (l *Lead) ReportOwnerless() {
	switch why := l.opt.Owners.Owner(l.opt.Name).Problem; {
	case why == "":
		l.told = false
	case !l.told && !l.Leads():
		l.told = true
		l.emit(event.Failed, "", "know who owns the cluster, or take it: "+why)
	}
}
