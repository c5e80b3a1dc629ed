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
	if w.plan.Medik8s {
		w.tickMedik8s(now)
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

// nodeHealthCheck is medik8s as the holder of a Lease on a Node.
const nodeHealthCheck = "NodeHealthCheck-workers"

// tickMedik8s lets a stand-in for medik8s take the Lease on a Node that nobody holds,
// and give it back after a while.
func (w *World) tickMedik8s(now time.Time) {
	locks := w.api.NodeLocks
	for node, l := range locks {
		if l.Holder == nodeHealthCheck && (now.After(w.medik8sTo) || w.calm) {
			delete(locks, node)
		}
	}
	if w.calm || !w.chance(w.plan.Outages*4) {
		return
	}
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if l, held := locks[h.Name]; w.api.Nodes[h.Name] == nil || held && !l.Expired() {
		return
	}
	locks[h.Name] = fake.NodeLock{Holder: nodeHealthCheck, Renewed: now}
	w.medik8sTo = now.Add(between(w.rng, 20*time.Second, 4*time.Minute))
	w.fault("medik8s", h.Name, "has the Node until %s", w.medik8sTo.Sub(w.began).Round(time.Second))
}
