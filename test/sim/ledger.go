package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/times"
)

// ledger is what the audits record of the story. Guarded by the world's mutex.
type ledger struct {
	runs     map[string]remediate.Run // as they are stored
	writer   map[string]*incarnation  // who stored them last
	begun    map[string]time.Time     // when they were stored first
	isolated map[string]time.Time     // when they last isolated a Node
	leases   map[string]seenLease     // the Lease of each Node as it was seen last
	looks    map[lookKey]looked       // the last look that was answered
	recorded map[recordedKey]recorded
	frozen   map[string]string    // by Node: the run that found a false Off out
	cycles   map[string][]cycle   // by Node: the runs that have touched the host
	forgiven map[string]int       // by Node: how many of them no longer count after a person's release
	boots    map[string]booted    // when the run isolated its Node
	on       map[attemptKey]bool  // the host was commanded on, or found on
	held     map[string]bool      // runs that needed a human
	backups  map[string]time.Time // when the last Node of a run was saved
	fixed    map[string][]logKey  // by run: the devices that it began with
	scopes   map[string]time.Time // by name of a policy in a file: when a fenced first ran with it
	cases    map[caseKey]bool     // that stand
	readBack map[readBackKey]bool // on record
	answered map[string]time.Time // by UID: when a run had carried a request out
	// broughtBack is, by run, when a person's order made a Held or Waiting run power its host on.
	broughtBack map[string]time.Time
	asked       map[string]askedRecord
	old         map[string]time.Time // runs that had ended when an old backup of the store made them open again
	lost        time.Time            // when the store last became an old one
	misdated    map[string]bool      // runs that a fenced with a wrong clock has saved: with all their times wrong, as it sees them
	lies        map[string]time.Time // by Node: when a BMC last read Off while its host was on
	starts      []tried
	forged      map[string]bool           // by Node: a run that isolated it ended while it told the UUID of another machine, which was forged
	said        map[string]saidAt         // by UID of a request: the last Processing=False in its status
	told        map[recordedKey]time.Time // by Node: the last entry of an audit log about a request to another remediator
}

// attemptKey is one power cycle of a run.
type attemptKey struct {
	run     string
	attempt int
}

// readBackKey is a saved key of a run that was read back on a Node.
type readBackKey struct{ run, node, key string }

type lookKey struct {
	by   *incarnation
	node string
}

type recordedKey struct {
	by  *incarnation
	run string
}

// recorded is the newest entry of an audit log about a run.
type recorded struct {
	action remediate.Action
	at     time.Time
}

// looked is one answer of the API server.
type looked struct {
	began  time.Time
	fresh  run.Fresh
	quorum bool // etcd would survive the loss of the host
	// changed is since when this fenced is shown objects other than those of the run.
	changed time.Time
}

// booted is how often a host had booted, and in which of its boots the Node
// registered.
type booted struct {
	boots int
	boot  string
	on    bool // nobody could know: a false reading, a wrong confirmation, or somebody else's command
}

// seenLease is a version of a Lease, and when a fenced first saw it.
type seenLease struct {
	version string
	at      time.Time
}

// cycle is one run that did something to a host.
type cycle struct {
	run   string
	at    time.Time
	asked bool // it is not a run, but a record of another remediator
}

func newLedger() ledger {
	return ledger{runs: map[string]remediate.Run{}, writer: map[string]*incarnation{}, begun: map[string]time.Time{}, isolated: map[string]time.Time{}, looks: map[lookKey]looked{}, leases: map[string]seenLease{},
		recorded: map[recordedKey]recorded{}, frozen: map[string]string{}, cycles: map[string][]cycle{}, forgiven: map[string]int{}, boots: map[string]booted{},
		backups: map[string]time.Time{}, on: map[attemptKey]bool{}, held: map[string]bool{},
		fixed: map[string][]logKey{}, scopes: map[string]time.Time{}, cases: map[caseKey]bool{}, answered: map[string]time.Time{}, broughtBack: map[string]time.Time{}, readBack: map[readBackKey]bool{},
		asked: map[string]askedRecord{}, told: map[recordedKey]time.Time{}, old: map[string]time.Time{}, lies: map[string]time.Time{}, said: map[string]saidAt{}, forged: map[string]bool{}, misdated: map[string]bool{}}
}

