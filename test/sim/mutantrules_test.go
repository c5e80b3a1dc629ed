package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// wrong is a world in which much is written down wrongly, about hosts that break often.
func wrong(p *Plan) { few(p); p.Mistakes, p.OnePassword = 120, true }

// repointed is wrong, where BareMetalHosts know the way.
func repointed(p *Plan) { wrong(p); p.Metal = true }

// unswitched is a world in which people give many orders about hosts that cannot be switched.
func unswitched(p *Plan) { few(p); only(fake.Deaf)(p); p.People = 200 }

// grows is a world in which policies.d grows, often.
func grows(p *Plan) { few(p); p.Policies = 60 }

// hung is a world in which many BMCs hang, with many runs at once.
func hung(p *Plan) { p.Workers, p.Zones, p.Hosts = 8, 0, 40; only(fake.Hangs)(p) }

func opened(wrap func(bmc.Power) bmc.Power) func(*engine.Options) {
	return func(o *engine.Options) {
		open := o.Open
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			p, err := open(d)
			if err != nil {
				return nil, err
			}
			return wrap(p), nil
		}
	}
}

// cycling is a driver that has a better idea than Off.
type cycling struct{ bmc.Power }

func (c cycling) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	if cmd == bmc.CommandOff {
		cmd = bmc.CommandOn + bmc.CommandOff + 1
	}
	return c.Power.Send(ctx, cmd)
}

// queued is a device that is asked in one queue with all others.
type queued struct {
	bmc.Power
	turn chan struct{}
}

func (q queued) Read(ctx context.Context) (bmc.Reading, error) {
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	return q.Power.Read(ctx)
}

// unlisted is an inventory that nobody can look through for what is there twice.
type unlisted struct{ hosts.Inventory }

func (unlisted) List(string) []string { return nil }

// spoiltWatch is a watch whose changes are spoilt on the way.
type spoiltWatch struct {
	admit.Watch
	spoil func(*policy.Change)
}

func (r spoiltWatch) Changes() []policy.Change {
	list := slices.Clone(r.Watch.Changes())
	for i := range list {
		r.spoil(&list[i])
	}
	return list
}

func watch(spoil func(*policy.Change)) func(*engine.Options) {
	return func(o *engine.Options) { o.Clusters[0].Watch = spoiltWatch{o.Clusters[0].Watch, spoil} }
}

// sickForever forgets since when a Node is as it is.
func sickForever(n *policy.Node) *policy.Node {
	c := *n
	conditions := slices.Collect(n.Conditions.All())
	for i := range conditions {
		conditions[i].LastTransition = time.Time{}
	}
	c.Conditions = policy.ConditionsOf(conditions)
	return &c
}

// neverMoved keeps the address that a BareMetalHost had first.
func neverMoved(c *policy.Change) {
	if h, ok := c.Value.(*policy.Host); ok && h != nil {
		same, n := *h, 0
		if _, err := fmt.Sscanf(h.Name, "n-%d", &n); err == nil {
			same.Address = fmt.Sprintf("ipmi://192.0.2.%d", n+1)
		}
		c.Value = &same
	}
}

// takenAsAll makes a selector that cannot be read one that selects everything.
func takenAsAll(c *policy.Change) {
	if check, ok := c.Value.(*policy.Check); ok && check != nil && check.Invalid != "" {
		all := *check
		all.Invalid, all.Selector = "", labels.Everything()
		c.Value = &all
	}
}

var ruleMutants = []mutant{
	{"a driver cycles the power", "I3", nothing, options(opened(func(p bmc.Power) bmc.Power { return cycling{p} }))},
	{"nobody looks for what is there twice", "I9", wrong, options(func(o *engine.Options) { o.Hosts = unlisted{o.Hosts} })},
	{"Nodes may share a UUID", "I9", wrong, options(watch(func(c *policy.Change) {
		if n, ok := c.Value.(*policy.Node); ok && n != nil {
			each := *n
			if strings.HasPrefix(n.Name, "ghost-") {
				each.SystemUUID = ""
			}
			c.Value = &each
		}
	}))},
	{"commands go where the entry leads now", "I10", wrong, Defect{FollowsEntries: true}},
	{"nobody sees where a BareMetalHost leads now", "I10", repointed, options(watch(neverMoved))},
	{"a Node is sick for ever", "I17", nothing, Defect{
		Options: watch(func(c *policy.Change) {
			if n, ok := c.Value.(*policy.Node); ok && n != nil {
				c.Value = sickForever(n)
			}
		}),
		Look: func(f *run.Fresh, _ remediate.Run) {
			if f.Node != nil {
				f.Node = sickForever(f.Node)
			}
		}}},
	{"a selector that cannot be read selects all", "I18", wrong, options(watch(takenAsAll))},
	{"a start with more is not quiet", "I18", grows, options(func(o *engine.Options) { o.Guards.QuietPeriod = 0 })},
	{"errors repeat the password", "I25", only(fake.Busy), Defect{TellsPasswords: true}},
	{"nothing is heard beside a word", "I26", unswitched, Defect{PeopleLie: true, Reading: func(r *bmc.Reading, _ string) { r.State = bmc.Unknown }}},
	{"all BMCs are asked in one queue", "L3", hung, options(func(o *engine.Options) {
		turn := make(chan struct{}, 1)
		o.Power.ReadTimeout, o.Guards.MaxInFlight = 2*time.Minute, 8
		opened(func(p bmc.Power) bmc.Power { return queued{p, turn} })(o)
	})},
}

