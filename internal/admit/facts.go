package admit

import (
	"cmp"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/suspend"
	"github.com/fenced/fenced/internal/times"
)

// gates evaluates every guard for a candidate. p is its probe; nil: it was not probed.
func (c *Cluster) gates(a cluster.Candidate, p *probe, now time.Time) []reason.Gate {
	return guard.Gates(c.opt.Limits.Now().Guards, c.facts(a, p, now), now)
}

// facts gathers the facts for the guards. Without a probe they are as if BMC, contenders and
// etcd allowed the run.
func (c *Cluster) facts(a cluster.Candidate, p *probe, now time.Time) guard.Facts {
	v := c.checkView() // before QuietUntil: an outage that has ended sets it // I16
	fresh := run.Fresh{}
	if p != nil {
		fresh = p.look.Fresh
	}
	name, names := c.opt.Name, c.runs.Names(a.Draft.Target, fresh) // I23
	f := a.Facts()
	f.Mode, f.ForeignOwner = c.opt.Mode, c.opt.Lead.WhyNotAct(now)
	if !c.opt.Lead.Leads() { // else the Lease says who owns the cluster
		f.OwnerSource = "store"
	}
	f.Paused, f.Held, f.Armed = c.opt.Stop.Paused(name), c.opt.Stop.Held(name, names...), c.opt.Stop.Record(name).Armed
	f.AuditTrouble, f.StateTrouble = c.opt.AuditTrouble(), c.runs.saves.trouble(now)
	f.FilesRefused, f.EntryRefused = c.model.Objects.FilesRefused(), c.opt.Hosts.EntryRefused(a.Draft.Target)
	f.ViewSynced, f.ViewAge, f.ClockSkew, f.QuietUntil = v.Synced, v.Age, v.Skew, c.view.QuietUntil()
	f.QuorumHolds, f.QuorumDetail = true, "etcd is checked just before the run starts"
	f.Host, f.HostUnread, f.ClusterUnread = cmp.Or(a.Draft.Target.BareMetalHost, "not looked up yet"), p == nil, p == nil
	f.InFlightTotal = c.opt.Slots.Count()
	f.Quarantined, f.QuarantinedUntil = c.opt.Stop.Quarantined(name, names...)
	bmcUUID := "" // the UUID that the BMC reports
	if p != nil {
		bmcUUID = p.identity.BMC
	}
	uuid := cmp.Or(a.Draft.Target.SystemUUID, bmcUUID)
	f.OwnHost = c.opt.Hosts.OwnHost(a.Node, a.Draft.Target, uuid, bmcUUID)
	if p != nil {
		a.Draft.Target = p.draft.Target // now with host and address
		f.Host = p.draft.Target.Host
		f.HostError, f.HostDetail, f.HostUnread, f.ClusterUnread = p.hostError, p.hostDetail, p.hostUnread, p.clusterUnread
		f.Identity, f.Replaced, f.Contested, f.PowerOwner, f.NodeAlive = p.identity, p.replaced, p.contested, p.powerOwner, p.nodeAlive
		f.LeaseTooLong = p.leaseTooLong
		f.ControlPlane = f.ControlPlane || p.controlPlane
		f.QuorumHolds, f.QuorumReason, f.QuorumDetail = p.quorum == "", p.quorum, p.quorumDetail
	}
	if a.MissingHost != "" {
		f.HostError, f.HostDetail = reason.InvalidHost, a.MissingHost
	}
	f.FrozenReason, f.Frozen = c.opt.Hosts.Frozen(a.Draft.Target)
	f.Duplicate = c.opt.Hosts.Duplicate(a.Draft.Target)
	c.model.Count(a, uuid, &f, c.opt.Stop.ReleasedAt(name, names...), now)
	return f
}

// Watch is the cached view of one cluster.
type Watch interface {
	// Changes lists everything that was added, changed or deleted since the last call.
	Changes() []policy.Change
	Changed() <-chan struct{}
	View() View
}

// View says how far a cached view can be relied on.
type View struct {
	Synced bool
	Age    time.Duration
	// Since is when the first complete view came after the last outage; zero if there was no
	// outage since the start.
	Since time.Time
	// Skew is the API server's clock minus this host's: positive if this host's clock is
	// behind. It is valid only if SkewKnown: it was measured.
	Skew      time.Duration
	SkewKnown bool
	// SkewOf says of which API server that is, of a cluster with several; "" if there is one.
	SkewOf  string
	Problem string
}

// FreshnessOptions configures the Freshness of one cluster.
type FreshnessOptions struct {
	Watch  Watch
	Limits *cluster.Limits
	Awake  func() suspend.Awake
}

// Freshness says how far the view of a cluster can be relied on, and until when no run may
// start because the view had a gap. // I16
type Freshness struct {
	opt FreshnessOptions

	mu         sync.Mutex
	problem    string        // of the view when it was last checked,
	reason     reason.Code   // and its code, if it has one
	quietUntil time.Time     // no new run before
	outageEnd  time.Time     // the recovery that quiet already reflects
	awake      suspend.Awake // since the last suspend that quiet reflects,
	suspend    string        // how that suspend is described,
	wokeAt     time.Time     // and when it was noticed
	taken      time.Time     // the ledger has all that was read of the cluster until then; zero: the view was not synced
}

