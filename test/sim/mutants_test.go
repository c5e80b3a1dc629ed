package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/test/fake"
)

// mutant is a world in which one rule is broken on purpose.
type mutant struct {
	name   string
	rule   string // that the audits must find broken
	plan   func(*Plan)
	defect Defect
}

// mutantSeeds is how many worlds a mutant may hide in.
const mutantSeeds = 60

func looks(spoil func(f *run.Fresh, r remediate.Run)) Defect { return Defect{Look: spoil} }

func options(change func(*engine.Options)) Defect { return Defect{Options: change} }

// unprotected is an inventory in which nothing is protected.
type unprotected struct{ hosts.Inventory }

func (unprotected) Protected(string, string) bool { return false }

// quiet is a world in which hosts break, often, and nothing else does.
func quiet(p *Plan) {
	p.Instances, p.Calm = 1, 60*time.Minute
	p.Hosts, p.BMCs, p.Outages, p.People = 12, 0, 0, 0
	p.StoreFails, p.CallLost, p.CallSlow, p.Kill = 0, 0, 0, 0
	p.Metal, p.Outlets, p.FoundOffStays, p.Reprovision, p.Waits = false, false, false, false, false
	p.Mistakes, p.Policies, p.Words, p.Absurd, p.Clocks = 0, 0, 0, 0, 0
	p.Medik8s, p.Requests, p.Withdraws = false, false, 0
	p.Others, p.Escalates, p.Meddles = false, false, 0
	p.Plugin = false
	p.Names, p.Hands, p.Restores, p.Spells, p.Breaks, p.Copies = 0, 0, 0, 0, 0, 0
	p.Limit, p.StartsPerHour, p.Attempts, p.Retry = 0, 12, 2, 30*time.Second
}

func only(m ...fake.Fault) func(*Plan) {
	return func(p *Plan) { p.BMCFaults, p.BMCs = m, 60 }
}

// fleet is three instances that lose each other and the store.
func fleet(p *Plan) {
	p.Instances, p.Outages, p.Kill, p.StoreFails = 3, 12, 0.003, 0.05
}

func outages(p *Plan) { p.Outages = 12 }
func medik8s(p *Plan) { p.Outages, p.Medik8s = 12, true }
func nothing(*Plan)   {}
func crowded(p *Plan) { p.Workers, p.Zones = 8, 2 }
func people(p *Plan)  { p.People = 40 }
func kills(p *Plan)   { p.Kill = 0.005 }
func clocks(p *Plan)  { p.Clocks, p.Instances, p.People = 30, 2, 40 }
func etcd(p *Plan)    { p.ControlPlanes, p.Workers = 3, 2 }
func few(p *Plan)     { p.ControlPlanes, p.Workers, p.Zones, p.Hosts = 0, 3, 0, 40 }

// asked is a world of requests that come and go.
func asked(p *Plan) { few(p); p.Requests, p.Withdraws, p.Waits = true, 60, true }

// alive is hosts whose BMCs say Off while they run, without a network for a while.
func alive(p *Plan) { few(p); only(fake.Liar)(p); p.OnlyCuts = true }

// special is a world with a protected host, and one that fenced runs on.
func special(p *Plan) { p.Seed *= 3 }

