package sweep

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// State is the result of the newest poll of a device.
type State string

// The states.
const (
	StateUnchecked State = "unchecked" // not polled yet
	StateOK        State = "ok"
	StateFailed    State = "failed"   // no answer that a fence could use
	StateMismatch  State = "mismatch" // another machine answers
	StateUnproven  State = "unproven" // it answers, and nothing proves its identity
)

// States lists the states.
var States = []State{StateUnchecked, StateOK, StateFailed, StateMismatch, StateUnproven}

// Result is what is known about one device.
type Result struct {
	Cluster string
	Node    string // empty for a host that no Node uses
	Machine string // "namespace/name"; empty for a host that no Machine uses
	Host    string // empty if the inventory entry cannot be used
	Source  string // file and line, or object, of its entry

	Level, Device int    // from 0
	Address       string // without any secret
	Driver        bmc.Driver
	Assurance     bmc.Assurance

	State State
	// Dependable is false if a fence would probably fail here.
	Dependable bool
	Reason     reason.Code // why the newest poll failed
	Problem    string
	// User and PasswordFrom are the account that the device refuses, and where its password stands: a file, a
	// credential of systemd, a Secret. Empty unless it refuses one.
	User, PasswordFrom string

	Power    bmc.PowerState
	Raw      string
	Identity guard.IdentityVerdict
	UUID     string // as the device reports it
	Serial   string

	Latency, LatencyP95 time.Duration // of the newest successful poll, and 95th percentile of the last 20
	Checked, LastGood   time.Time
	Next                time.Time // time of the next poll; zero during a poll
	Failures            int       // consecutive
	Description         bmc.Description
	DescribeProblem     string // error of the newest description; Description is older, or empty
	Findings            []bmc.Finding
	Audited             time.Time
	AuditProblem        string // error of the newest audit
	// Refused are the reasons for which the engine would refuse to switch the host,
	// whatever its BMC reports.
	Refused []reason.Refusal

	subject *subject
}

// Results returns every device of one cluster, or of all if cluster is empty,
// sorted. A cluster that has not been read completely has one Result without a
// host. Before the inventory has been read the error is a *reason.Refusal,
// because an empty list would look as if all were well.
func (s *Sweep) Results(ctx context.Context, cluster string) ([]Result, error) {
	return s.Select(ctx, func(of, _, _ string) bool { return cluster == "" || of == cluster }, func(*Result) bool { return true })
}

// Select returns the devices of some hosts, and of those the ones that are wanted, by what Survey tells of them.
func (s *Sweep) Select(ctx context.Context, of func(cluster, node, machine string) bool, want func(*Result) bool) ([]Result, error) {
	var out []Result
	err := s.each(ctx, of, func(r *Result, e *entry) {
		if !want(r) {
			return
		}
		if e == nil {
			out = append(out, *r)
			return
		}
		s.mu.Lock()
		whole := e.result(time.Now())
		s.mu.Unlock()
		whole.Refused, whole.Findings = r.Refused, append(whole.Findings, r.Findings...)
		if want(&whole) { // it may have been polled since
			out = append(out, whole)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Level, b.Level), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Problem, b.Problem))
	})
	return out, nil
}

// Survey calls yield with each device of Results, in no order, without what only a list of devices shows: its identity, its
// times, what it is and its weaknesses. yield must not keep the Result.
func (s *Sweep) Survey(ctx context.Context, yield func(*Result)) error {
	return s.each(ctx, func(_, _, _ string) bool { return true }, func(r *Result, _ *entry) { yield(r) })
}

// perLock is for how many hosts the results are taken at once. Polls go on in between.
const perLock = 256

// each yields what is known in brief of each device, with its entry; nil: the host cannot be used.
func (s *Sweep) each(ctx context.Context, of func(cluster, node, machine string) bool, yield func(*Result, *entry)) error {
	s.mu.Lock()
	read, rest, found, entries := s.inventoryRead, s.listed, []Result{}, []*entry{}
	for _, u := range s.unusable {
		if of(u.Cluster, u.Node, u.Machine) {
			found, entries = append(found, unusable(u)), append(entries, nil)
		}
	}
	s.mu.Unlock()
	if !read {
		return &reason.Refusal{Reason: reason.NotSynced, Message: "the inventory has not been read yet"}
	}
	for ctx.Err() == nil {
		var work sync.WaitGroup
		for part := range slices.Chunk(found, perLock/runtime.GOMAXPROCS(0)+1) { // people wait for it
			work.Go(func() { s.refused(ctx, part) })
		}
		work.Wait()
		for i := range found {
			yield(&found[i], entries[i])
		}
		if len(rest) == 0 {
			return nil
		}
		found, entries = found[:0], entries[:0]
		s.mu.Lock()
		for _, h := range rest[:min(len(rest), perLock)] {
			if !of(h.cluster, h.node, h.machine) {
				continue
			}
			for _, e := range h.list {
				found, entries = append(found, e.brief()), append(entries, e)
			}
		}
		s.mu.Unlock()
		rest = rest[min(len(rest), perLock):]
	}
	return ctx.Err()
}

// resultsOf returns the results for the devices of one host.
func (s *Sweep) resultsOf(ctx context.Context, list []*entry) []Result {
	s.mu.Lock()
	now := time.Now()
	out := make([]Result, 0, len(list))
	for _, e := range list {
		out = append(out, e.result(now))
	}
	s.mu.Unlock()
	s.refused(ctx, out)
	return out
}

