package k8swatch

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Lease that says who fences in a cluster. Two installations that do not share a
// store know nothing else of each other.
const (
	ownLeaseNamespace  = "kube-system"
	ownLease           = "fenced"
	storeAnnotation    = "fenced.io/store-id"
	epochAnnotation    = "fenced.io/epoch"
	processAnnotation  = "fenced.io/process"
	ownLeaseDuration   = 15 * time.Second
	longestForeignHold = 5 * time.Minute
)

// Announcement says who is about to act on a cluster: an instance, the store that it
// shares with others, and since which change of owners it does.
type Announcement struct {
	Instance string
	StoreID  string
	Epoch    uint64
}

// announcer is what this process knows about the Lease. Announce is called by one
// goroutine at a time.
type announcer struct {
	mu      sync.Mutex
	process string       // tells this process from another one under the same name, see boot.go
	held    Announcement // that this process last took or renewed the Lease for
	// seen is the version of the Lease that somebody else holds, and since when it
	// stands still, by our clock alone; moved, whether we saw another version before.
	seen  string
	since time.Time
	moved bool
}

// Announce takes or renews the Lease and says how long that binds others, from the
// moment of the call at the least. While somebody else holds it, it writes nothing and
// says in a sentence who. The other's hold ends when we have seen the Lease stand
// still for its duration; clocks are never compared. Whoever shares our store gives
// way to the higher epoch at once.
func (c *Cluster) Announce(ctx context.Context, a Announcement) (binds time.Duration, foreign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w := &c.announcer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == "" {
		w.process = processOf(bootTime(), rand.Text())
	}
	leases := c.work.api().typed.CoordinationV1().Leases(ownLeaseNamespace)
	l, err := c.work.api().lease(ctx, ownLeaseNamespace, ownLease)
	switch {
	case gone(err, ownLease):
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: ownLease, Namespace: ownLeaseNamespace}}
		w.sign(l, a)
		if _, err = leases.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			return 0, "", fmt.Errorf("create Lease %s/%s: %w", ownLeaseNamespace, ownLease, err)
		}
		w.held = a
		return holdTime(l.Spec), "", nil
	case err != nil:
		return 0, "", fmt.Errorf("read Lease %s/%s: %w", ownLeaseNamespace, ownLease, err)
	}
	if foreign, err = w.foreign(l, a, time.Now()); foreign != "" || err != nil {
		return 0, foreign, err
	}
	w.sign(l, a)
	if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil { // its version is compared
		return 0, "", fmt.Errorf("renew Lease %s/%s: %w", ownLeaseNamespace, ownLease, err)
	}
	w.held = a
	return holdTime(l.Spec), "", nil // as whoever reads it judges // I22
}

// foreign says who holds the Lease when we may not take it; "" when we may. The error is
// for a Lease of which we cannot tell yet: our name took it in another boot of this host,
// or on a copy of it that lives.
func (w *announcer) foreign(l *coordinationv1.Lease, a Announcement, now time.Time) (string, error) {
	holder, notes := "", l.Annotations
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	epoch, err := strconv.ParseUint(notes[epochAnnotation], 10, 64)
	shared := a.StoreID != "" && notes[storeAnnotation] == a.StoreID && err == nil
	same := shared && epoch == a.Epoch && holder == a.Instance
	switch {
	case holder == "", shared && epoch < a.Epoch:
		return "", nil
	case same && notes[processAnnotation] == w.process, same && w.held != a && sameBoot(notes[processAnnotation], w.process):
		return "", nil // ours, or ours before a restart
	}
	if w.seen != l.ResourceVersion {
		w.moved = w.seen != ""
		w.seen, w.since = l.ResourceVersion, now
	}
	if now.Sub(w.since) >= holdTime(l.Spec) {
		return "", nil
	}
	if same && w.held != a && !w.moved {
		return "", fmt.Errorf("take Lease %s/%s: our name renewed it in another boot of this host, or on a copy of it: wait until it stood still for %s",
			ownLeaseNamespace, ownLease, holdTime(l.Spec))
	}
	who := fmt.Sprintf("fenced instance %.100q", holder)
	switch {
	case same:
		who += ", another process with our name and a copy of our store,"
	case shared && epoch > a.Epoch:
		who += " owns the cluster since, and"
	case !shared:
		who += ", with a store of its own,"
	}
	return fmt.Sprintf("%s holds the Lease %s/%s", who, ownLeaseNamespace, ownLease), nil
}

// holdTime is how long a holder that does not renew keeps the Lease.
func holdTime(s coordinationv1.LeaseSpec) time.Duration {
	if s.LeaseDurationSeconds == nil {
		return ownLeaseDuration
	}
	return min(max(time.Duration(*s.LeaseDurationSeconds)*time.Second, ownLeaseDuration), longestForeignHold)
}

// sign writes into the Lease that we hold it from now on.
func (w *announcer) sign(l *coordinationv1.Lease, a Announcement) {
	now, seconds := metav1.NowMicro(), int32(ownLeaseDuration/time.Second)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != a.Instance || l.Annotations[storeAnnotation] != a.StoreID {
		var before int32
		if l.Spec.LeaseTransitions != nil {
			before = *l.Spec.LeaseTransitions
		}
		before++
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &now, &before
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &a.Instance, &seconds, &now
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[storeAnnotation], l.Annotations[epochAnnotation] = a.StoreID, strconv.FormatUint(a.Epoch, 10)
	l.Annotations[processAnnotation] = w.process
}