// recordMutant breaks a rule about the record and the world. Other laws have the same number, so says is
// what the violation of this one says.
type recordMutant struct {
	name, rule, says string
	plan             func(*Plan)
	defect           Defect
}

// takesNames is a world in which other machines take names, and Machines and BareMetalHosts are made anew.
func takesNames(p *Plan) { few(p); p.Names, p.Waits, p.Retry = 30, true, 5*time.Second }

// outlived is takesNames with hosts that do not boot any more, so that others have their names.
func outlived(p *Plan) { takesNames(p); p.Names, p.Breaks = 60, 0.6 }

// takesMetal is takesNames with BareMetalHosts.
func takesMetal(p *Plan) { takesNames(p); p.Metal = true }

// copied is a world whose kubeconfig leads to a copy of the cluster at times.
func copied(p *Plan) { few(p); p.Copies, p.Waits, p.Retry = 30, true, 5*time.Second }

// tainted is a world of hosts that live on while their BMCs say Off, and whose Nodes stay.
func tainted(p *Plan) { alive(p); p.Isolation = remediate.IsolateTaint }

// limited is a world of hosts that do not boot any more, and a check with a limit.
func limited(p *Plan) {
	few(p)
	p.Workers, p.Breaks, p.Waits, p.Limit, p.Hosts, p.Attempts, p.Kill = 6, 1, true, 1, 2, 1, 0.003
}

// again is a world of runs that begin again, often: their hosts cannot be switched off.
func again(p *Plan) {
	few(p)
	only(fake.IgnoresOff)(p)
	p.Hosts, p.Waits, p.Retry, p.StartsPerHour, p.Kill = 2, true, time.Second, 2, 0.003
}

// zoned is a world of two zones and hosts that do not boot any more.
func zoned(p *Plan) {
	few(p)
	p.Workers, p.Zones, p.Hosts, p.Breaks, p.Waits, p.Retry, p.Attempts, p.Kill = 9, 2, 10, 0.6, true, time.Second, 1, 0.003
}

// refuted is a world of names that move often, and a fenced that forgets what it has not stored.
func refuted(p *Plan) { few(p); p.Hosts, p.Names, p.Kill = 1, 60, 0.003 }

// heldByMachine is a world of people, of a check that selects Nodes.
func heldByMachine(p *Plan) { few(p); p.People, p.Limit, p.Waits = 100, 3, true }

// lostRuns is a world of requests whose runs an old backup does not know.
func lostRuns(p *Plan) { asked(p); p.Restores, p.CallLost, p.Kill = 20, 0.05, 0.003 }

// changeable is a world of requests that are given up in mid-run, at times while the host is off for long.
func changeable(p *Plan) { asked(p); p.Withdraws, p.Waits = 120, false }

// restored is a world of old backups, of runs that are long in step 1.
func restored(p *Plan) { few(p); only(fake.IgnoresOff)(p); p.Hosts, p.Restores, p.Waits = 6, 12, true }

// reads is a fenced that reads runs from the store other than they are.
func reads(change func(fields map[string]any)) Defect {
	return Defect{Stored: func(kind state.Kind, fields map[string]any) {
		if kind == state.KindRun {
			change(fields)
		}
	}}
}

// uninterrupted hides from a run that it began again.
func uninterrupted(fields map[string]any) {
	delete(fields, "tries")
	list, _ := fields["steps"].([]any)
	fields["steps"] = slices.DeleteFunc(list, func(v any) bool {
		step, _ := v.(map[string]any)["step"].(string)
		return remediate.Step(step).Idle()
	})
}

// sameMachine makes each Node one of the machine of the record.
func sameMachine(f *run.Fresh, r remediate.Run) {
	if f.Observation.Node.Exists == remediate.Yes {
		f.Observation.Node.SystemUUID = r.Target.SystemUUID
	}
}

func unknownMachines(c *policy.Change) {
	if c.ID.Kind == "Machine" {
		c.Value = nil
	}
}

// unchanged shows the Node of the record in step 1, as sick as it was.
func unchanged(f *run.Fresh, r remediate.Run) {
	if f.Node == nil || !f.Node.Ready() || r.Step != remediate.PowerOff {
		return
	}
	n := *f.Node
	n.UID = r.Target.NodeUID
	conditions := slices.Collect(n.Conditions.All())
	for i := range conditions {
		conditions[i].Status, conditions[i].LastTransition = "False", time.Now().Add(-time.Hour)
	}
	n.Conditions = policy.ConditionsOf(conditions)
	f.Node = &n
	seen := &f.Observation.Node
	seen.UID, seen.BootID, seen.Ready = r.Target.NodeUID, r.Target.BootID, remediate.No
}