var mutants = []mutant{
	{"one read is a proof", "I1", nothing, options(func(o *engine.Options) { o.Power.OffReadSpacing = time.Millisecond })},
	{"what is On reads Off", "I1", only(fake.Deaf), Defect{Reading: func(r *bmc.Reading, _ string) { r.State = bmc.Off }}},
	{"a write outlives its client", "I1", func(p *Plan) { only(fake.Restarts, fake.Hangs)(p); p.CallSlow = 0.5 }, Defect{CarriesOutLate: true}},
	{"sessions are not told apart", "I1", only(fake.Restarts), Defect{Reading: func(r *bmc.Reading, _ string) { r.Session = 1 }}},
	{"Nodes are deleted by name", "I2", nothing, Defect{IgnoresPreconditions: true}},
	{"sick as long as it was sick once", "I4", nothing, Defect{LateViews: time.Minute, Look: staleness()}},
	{"the Lease is not looked at", "I5", alive, looks(func(f *run.Fresh, _ remediate.Run) { f.Observation.Lease.ResourceVersion = "1" })},
	{"a Node from Git is a registration", "I5", func(p *Plan) { p.Git = true }, looks(func(f *run.Fresh, r remediate.Run) {
		if n := &f.Observation.Node; n.Exists == remediate.Yes && n.BootID == "" {
			n.BootID, n.SystemUUID = "x", r.Target.SystemUUID
		}
	})},
	{"a Lease is as long as any", "I5", func(p *Plan) { people(p); p.LongLeases = true }, looks(func(f *run.Fresh, _ remediate.Run) { f.Observation.Lease.Duration = 0 })},
	{"pods are always gone", "I7", nothing, looks(func(f *run.Fresh, _ remediate.Run) { f.Observation.PodsGone = remediate.Yes })},
	{"every BMC is the right one", "I8", only(fake.Stranger), Defect{Reading: func(r *bmc.Reading, uuid string) { r.Identity.UUID = uuid }}},
	{"any number at once", "I11", crowded, options(func(o *engine.Options) { o.Guards.MaxInFlight, o.Guards.MaxInFlightPerZone = 100, 100 })},
	{"all members are healthy", "I12", etcd, Defect{LateViews: 30 * time.Second, Look: func(f *run.Fresh, _ remediate.Run) {
		for i := range f.Members {
			f.Members[i].Healthy = true
		}
	}}},
	{"no host is its own", "I13", special, options(func(o *engine.Options) { o.Own = hosts.Own{} })},
	{"no host is protected", "I13", special, options(func(o *engine.Options) { o.Hosts = unprotected{o.Hosts} })},
	{"reprovisions though it must not", "I14", few, options(func(o *engine.Options) { o.Clusters[0].Reprovision = true })},
	{"any number a day", "I15", few, options(func(o *engine.Options) { o.Guards.MaxFencesPerDay, o.Guards.MinPowerInterval = 1000, time.Second })},
	{"believes any view", "I16", outages, options(func(o *engine.Options) {
		o.Guards.ViewMaxAge, o.Guards.ClockSkewMax, o.Guards.QuietPeriod = 100*time.Hour, 100*time.Hour, 0
	})},
	{"asks nobody about its clock", "I16", clocks, options(func(o *engine.Options) { o.Clusters[0].Watch = unskewed{o.Clusters[0].Watch} })},
	{"ends a pause by whatever clock", "I23", clocks, options(func(o *engine.Options) { o.Clusters[0].Watch = unskewed{o.Clusters[0].Watch} })},
	{"the store only says that it has stored", "I19", nothing, Defect{StoresNoRuns: true}},
	{"epochs are not compared, and claims have no end", "I19", fleet, Defect{IgnoresEpochs: true}},
	{"nor are versions", "I19", fleet, Defect{IgnoresEpochs: true, IgnoresVersions: true}},
	{"any registration will do", "I6", func(p *Plan) { alive(p); p.Isolation = remediate.IsolateTaint }, looks(anyBoot)},
	{"labels are not restored", "I20", nothing, Defect{RestoresNothing: true, Look: func(f *run.Fresh, _ remediate.Run) { f.Observation.Restored = remediate.Yes }}},
	{"a taint is put back for ever", "I21", func(p *Plan) { p.Plugin = true }, options(func(o *engine.Options) { o.Clusters[0].Kube = forgetful{o.Clusters[0].Kube} })},
	{"backups vanish", "I21", nothing, Defect{LosesBackups: true}},
	{"nobody else is ever at work", "I22", outages, looks(func(f *run.Fresh, _ remediate.Run) { f.Observation.Contested = remediate.No })},
	{"the Lease of medik8s is not taken", "I22", medik8s, Defect{TakesNoLocks: true}},
	{"nor is it renewed", "I22", func(p *Plan) { only(fake.IgnoresOff)(p); p.Waits, p.Medik8s = true, true }, Defect{RenewsNoLocks: true}},
	{"a pause is forgotten", "I23", people, Defect{ForgetsStops: true}},
	{"nothing is recorded", "I24", nothing, options(func(o *engine.Options) { o.Record = nil })},
	{"waits for ever for a Node", "L1", nothing, Defect{
		Options: func(o *engine.Options) { o.Run.RunTimeout = 1000 * time.Hour },
		Look: func(f *run.Fresh, r remediate.Run) {
			if r.Step == remediate.AwaitNode {
				*f = run.Fresh{Err: errLost}
			}
		}}},
	{"a start finds no runs", "L2", kills, Defect{ForgetsRuns: true}},
	{"calls a person for what heals", "L5", func(p *Plan) { only(fake.IgnoresOff)(p); p.Waits = true }, options(func(o *engine.Options) { o.Run.RetryInterval = 0 })},
	{"rests for ever", "L5", func(p *Plan) { only(fake.IgnoresOff)(p); p.Waits = true }, options(func(o *engine.Options) { o.Run.RetryInterval = 1000 * time.Hour })},
	{"acts on checks though only requests count", "I4", asked, options(func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeEvaluate })},
	{"does not notice that a request has gone", "I4", asked, remembersRequests()},
	{"holds no requests", "I20", asked, Defect{HoldsNoRequests: true}},
	{"lets a request go at once", "I20", asked, options(func(o *engine.Options) { o.Clusters[0].Requests = hasty{o.Clusters[0].Requests} })},
	{"is told of no change", "L4", nothing, options(func(o *engine.Options) { o.Clusters[0].Watch = &deafWatch{Watch: o.Clusters[0].Watch} })},
}