// refused asks the engine once for each host, because the engine knows the hosts
// of all clusters. A host that cannot be used already says why.
func (s *Sweep) refused(ctx context.Context, list []Result) {
	var last *subject // the devices of a host follow each other
	var forbidden []reason.Refusal
	for i := range list {
		r := &list[i]
		if r.Host == "" {
			continue
		}
		if r.subject != last {
			last, forbidden = r.subject, s.opt.Engine.Forbidden(ctx, r.subject.inQuestion())
		}
		r.Refused = forbidden
		for _, why := range r.Refused {
			if why.Reason == reason.DuplicateHost { // I9
				r.Findings = append(r.Findings, bmc.Finding{Code: bmc.FindingDuplicate, Message: why.Message + ": correct the inventory"})
			}
		}
	}
}

func unusable(u hosts.Subject) Result {
	r := Result{Cluster: u.Cluster, Node: u.Node, Machine: u.Machine, Source: u.BareMetalHost, State: StateFailed, Reason: reasonOf(u.Err), Problem: reason.Sentence(u.Err)}
	if isUnsyncedCluster(u) {
		r.State = StateUnchecked
	}
	return r
}

// brief is what Survey tells of a device.
func (e *entry) brief() Result {
	x := e.subject
	h, d := x.bare, x.kept(e.id)
	r := Result{
		Cluster: x.cluster, Node: x.node, Machine: x.machine, Host: h.Name, Source: h.Source,
		Level: e.id.level, Device: e.id.device, Address: d.Name(), Driver: d.Driver, Assurance: d.Assurance(),
		State: e.state(), Dependable: e.isDependable(), subject: x,
	}
	switch why := x.withheld; {
	case why != nil: // overrides the result of a poll
		r.Reason, r.Problem, r.Dependable = why.Reason, why.Message, false
	case !e.last.At.IsZero():
		if r.Reason, r.Problem = failure(e.last); r.Reason == "" && e.isUnproven() {
			r.Reason, r.Problem = reason.IdentityUnknown, "nothing proves that it is the BMC of this Node"
		}
	}
	if r.Reason == reason.OfBMC(string(bmc.KindAuth)) || r.Reason == reason.OfBMC(string(bmc.KindPrivilege)) {
		account := e.device()
		r.User, r.PasswordFrom = account.Username, account.PasswordFrom
		if d.Secret != "" {
			r.PasswordFrom = "Secret " + d.Secret
		}
	}
	return r
}

func (e *entry) result(now time.Time) Result {
	r := e.brief()
	r.Power, r.Raw, r.Identity = e.last.Reading.State, e.last.Reading.Raw, e.last.Identity
	r.UUID, r.Serial = e.last.Reading.Identity.UUID, cmp.Or(e.last.Reading.Identity.Serial, e.description.Serial)
	r.LatencyP95, r.Checked, r.LastGood, r.Failures = times.Quantile(e.latencies, 0.95), e.last.At, e.lastGood, e.failures
	r.Description, r.Findings, r.Audited = *e.description, e.weaknesses(now), e.audited
	if n := len(e.latencies); n > 0 {
		r.Latency = e.latencies[n-1]
	}
	if e.place >= 0 {
		r.Next = e.due
	}
	if e.describeErr != nil {
		r.DescribeProblem = e.describeErr.Error()
	}
	if e.auditErr != nil {
		r.AuditProblem = e.auditErr.Error()
	}
	return r
}

// isDependable reports whether a fence would probably not fail here.
func (e *entry) isDependable() bool { return e.failures < dependableFailures && !e.isUnproven() }

// isUnproven reports whether a fence would be refused because nothing proves whose device it is. An
// enrolment that is missing is refused by the engine, and guards.identity: off by the configuration.
func (e *entry) isUnproven() bool {
	return e.last.Identity == guard.IdentityUnproven && e.subject.node != "" && e.subject.bare.IdentityMode != "off"
}

func (e *entry) state() State {
	why, _ := failure(e.last)
	switch {
	case e.last.At.IsZero():
		return StateUnchecked
	case why == reason.IdentityMismatch:
		return StateMismatch
	case why != "":
		return StateFailed
	case e.last.Identity == guard.IdentityMatches:
		return StateOK
	}
	return StateUnproven
}

// Group is the key by which Tally counts devices.
type Group struct {
	Cluster string
	Driver  bmc.Driver
	State   State
}

// Tally counts the devices, and by cluster those that are not dependable. A host
// without any usable device counts as one.
func (s *Sweep) Tally() (devices map[Group]int, notDependable map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	devices, notDependable = map[Group]int{}, map[string]int{}
	for _, h := range s.hosts {
		for _, e := range h.list {
			devices[Group{h.cluster, e.device().Driver, e.state()}]++
			if !e.isDependable() {
				notDependable[h.cluster]++
			}
		}
	}
	for _, u := range s.unusable {
		if !isUnsyncedCluster(u) {
			notDependable[u.Cluster]++
		}
	}
	return devices, notDependable
}

// LastChecks returns the result of the newest poll of each device of a host, so that explain and
// bmc list say the same. It returns nothing for a host that is not in the inventory yet.
func (s *Sweep) LastChecks(cluster, host string) (list []hosts.LastCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.hosts {
		if h.cluster != cluster || id.name != host {
			continue
		}
		for _, e := range h.list {
			c := hosts.LastCheck{Level: e.id.level, Device: e.id.device, At: e.last.At, Took: e.last.Reading.Took, LastOn: e.lastOn, Power: e.last.Reading.State,
				Identity: e.last.Identity, UUID: e.last.Reading.Identity.UUID}
			if e.last.Identity != guard.IdentityDiffers && !c.At.IsZero() {
				c.Reason, c.Problem = failure(e.last)
			}
			list = append(list, c)
		}
	}
	return list
}