// looked records an answer that reached a fenced. w.mu is held.
func (w *World) looked(c *incarnation, r remediate.Run, f run.Fresh, began time.Time) {
	node := r.Target.Node
	if uid := r.Target.ClusterUID; uid != "" && f.Observation.ClusterUID != uid { // a copy's Lease says nothing about this host // I27
		f.Observation.Lease = remediate.Lease{}
	}
	last := looked{began: began, fresh: f, quorum: w.survives(f, node)}
	if before := w.ledger.looks[lookKey{c, node}].changed; changed(r.Target, f.Observation) != "" {
		if last.changed = before; before.IsZero() {
			last.changed = time.Now()
		}
	}
	w.ledger.looks[lookKey{c, node}] = last
	if l := f.Observation.Lease; l.Known && w.ledger.leases[node].version != l.ResourceVersion {
		w.ledger.leases[node] = seenLease{l.ResourceVersion, time.Now()}
	}
	h := w.hostOf(node)
	if h == nil || !f.Observation.Lease.Known {
		return
	}
	for k, l := range c.logs {
		if k.h == h && len(l.offs) > 0 && l.lease == "" {
			l.lease, l.leaseAt = "at "+f.Observation.Lease.ResourceVersion, time.Now()
		}
	}
}

// survives reports whether etcd keeps its quorum without a host.
func (w *World) survives(f run.Fresh, node string) bool {
	members, well := 0, 0
	for _, h := range w.hosts {
		if h.ControlPlane {
			members++
		}
	}
	for _, m := range f.Members {
		if m.Healthy && m.Node != node {
			well++
		}
	}
	return f.MembersKnown && well >= members/2+1
}

// moved reports whether, as far as this fenced knew, the Lease has been renewed
// since the first Off that it read in a run, by the kubelet that ran then. w.mu is held.
func (c *incarnation) moved(h *host, r remediate.Run, seen remediate.Lease) bool {
	for k, l := range c.logs {
		if k.h == h && l.lease != "" && l.leaseAt.After(r.Started) && !h.life.After(l.leaseAt) && seen.Known && seen.ResourceVersion != "" && l.lease != "at "+seen.ResourceVersion {
			return true
		}
	}
	return false
}

// leaseNotStable returns why the Lease of a host that is believed off has not
// been unchanged for long enough since the first Off, although the kubelet renewed
// it shortly before: the kubelet may be about to renew it again. It counts from the
// first look that showed this Lease; a run that another fenced has begun compares
// with the Lease in its record. w.mu is held.
func (c *incarnation) leaseNotStable(h *host, now time.Time) (why string) {
	w := c.i.w
	lease := w.api.Leases[h.Name]
	recent, still := max(time.Minute, lease.Duration)-2*w.plan.guards().ClockSkewMax, max(15*time.Second, lease.Duration/2)
	for k, l := range c.logs {
		if k.h != h || l.missingForProof(now) != "" || l.lease == "" || h.life.After(l.offs[0].at) { // another kubelet may have renewed it
			continue
		}
		off, from := l.offs[0].at, times.Later(w.ledger.leases[h.Name].at, l.since)
		if l.leaseAt.Before(from) {
			from = l.leaseAt
		}
		stood := now.Sub(from)
		if stood >= still-w.plan.apart() || off.Sub(lease.Renewed) >= recent {
			return ""
		}
		why = fmt.Sprintf("%s after the first Off read and the first look at the Lease of %s, which was renewed %s before the first Off read", stood, lease.Duration, off.Sub(lease.Renewed))
	}
	return why
}

// stored is called when a record has become durable, before its writer knows. The
// writer's clock is behind the API server's by skew.
func (w *World) stored(d *storeClient, kind state.Kind, key string, skew time.Duration) {
	switch kind {
	case state.KindRun:
		r, err := state.GetRun(w.ctx, correctedStore{w.store, skew}, key)
		w.do(func() {
			switch old, known := w.ledger.runs[key]; {
			case err != nil:
				w.violate("I19", "", "a run was stored that cannot be read: %v", err)
			case known && old.Version >= r.Version && !w.defect.IgnoresVersions: // another one was quicker with its audit
			default:
				if !known {
					w.ledger.begun[key] = time.Now()
				}
				w.ledger.runs[key], w.ledger.writer[key] = r, d.inc
				w.ledger.misdated[key] = w.ledger.misdated[key] || skew.Abs() > differsMost
				w.auditRun(d, old, known, r)
			}
		})
	case state.KindCluster:
		if s, err := statetest.LoadCluster(w.ctx, w.store, state.AllClusters); err == nil { // as one with a right clock ends it
			w.do(func() {
				if w.crowd.stored = (stop{}); s.Paused {
					w.crowd.stored = stop{time.Now(), s.PausedUntil}
				}
			})
		}
	case state.KindMeta:
		if strings.HasPrefix(key, askedPrefix) {
			w.storedAsked(d, key, skew)
		}
	case state.KindBackup:
		w.do(func() { w.ledger.backups[key] = time.Now() })
	}
}

// dropped is called when a record was deleted.
func (w *World) dropped(d *storeClient, kind state.Kind, key string) {
	w.do(func() {
		if kind == state.KindMeta && strings.HasPrefix(key, askedPrefix) {
			w.droppedAsked(key)
		}
		if kind == state.KindBackup || kind == state.KindRun {
			w.violate("I21", w.ledger.runs[key].Target.Node, "%s deleted the %s of run %s, of this very day", d.inc, kind, key)
		}
	})
}
