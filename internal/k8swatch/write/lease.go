package write

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

// The Lease that says which installation fences in a cluster. Two installations
// without a common store know of each other only by this Lease.
const (
	OwnLeaseNamespace  = "kube-system"
	OwnLease           = "fenced"
	storeAnnotation    = "fenced.io/store-id"
	epochAnnotation    = "fenced.io/epoch"
	processAnnotation  = "fenced.io/process"
	hostAnnotation     = "fenced.io/host"
	ownLeaseDuration   = 15 * time.Second
	longestForeignHold = 5 * time.Minute
)

// Announcement identifies who will act on a cluster: an instance, the store that
// it shares with others, and the epoch of its ownership.
type Announcement struct {
	Instance string
	StoreID  string
	Epoch    uint64
}

// Announcer takes the Lease for this process, and remembers what it saw of it. One goroutine at a time
// calls Announce and Holder.
type Announcer struct {
	work        *client.Server
	mu          sync.Mutex
	process     string       // distinguishes this process from others with the same name, see processOf
	lastWritten Announcement // the last one with which this process took or renewed the Lease
	// seen is the version of the Lease that somebody else holds, since the time
	// since when it has not changed, by our clock alone. moved: we saw another
	// version before.
	seen  string
	since time.Time
	moved bool
}

// NewAnnouncer returns what takes the Lease on an API server.
func NewAnnouncer(work *client.Server) *Announcer { return &Announcer{work: work} }

// Announce takes or renews the Lease and returns how long it is valid, counted at
// the latest from the start of the call. If somebody else holds it, Announce
// writes nothing and returns the holder as a sentence. The other's Lease expires
// when we have seen it unchanged for its duration; clocks are never compared. An
// instance with the same store and a lower epoch loses the Lease at once.
func (w *Announcer) Announce(ctx context.Context, a Announcement) (binds time.Duration, foreign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nameProcess()
	leases := w.work.API().Typed.Leases(OwnLeaseNamespace)
	l, err := w.work.API().Lease(ctx, OwnLeaseNamespace, OwnLease)
	switch {
	case client.IsGone(err, OwnLease):
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: OwnLease, Namespace: OwnLeaseNamespace}}
		w.takeLease(l, a)
		if _, err = leases.Create(ctx, l, metav1.CreateOptions{}); err != nil {
			return 0, "", fmt.Errorf("create Lease %s/%s: %w", OwnLeaseNamespace, OwnLease, err)
		}
		w.lastWritten = a
		return leaseDuration(l.Spec), "", nil
	case err != nil:
		return 0, "", fmt.Errorf("read Lease %s/%s: %w", OwnLeaseNamespace, OwnLease, err)
	}
	if foreign, err = w.foreignHolder(l, a, time.Now()); foreign != "" || err != nil {
		return 0, foreign, err
	}
	w.takeLease(l, a)
	if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil { // fails if the version changed
		return 0, "", fmt.Errorf("renew Lease %s/%s: %w", OwnLeaseNamespace, OwnLease, err)
	}
	w.lastWritten = a
	return leaseDuration(l.Spec), "", nil // as other instances read it // I22
}

// Holder reads who else holds the Lease, as Announce does, and writes nothing. A Lease in doubt is not known to be
// somebody else's.
func (w *Announcer) Holder(ctx context.Context, a Announcement) (foreign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nameProcess()
	switch l, err := w.work.API().Lease(ctx, OwnLeaseNamespace, OwnLease); {
	case client.IsGone(err, OwnLease):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read Lease %s/%s: %w", OwnLeaseNamespace, OwnLease, err)
	default:
		return w.foreignHolder(l, a, time.Now())
	}
}

// nameProcess gives the process its name. The caller holds mu.
func (w *Announcer) nameProcess() {
	if w.process == "" {
		w.process = processOf(bootTime(), rand.Text())
	}
}

