package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/engine"
)

// fencedLease is the Lease that says who fences in the cluster. Guarded by the
// world's mutex.
type fencedLease struct {
	version uint64
	held    engine.Announcement
	by      *incarnation // nil: another installation
	renewed time.Time
}

const leaseDuration = 15 * time.Second

// Announce implements engine.Kube. A holder of another store is given way while its
// Lease has not stood still for its duration.
func (k kube) Announce(ctx context.Context, a engine.Announcement) (binds time.Duration, foreign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "announce"); err != nil {
		return 0, "", err
	}
	w := k.inc.i.w
	w.do(func() {
		l := &w.api.fenced
		expired := time.Since(l.renewed) > leaseDuration
		switch {
		case l.held.Instance == "", l.by == k.inc, expired, l.held.StoreID == a.StoreID && l.held.Epoch < a.Epoch,
			l.held.StoreID == a.StoreID && l.held.Instance == a.Instance:
			*l, binds = fencedLease{w.api.next(), a, k.inc, time.Now()}, leaseDuration
		default:
			foreign = l.held.Instance + " of store " + l.held.StoreID
		}
	})
	return binds, foreign, k.answer(ctx, "announce")
}

// tickStrangers lets other remediators, and another installation of fenced, hold
// their Leases for a while.
func (a *apiServer) tickStrangers(now time.Time) {
	w := a.w
	if now.Before(a.visitTo) && time.Since(a.fenced.renewed) > leaseDuration || a.fenced.by == nil && now.Before(a.visitTo) {
		a.fenced = fencedLease{a.next(), engine.Announcement{Instance: "stranger", StoreID: "another"}, nil, now}
	}
	if now.After(a.rivalTo) {
		a.rival = ""
	}
	if w.calm {
		return
	}
	if w.chance(w.plan.Outages / 2) {
		a.rival, a.rivalTo = "another remediator", now.Add(between(w.rng, 20*time.Second, 4*time.Minute))
		w.fault("rival", "", "until %s", a.rivalTo.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages / 4) {
		a.visitTo = now.Add(between(w.rng, time.Minute, 4*time.Minute))
		w.fault("second-installation", "", "until %s", a.visitTo.Sub(w.began).Round(time.Second))
	}
}