// TestAuditsNoticeMutants breaks the rules one by one.
func TestAuditsNoticeMutants(t *testing.T) {
	worlds := readWorlds(t)
	for _, m := range slices.Concat(mutants, ruleMutants, othersMutants) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			rules := map[string]int{}
			for seed := range worlds.of(m.rule, m.name) {
				p := NewPlan(seed)
				quiet(&p)
				m.plan(&p)
				p.StopAt = m.rule
				out, _ := Play(t, p, m.defect)
				maps.Copy(rules, out.Rules)
				if rules[m.rule] > 0 {
					worlds.found(m.rule, m.name, seed)
					return
				}
			}
			assert.Fail(t, m.rule+" was not found", "found was %v", slices.Sorted(maps.Keys(rules)))
		})
	}
	for _, m := range recordMutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.play(t, worlds)
		})
	}
}

// staleness serves for ever the first sick Node that was seen, with the UID of now,
// and its Lease.
func staleness() func(f *run.Fresh, r remediate.Run) {
	var mu sync.Mutex
	sick := map[string]run.Fresh{}
	return func(f *run.Fresh, r remediate.Run) {
		mu.Lock()
		defer mu.Unlock()
		if f.Node == nil || r.Step != remediate.PowerOff && r.Step != "" {
			return
		}
		old, known := sick[f.Node.Name]
		switch {
		case !f.Node.Ready():
			sick[f.Node.Name] = *f
		case known:
			n := *old.Node
			n.UID = f.Node.UID
			f.Node, f.Observation.Node.Ready, f.Lease, f.Observation.Lease = &n, remediate.No, old.Lease, old.Observation.Lease
		}
	}
}

// anyBoot makes every Node one that has just booted, and its Lease one that stands
// still.
func anyBoot(f *run.Fresh, r remediate.Run) {
	f.Observation.Lease.ResourceVersion = "1"
	if r.Step == remediate.AwaitNode || r.Step == remediate.RestoreNode {
		f.Observation.Node.BootID = "another"
	}
}

// deafWatch tells of what is there first, and of nothing that happens then.
type deafWatch struct {
	admit.Watch
	told bool
}

func (d *deafWatch) Changes() []policy.Change {
	list := d.Watch.Changes()
	if d.told {
		return nil
	}
	d.told = len(list) > 0
	return list
}

// unskewed is a view that does not compare the clocks.
type unskewed struct{ admit.Watch }

func (u unskewed) View() admit.View {
	v := u.Watch.View()
	v.Skew = 0
	return v
}

