package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
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

// opened wraps every device that an engine opens.
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
	c.Conditions = slices.Clone(n.Conditions)
	for i := range c.Conditions {
		c.Conditions[i].LastTransition = time.Time{}
	}
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