// blindWhenOld sees nothing of the cluster for a run whose record is an old one.
func blindWhenOld(f *run.Fresh, r remediate.Run) {
	if n := len(r.Steps); n > 0 && time.Since(r.Steps[n-1].Started) > 8*time.Minute {
		*f = run.Fresh{Err: errLost}
	}
}

// early says that a request is not processed as soon as it has a run.
type early struct{ engine.Requests }

func (e early) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	told.Conditions = slices.Clone(told.Conditions)
	for i := range told.Conditions {
		if told.Conditions[i].Type == request.Processing {
			told.Conditions[i].Status = "False"
		}
	}
	return e.Requests.Report(ctx, ref, told)
}

// careless lets a request go whose run nobody knows.
type careless struct{ engine.Requests }

func (c careless) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	err := c.Requests.Report(ctx, ref, told)
	if told.Lost {
		err = errors.Join(err, c.RemoveFinalizer(ctx, ref, ""))
	}
	return err
}

var recordMutants = []recordMutant{
	{"every machine of this name is its own", "I27", "the Node is on machine", outlived, looks(sameMachine)},
	{"every Machine of this name is its own", "I27", "the Machine is another one", takesNames, looks(func(f *run.Fresh, r remediate.Run) {
		f.Observation.Machine.UID = r.Target.MachineUID
	})},
	{"so is every BareMetalHost", "I27", "the BareMetalHost is another one", takesMetal, looks(func(f *run.Fresh, r remediate.Run) {
		f.Observation.BareMetalHostUID = r.Target.BareMetalHostUID
	})},
	{"and every cluster", "I27", "the cluster is another one", copied, looks(func(f *run.Fresh, r remediate.Run) {
		if r.Target.ClusterUID != "" {
			f.Observation.ClusterUID = r.Target.ClusterUID
		}
	})},
	{"forgets what it has removed", "I11", "fenced has removed", limited, reads(func(f map[string]any) { f["nodeLabels"] = map[string]any{} })},
	{"to begin again is no start", "I11", "start number", again, reads(uninterrupted)},
	{"a run counts in another zone", "I11", "of them in its zone", zoned, reads(func(f map[string]any) { f["nodeLabels"] = map[string]any{"zone": "elsewhere"} })},
	{"a pin is for ever", "I8", "a health check found", refuted, Defect{Stored: func(kind state.Kind, f map[string]any) {
		if kind == state.KindPin {
			delete(f, "contradicted")
		}
	}}},
	{"every kubelet is a sign of life", "I5", "no reading of Off was false", takesNames, looks(sameMachine)},
	{"does not look at the Lease of a host that it has isolated", "I5", "switches on although the Lease moved", tainted, looks(func(f *run.Fresh, r remediate.Run) {
		if !r.Isolated.IsZero() && r.OffLease != nil {
			f.Observation.Lease.ResourceVersion = r.OffLease.ResourceVersion
			f.Observation.PodsGone = remediate.No // so step 3 takes long
		}
	})},
	{"says too early that it is over", "I22", "says Processing=False", changeable, options(func(o *engine.Options) { o.Clusters[0].Requests = early{o.Clusters[0].Requests} })},
	{"a Machine has no Node", "I23", "after the pause or hold", heldByMachine, Defect{
		Options: watch(unknownMachines),
		Look:    func(f *run.Fresh, _ remediate.Run) { f.Machine = nil },
	}},
	{"lets a request go whose run it does not know", "I20", "no run is known", lostRuns, options(func(o *engine.Options) { o.Clusters[0].Requests = careless{o.Clusters[0].Requests} })},
	{"an old run is still right", "I4", "of an old backup", restored, looks(unchanged)},
	{"an old run goes on for ever", "L1", "of an old backup is open", restored, looks(blindWhenOld)},
}

// play finds a world in which the mutant is noticed. In the same world without the mutant nothing is
// found.
func (m recordMutant) play(t *testing.T, worlds *mutantWorlds) {
	t.Helper()
	says := func(v Violation) bool { return v.Rule == m.rule && strings.Contains(v.Text, m.says) }
	for seed := range worlds.of(m.rule, m.name) {
		p := NewPlan(seed)
		quiet(&p)
		m.plan(&p)
		control := p
		p.StopAt = m.rule
		if _, found := Play(t, p, m.defect); !slices.ContainsFunc(found, says) {
			continue
		}
		worlds.found(m.rule, m.name, seed)
		_, found := Play(t, control, Defect{})
		for _, v := range found {
			t.Errorf("without the mutant: %s", v.Text)
		}
		return
	}
	assert.Fail(t, "no violation of "+m.rule+" says: "+m.says)
}
