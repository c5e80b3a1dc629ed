package admit

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// probe is what was found out about a candidate before a run is begun: its
// host, whose BMC answers, and who else is at work. A run that starts on it
// takes over its BMC session.
type probe struct {
	running bool
	at      time.Time
	draft   remediate.Run
	session *power.Session
	levels  []levelState

	// withheld: there is a host, and no password may be sent to its BMC.
	withheld   bool
	hostError  reason.Code
	hostDetail string
	identity   guard.IdentityFact
	contested  string
	powerOwner string
	nodeAlive  bool
	lease      remediate.Lease
	// controlPlane: the fresh Node or Machine says so, whatever the view says.
	controlPlane bool
	quorum       reason.Code // why etcd would not survive; "" when it would
	quorumDetail string
}

// probes are the last ones of each candidate, by its key.
type probes struct {
	opt  Options
	wake func()

	mu    sync.Mutex
	byKey map[string]*probe
}

func newProbes(opt Options, wake func()) *probes {
	return &probes{opt: opt, wake: wake, byKey: map[string]*probe{}}
}

// get gives the finished probe of a candidate. When there is none, or it is due again, it
// starts one and gives nil: that one asks for a decision when it has finished.
func (ps *probes) get(a candidate, now time.Time) *probe {
	ps.mu.Lock()
	p := ps.byKey[a.key]
	if p != nil && (p.running || now.Before(p.retryAt())) {
		ps.mu.Unlock()
		if p.running {
			return nil
		}
		return p
	}
	next := &probe{running: true}
	if p != nil { // what is known stays visible while it is asked again
		*next = *p
		next.running, next.session = true, nil
	}
	ps.byKey[a.key] = next
	ps.mu.Unlock()
	if p != nil {
		ps.end(p)
	}
	if !ps.opt.Lead.Spawn(func(ctx context.Context) { ps.run(ctx, a) }) {
		ps.drop(a.key)
	}
	return nil
}

// run fills the probe of a candidate and asks for a decision.
func (ps *probes) run(ctx context.Context, a candidate) {
	ps.mu.Lock()
	before := ps.byKey[a.key]
	ps.mu.Unlock()
	p := ps.probe(ctx, a.draft, before)
	if ctx.Err() != nil && p.session != nil { // the daemon stops: nobody will take it
		p.session.Close(ctx)
		ps.drop(a.key) // or it would seem to run for ever // L4
		return
	}
	ps.mu.Lock()
	ps.byKey[a.key] = p
	ps.mu.Unlock()
	ps.wake()
}

// last is what the last probe of a candidate found; nil before there was one.
func (ps *probes) last(key string) *probe {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byKey[key]; p != nil && !p.at.IsZero() {
		return p
	}
	return nil
}

// lastOn is what the last probe of a Node found, whoever asked for it; nil before there
// was one.
func (ps *probes) lastOn(node string) (found *probe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for k, p := range ps.byKey {
		if strings.HasSuffix(k, "|"+node) && !p.at.IsZero() {
			found = p
		}
	}
	return found
}

// drop forgets a probe and ends its session.
func (ps *probes) drop(key string) {
	ps.mu.Lock()
	p := ps.byKey[key]
	delete(ps.byKey, key)
	ps.mu.Unlock()
	if p != nil {
		ps.end(p)
	}
}

// keep drops all finished probes but these.
func (ps *probes) keep(live map[string]bool) {
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

// end ends the session of a probe that nobody can reach any more.
func (ps *probes) end(p *probe) {
	if s := p.session; s != nil {
		p.session = nil
		if !ps.opt.Lead.Spawn(s.Close) {
			s.Close(context.Background())
		}
	}
}

// retryAt is when a refused probe is made again.
func (p *probe) retryAt() time.Time { return p.at.Add(power.ProbeRetry) }

// sameDraft says whether a run would still be made from what was probed.
func sameDraft(probed, now remediate.Run) bool {
	t := &probed.Target
	t.Host, t.Address, t.Devices, t.Choice, t.Secret = now.Target.Host, now.Target.Address, now.Target.Devices, now.Target.Choice, now.Target.Secret
	probed.Level, probed.Limits.Levels = now.Level, now.Limits.Levels
	return reflect.DeepEqual(probed, now)
}