// remembersRequests serves each request for ever as it was seen first.
func remembersRequests() Defect {
	var mu sync.Mutex
	seen := map[string]*policy.Request{}
	return looks(func(f *run.Fresh, r remediate.Run) {
		mu.Lock()
		defer mu.Unlock()
		if r.Request == nil {
			return
		}
		if f.Request != nil && !isOver(f.Request) {
			seen[r.Request.UID] = f.Request
		} else if q := seen[r.Request.UID]; q != nil {
			f.Request, f.Observation.Contested = q, remediate.No
		}
	})
}

// hasty lets every request go as soon as its run is told.
type hasty struct{ engine.Requests }

func (h hasty) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	return errors.Join(h.Requests.Report(ctx, ref, told), h.RemoveFinalizer(ctx, ref, ""))
}

// forgetful is a Kube that does not know which keys a run has read back.
type forgetful struct{ engine.Kube }

func (f forgetful) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	r.Restored = nil
	return f.Kube.Look(ctx, r, backups)
}

func (f forgetful) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	r.Restored = nil
	return f.Kube.Restore(ctx, r, backups)
}

// handedOver is a world of requests to other remediators, with which people and controllers meddle.
func handedOver(p *Plan) { few(p); p.Others, p.Meddles = true, 60 }

// escalates is such a world with several remediators for one host.
func escalates(p *Plan) { handedOver(p); p.Escalates, p.Meddles = true, 5 }

// blindHandovers sees no request that was made.
type blindHandovers struct{ escalate.Objects }

func (blindHandovers) Read(context.Context, request.Object) (*policy.Request, error) {
	return nil, nil
}

// impatientHandovers takes every remediator for one that has not begun.
type impatientHandovers struct{ escalate.Objects }

func (i impatientHandovers) Read(ctx context.Context, o request.Object) (*policy.Request, error) {
	live, err := i.Objects.Read(ctx, o)
	if live != nil {
		live.Begun, live.Conditions = false, nil
	}
	return live, err
}

func (i impatientHandovers) Delete(ctx context.Context, o request.Object, _ *policy.Request) (wrote bool, err error) {
	live, err := i.Objects.Read(ctx, o)
	if live == nil {
		return false, err
	}
	return i.Objects.Delete(ctx, o, live)
}

// hoardingHandovers only says that it deletes requests.
type hoardingHandovers struct{ escalate.Objects }

func (hoardingHandovers) Delete(context.Context, request.Object, *policy.Request) (wrote bool, err error) {
	return true, nil
}

func hands(wrap func(escalate.Objects) escalate.Objects) Defect {
	return options(func(o *engine.Options) {
		if e, is := o.Escalation.(*escalate.Escalation); is {
			made := e.Objects
			e.Objects = func(cluster string) escalate.Objects { return wrap(made(cluster)) }
		}
	})
}

var othersMutants = []mutant{
	{"does not see what it made", "I22", escalates, hands(func(h escalate.Objects) escalate.Objects { return blindHandovers{h} })},
	{"does not wait for who is at work", "I22", escalates, hands(func(h escalate.Objects) escalate.Objects { return impatientHandovers{h} })},
	{"whatever has the name is its own", "I22", handedOver, Defect{OwnsWhateverIsThere: true}},
	{"asks beside the check's own controller", "I22", func(p *Plan) { escalates(p); p.Meddles = 60 }, Defect{SeesNoController: true}},
	{"asks without the Lease of medik8s", "I22", func(p *Plan) { handedOver(p); p.Medik8s = true }, Defect{TakesNoLocks: true}},
	{"the record of a request is only said to be stored", "I19", handedOver, Defect{StoresNoAsked: true}},
	{"any number of requests at once", "I11", func(p *Plan) { crowded(p); p.Others = true }, options(func(o *engine.Options) {
		o.Guards.MaxInFlight, o.Guards.MaxInFlightPerZone = 100, 100
	})},
	{"nothing is recorded of requests", "I24", handedOver, options(func(o *engine.Options) { o.Record = nil })},
	{"a start finds no requests", "L1", func(p *Plan) { handedOver(p); p.Kill = 0.005 }, Defect{ForgetsAsked: true}},
	{"leaves what it made behind", "L1", handedOver, hands(func(h escalate.Objects) escalate.Objects { return hoardingHandovers{h} })},
}
