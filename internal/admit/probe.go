package admit

import (
	"context"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// probe is what was read about a candidate before its run starts: the host, the identity of
// its BMC, and whether other controllers act on it. The run takes over the BMC session.
type probe struct {
	running bool
	// onlyLooks: it is for somebody who may only look, so a refused account is not tried again
	// before its time.
	onlyLooks bool
	at        time.Time
	draft     remediate.Run
	session   *power.Session
	levels    []levelState
	look      run.Admitted // at the cluster; zero if there was none

	// passwordWithheld: the host has a BMC, and no password may be sent to it.
	passwordWithheld bool
	// hostUnread: neither this probe nor the BMC health check has read the BMC; clusterUnread:
	// this probe has not read the cluster.
	hostUnread, clusterUnread bool

	hostError  reason.Code
	hostDetail string
	identity   guard.IdentityFact
	replaced   string // which object of the target another one has replaced
	contested  string
	powerOwner string
	nodeAlive  bool
	// leaseTooLong is why nobody can wait for a renewal of the kubelet's Lease.
	leaseTooLong string
	// controlPlane: the draft, the fresh Node or the fresh Machine says so.
	controlPlane bool
	// takesTurn: other control-plane hosts wait for it.
	takesTurn    bool
	quorum       reason.Code // why etcd would lose its quorum; "" if it would not
	quorumDetail string
	// attempts is how many power cycles the template of the check allows; 0 leaves that to the configuration.
	attempts int
	// templateUnread is why the template could not be read; "" if it was, or if there is none.
	templateUnread string
}

// complete returns the run to start after a probe: the draft with host and address, and as a
// control-plane run, for which others wait, if the fresh objects say so, and with one power cycle for a Machine that never
// had a Node, or whose Node is gone and was not pinned. The template of the check limits the power cycles. check is
// nil for an order. // I12
func (p *probe) complete(d cluster.Drafter, check *policy.Check) remediate.Run {
	r := p.draft
	if p.controlPlane && !r.ControlPlane {
		r.ControlPlane, r.Isolation, r.TakesNoTurn = true, d.IsolationOf(r.Target, check), true
	}
	r.TakesNoTurn = r.TakesNoTurn && !p.takesTurn
	if p.attempts > 0 {
		r.Limits.MaxAttempts = min(r.Limits.MaxAttempts, p.attempts)
	}
	if p.templateUnread != "" {
		r.Trigger += "; one power cycle only, because the template that may forbid others could not be read: " + p.templateUnread
	}
	if r.Target.Node == "" || r.Target.ByHardware { // a host that does not join after one boot is installed anew
		r.Limits.MaxAttempts = 1
	}
	return r
}

// probes holds the last probe of each candidate, by its key.
type probes struct {
	opt    Options
	wake   func()
	looks  *semaphore.Weighted // at the cluster
	leases *leasesSeen         // by all looks, also those of runs

	mu    sync.Mutex
	byKey map[string]*probe
}

func newProbes(opt Options, wake func()) *probes {
	return &probes{opt: opt, wake: wake, looks: semaphore.NewWeighted(looksAtOnce), leases: &leasesSeen{byNode: map[string]leaseSeen{}}, byKey: map[string]*probe{}}
}

// get returns the finished probe of a candidate. If there is none, or a new one is due, it
// starts one and returns nil. A probe that finishes requests a decision.
func (ps *probes) get(a cluster.Candidate, now time.Time) *probe {
	ps.mu.Lock()
	p := ps.byKey[a.Key]
	if p != nil && (p.running || now.Before(p.retryAt())) {
		ps.mu.Unlock()
		if p.running {
			return nil
		}
		return p
	}
	next := &probe{running: true}
	if p != nil { // explain shows the old results while the probe runs
		*next = *p
		next.running, next.session = true, nil
	}
	ps.byKey[a.Key] = next
	ps.mu.Unlock()
	if p != nil {
		ps.closeSession(p)
	}
	if !ps.opt.Lead.Spawn(func(ctx context.Context) { ps.run(ctx, a) }) {
		ps.drop(a.Key)
	}
	return nil
}

// running says whether the candidate is being probed.
func (ps *probes) running(key string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byKey[key]
	return p != nil && p.running
}

// run probes a candidate, stores the result and requests a decision.
func (ps *probes) run(ctx context.Context, a cluster.Candidate) {
	ps.mu.Lock()
	before := ps.byKey[a.Key]
	ps.mu.Unlock()
	// If the template of the check is fenced's own, it says how many power cycles it allows: a request from it would allow
	// no more, and its controller has perhaps not made it yet. One that cannot be read may allow a single one. It is read
	// first: what follows must be fresh when the run starts.
	attempts, unread := 0, ""
	if ps.opt.Requests != nil && a.Check != nil && a.Template != nil && a.Template.IsOwn() {
		var err error
		if attempts, err = ps.opt.Requests.TemplateAttempts(ctx, a.Check, *a.Template, a.Draft.Target); err != nil {
			attempts, unread = 1, reason.Sentence(err)
		}
	}
	p := ps.probe(ctx, a.Draft, before)
	p.attempts, p.templateUnread = attempts, unread
	if ctx.Err() != nil && p.session != nil { // the daemon stops, or the leadership ends: no run will take the session
		p.session.Close(ctx)
		ps.drop(a.Key) // otherwise it would count as running for ever // L4
		return
	}
	ps.mu.Lock()
	ps.byKey[a.Key] = p
	ps.mu.Unlock()
	ps.wake()
}

// last returns the last result for a candidate; nil if there is none yet.
func (ps *probes) last(key string) *probe {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byKey[key]; p != nil && !p.at.IsZero() {
		return p
	}
	return nil
}

// lastOn returns the last result for a target, for any check or order; nil if there is
// none yet. subject is policy's name of the target.
func (ps *probes) lastOn(subject string) (found *probe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byKey {
		if !p.at.IsZero() && cluster.SubjectOf(p.draft.Target) == subject {
			found = p
		}
	}
	return found
}

// drop removes a probe and closes its session.
func (ps *probes) drop(key string) {
	ps.mu.Lock()
	p := ps.byKey[key]
	delete(ps.byKey, key)
	ps.mu.Unlock()
	if p != nil {
		ps.closeSession(p)
	}
}

// dropAllBut drops all finished probes that are not in live.
func (ps *probes) dropAllBut(live map[string]bool) {
	ps.mu.Lock()
	var stale []string
	for k, p := range ps.byKey {
		if !live[k] && !p.running {
			stale = append(stale, k)
		}
	}
	ps.mu.Unlock()
	for _, k := range stale {
		ps.drop(k)
	}
}

// closeSession closes the session of a probe that was removed.
func (ps *probes) closeSession(p *probe) {
	if s := ps.take(p); s != nil {
		if !ps.opt.Lead.Spawn(s.Close) {
			s.Close(context.Background())
		}
	}
}

// take returns the session of a probe, nil if it has none any more: whoever takes it runs on it, or closes it, and nobody else does. The
// leadership may end in the moment in which a run starts.
func (ps *probes) take(p *probe) *power.Session {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	s := p.session
	p.session = nil
	return s
}

// retryAt is when a candidate whose gates failed is probed again.
func (p *probe) retryAt() time.Time { return p.at.Add(power.ProbeRetry) }

// sameDraft says whether the draft is still the one that was probed. It ignores what the
// probe itself fills in.
func sameDraft(probed, now remediate.Run) bool {
	t := &probed.Target
	t.Host, t.Address, t.Devices, t.Choice, t.Secret = now.Target.Host, now.Target.Address, now.Target.Devices, now.Target.Choice, now.Target.Secret
	t.Unverified, t.ByHardware, t.ReportedUUID = now.Target.Unverified, now.Target.ByHardware, now.Target.ReportedUUID
	t.ClusterUID, t.ManagementUID = now.Target.ClusterUID, now.Target.ManagementUID
	probed.Level, probed.Limits.Levels = now.Level, now.Limits.Levels
	return reflect.DeepEqual(probed, now)
}

// looksAtOnce is how many candidates may look at the cluster at the same time. The first of many then becomes a run
// while others have not begun: if all looked at once, all would wait for the slowest, and on a busy machine no run could begin
// with the look that admitted it. Looks at the same time share what they read. The BMCs are read before that, all at once,
// because they may hang. // L3
const looksAtOnce = 16
