package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// Announce implements engine.Kube.
func (k kube) Announce(ctx context.Context, a lead.Announcement) (binds time.Duration, foreign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.request(ctx, "announce"); err != nil {
		return 0, "", err
	}
	w := k.inc.i.w
	w.do(func() { binds, foreign = w.api.Announce(k.inc, a) })
	return binds, foreign, k.answer(ctx, "announce")
}

// tickStrangers lets other remediators, and another installation of fenced, hold
// their Leases for a while.
func (w *World) tickStrangers(now time.Time) {
	a := w.api
	if now.Before(w.visitTo) && (a.Fenced.By == nil || time.Since(a.Fenced.Renewed) > fake.LeaseDuration) {
		a.Fenced = fake.FencedLease{Held: lead.Announcement{Instance: "stranger", StoreID: "another"}, Renewed: now}
	}
	if now.After(w.rivalTo) {
		a.Contested, a.Contender = remediate.No, ""
	}
	if w.calm {
		return
	}
	if w.chance(w.plan.Outages / 2) {
		a.Contested, a.Contender = remediate.Yes, "another remediator"
		w.rivalTo = now.Add(between(w.rng, 20*time.Second, 4*time.Minute))
		w.fault("rival", "", "until %s", w.rivalTo.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages / 4) {
		w.visitTo = now.Add(between(w.rng, time.Minute, 4*time.Minute))
		w.fault("second-installation", "", "until %s", w.visitTo.Sub(w.began).Round(time.Second))
	}
}