// foreignHolder returns who holds the Lease if we may not take it; "" if we may.
// The error is for a Lease in doubt: an instance with our name took it in another
// boot of this host, or on a running copy of it.
func (w *Announcer) foreignHolder(l *coordinationv1.Lease, a Announcement, now time.Time) (string, error) {
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
	case same && notes[processAnnotation] == w.process, same && w.lastWritten != a && sameBoot(notes[processAnnotation], w.process):
		return "", nil // ours, also before a restart
	}
	if w.seen != l.ResourceVersion {
		w.moved = w.seen != ""
		w.seen, w.since = l.ResourceVersion, now
	}
	if now.Sub(w.since) >= leaseDuration(l.Spec) {
		return "", nil
	}
	if same && w.lastWritten != a && !w.moved {
		return "", fmt.Errorf("take Lease %s/%s: an instance with our name renewed it in another boot of this host, or on a copy of it: wait until it is unchanged for %s",
			OwnLeaseNamespace, OwnLease, leaseDuration(l.Spec))
	}
	who := fmt.Sprintf("fenced instance %.100q", holder)
	if host := notes[hostAnnotation]; host != "" && host != holder {
		who += fmt.Sprintf(" on host %.100q", host)
	}
	switch {
	case same:
		who += ", another process with our name and a copy of our store,"
	case shared && epoch > a.Epoch:
		who += ", which owns the cluster now,"
	case !shared:
		who += ", with a store of its own,"
	}
	who += fmt.Sprintf(" holds the Lease %s/%s", OwnLeaseNamespace, OwnLease)
	if since := l.Spec.AcquireTime; since != nil {
		who += " since " + since.UTC().Format(time.RFC3339)
	}
	return who, nil
}

// leaseDuration is how long a holder keeps the Lease without renewing it.
func leaseDuration(s coordinationv1.LeaseSpec) time.Duration {
	if s.LeaseDurationSeconds == nil {
		return ownLeaseDuration
	}
	return min(max(time.Duration(*s.LeaseDurationSeconds)*time.Second, ownLeaseDuration), longestForeignHold)
}

// takeLease changes the Lease so that we hold it from now on.
func (w *Announcer) takeLease(l *coordinationv1.Lease, a Announcement) {
	now, seconds := metav1.NowMicro(), int32(ownLeaseDuration/time.Second)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != a.Instance || l.Annotations[storeAnnotation] != a.StoreID {
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &now, nextTransition(l.Spec)
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &a.Instance, &seconds, &now
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[storeAnnotation], l.Annotations[epochAnnotation] = a.StoreID, strconv.FormatUint(a.Epoch, 10)
	l.Annotations[processAnnotation] = w.process
	if host, err := os.Hostname(); err == nil { // only for people who look for this instance
		l.Annotations[hostAnnotation] = host
	}
}

// nextTransition counts a change of the holder. The API server refuses a Lease with a negative number, so the highest one, which
// anybody may have written, stays.
func nextTransition(s coordinationv1.LeaseSpec) *int32 {
	var n int32
	if s.LeaseTransitions != nil {
		n = *s.LeaseTransitions
	}
	if n < math.MaxInt32 {
		n++
	}
	return &n
}

// sameBootWithin is how much two processes of one boot may differ about its time,
// because the clock was adjusted in between.
const sameBootWithin = 5 * time.Second

// bootTime is when this kernel started, by the clock of now; zero if it is not
// known. It does not use /proc, because the systemd unit hides all but processes
// there.
func bootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

// processOf identifies a process: by the boot of its host, and by a random text.
func processOf(boot time.Time, text string) string {
	if boot.IsZero() {
		return text
	}
	return strconv.FormatInt(boot.Unix(), 10) + "/" + text
}

// sameBoot reports whether two processes of one name certainly ran in the same
// boot of the same host. A copy of a host was started at another time. // I22
func sameBoot(a, b string) bool {
	x, okX := bootOf(a)
	y, okY := bootOf(b)
	return okX && okY && x.Sub(y).Abs() <= sameBootWithin
}

func bootOf(process string) (time.Time, bool) {
	text, _, ok := strings.Cut(process, "/")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), ok && err == nil
}