// NewFreshness returns a Freshness without any outage or suspend.
func NewFreshness(opt FreshnessOptions) *Freshness {
	return &Freshness{opt: opt, awake: opt.Awake()}
}

// View returns the state of the watch. After a suspend of this host the view is not synced
// until the watch has proven it again, as after a start. The end of a suspend also begins a
// quiet period, as the end of an outage does: events were missed meanwhile. // I16
func (f *Freshness) View() View {
	v := f.opt.Watch.View()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if why := f.awake.Over(); why != "" {
		f.awake, f.suspend, f.wokeAt = f.opt.Awake(), why, now
		f.quietUntil = times.Later(f.quietUntil, now.Add(f.opt.Limits.Now().Guards.QuietPeriod))
	}
	if !f.wokeAt.IsZero() && now.Sub(f.wokeAt) <= v.Age {
		v.Synced, v.Problem = false, withDetail(f.suspend, v.Problem)
	}
	return v
}

// IsCurrent reports whether the ledger says what is there now: the view is synced, and what the ledger has taken in of it is not older than
// guards.viewMaxAge. An older one does not show what somebody has changed since: that a check was deleted, or that a host works under another
// name. It is asked before the ledger: a view that has just become current may not have been taken in when the ledger answered. What was taken in
// before a suspend is as old as that, which no monotonic clock shows. // I16
func (f *Freshness) IsCurrent() bool {
	if !f.View().Synced {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken.After(f.wokeAt) && time.Since(f.taken) <= f.opt.Limits.Now().Guards.ViewMaxAge
}

// took records until when the ledger has all that was read of the cluster; zero: it must take in changes before it has anything.
func (f *Freshness) took(read time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = read
}

// renew takes in a view of this moment: while no change waits, the ledger has all that was read of the cluster. The change
// was signalled before the view was proven. // I16
func (f *Freshness) renew(v View) {
	read := time.Now().Add(-v.Age)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.taken.IsZero() && len(f.opt.Watch.Changed()) == 0 {
		f.taken = read
	}
}

// takenUntil is until when the ledger has all that was read of the cluster.
func (f *Freshness) takenUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}

// Check returns the view and its problem, "" for none. The end of an outage begins the quiet
// period. changed: since the last call the view became usable or unusable, or an outage has
// ended.
func (f *Freshness) Check() (v View, problem string, changed bool) {
	v = f.View()
	var code reason.Code
	switch skew := f.skewProblem(v); {
	case !v.Synced:
		code, problem = reason.NotSynced, withDetail("not synced yet", v.Problem)
	case v.Age > f.opt.Limits.Now().Guards.ViewMaxAge:
		code, problem = reason.ViewStale, withDetail("the view is "+v.Age.Round(time.Second).String()+" old", v.Problem)
	case skew != "":
		code, problem = reason.ClockSkew, skew
	default:
		problem = v.Problem
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = (problem == "") != (f.problem == "")
	f.problem, f.reason = problem, code
	if v.Since.After(f.outageEnd) {
		f.outageEnd = v.Since
		f.quietUntil = times.Later(f.quietUntil, v.Since.Add(f.opt.Limits.Now().Guards.QuietPeriod))
		changed = true
	}
	return v, problem, changed
}

// Problem is the problem of the view when it was last checked, "" for none, and its code. That of a kind that cannot be
// watched, while the view is still young enough, has no code.
func (f *Freshness) Problem() (code reason.Code, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason, f.problem
}

// QuietUntil is the end of the current or last quiet period.
func (f *Freshness) QuietUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quietUntil
}

// BeQuiet begins a quiet period at the time from. A time to come was written by a clock that was
// ahead, and counts as now. BeQuiet does not shorten a quiet period. // I16
func (f *Freshness) BeQuiet(from time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); from.After(now) {
		from = now
	}
	f.quietUntil = times.Later(f.quietUntil, from.Add(f.opt.Limits.Now().Guards.QuietPeriod))
}

// gapEnds returns when the last outage of the view ended, and when this host was seen to be
// awake after its last suspend; zero: never.
func (f *Freshness) gapEnds() (outageEnd, wokeAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outageEnd, f.wokeAt
}

// skewProblem says by how much this host's clock is behind the API server's, or ahead of it; "" if that is
// within the limit, or not known. // I16
func (f *Freshness) skewProblem(v View) string {
	if v.Skew.Abs() <= f.opt.Limits.Now().Guards.ClockSkewMax {
		return ""
	}
	side := " behind "
	if v.Skew < 0 {
		side = " ahead of "
	}
	return "the clock of this host is " + v.Skew.Abs().Round(time.Second).String() + side + "that of " + cmp.Or(v.SkewOf, "the API server")
}

// Clock says whether this host's clock agrees with the API server's, and if it does not, by
// how much they differ. // I16
func (f *Freshness) Clock() (agrees remediate.Answer, wrong string) {
	v := f.View()
	wrong = f.skewProblem(v)
	if !v.SkewKnown {
		return remediate.CannotTell, wrong
	}
	return remediate.AnswerOf(wrong == ""), wrong
}

// Skew is the API server's clock minus this host's, 0 if the difference is within the limit.
// seen is false while the view is not synced.
func (f *Freshness) Skew() (skew time.Duration, seen bool) {
	v := f.View()
	if f.skewProblem(v) == "" {
		return 0, v.Synced
	}
	return v.Skew, v.Synced
}

// withDetail appends a detail to the text of a problem.
func withDetail(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}
