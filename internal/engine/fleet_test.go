package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// fleet is a cluster of many Nodes, each with an entry in hosts.d.
type fleet struct {
	*fake.Cluster
	name string
}

// newFleet has as many Nodes in each zone, all Ready.
func newFleet(name string, size int, zones ...string) *fleet {
	f := &fleet{Cluster: fake.New(name), name: name}
	for _, zone := range zones {
		for range size {
			f.add(name, zone)
		}
	}
	return f
}

// add adds one host, of the next number, and returns its name.
func (f *fleet) add(prefix, zone string) (name string) {
	f.Do(func(s *fake.State) {
		n := len(s.Hosts)
		name = fmt.Sprintf("%s-%03d", prefix, n)
		s.AddHost(fake.Host{Name: name, UUID: fmt.Sprintf("4c4c4544-0042-3510-8054-%02x0000%06x", f.name[:1], n), Zone: zone}, policy.Machine{})
		s.Entries[name] = bmc.Host{Name: f.name + "/" + name, IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
			Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: name + ".test", Port: 623}}}}}}
	})
	return name
}

// fail silences the first Nodes.
func (f *fleet) fail(n int) {
	for i := range n {
		f.Handle(fmt.Sprintf("%s-%03d", f.name, i)).Hang()
	}
}

// fleets are the clusters of one engine, and its inventory.
type fleets []*fleet

func (all fleets) List(cluster string) []string {
	for _, f := range all {
		if f.name == cluster {
			return f.List(cluster)
		}
	}
	return nil
}

func (fleets) Protected(string, string) bool { return false }

func (fleets) Refused(string, string) string { return "" }
func (fleets) Unread() string                { return "" }

func (all fleets) Bare(cluster, node string) *bmc.Host {
	if h, found, _ := all.Find(context.Background(), cluster, node); found {
		return &h
	}
	return nil
}

func (all fleets) Find(ctx context.Context, cluster, node string) (h bmc.Host, found bool, err error) {
	for _, f := range all {
		if f.name == cluster {
			return f.Find(ctx, cluster, node)
		}
	}
	return bmc.Host{}, false, nil
}

func (all fleets) open(d bmc.Device) (p bmc.Power, err error) {
	for _, f := range all {
		if p, err = f.Open(d); err == nil {
			return p, nil
		}
	}
	return nil, err
}

// guard runs an engine over the fleets.
func (all fleets) guard(t *testing.T, store state.Store, change func(*engine.Options)) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	return all.guardBeating(t, store, change, func() {})
}

// guardBeating is guard for a test that listens to the beats for the watchdog.
func (all fleets) guardBeating(t *testing.T, store state.Store, change func(*engine.Options), beat func()) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	p := nodePolicy()
	p.Selector, p.Conditions[0].Timeout = labels.Everything(), 10*time.Second
	e, events, stop := startBeating(t, newWorld(), store, func(o *engine.Options) {
		o.Hosts, o.Clusters, o.Open = all, nil, all.open
		for _, f := range all {
			o.Clusters = append(o.Clusters, engine.ClusterOptions{Name: f.name, Mode: guard.ModeEvaluate, Isolation: remediate.IsolateDelete,
				IdentityMode: "required", Watch: f.Watch(), Kube: f, FileChecks: []policy.Check{p}})
		}
		o.Guards.ZoneKey, o.Guards.ZoneBreakerPercent, o.Guards.MaxInFlight = "zone", 101, 50
		if change != nil {
			change(o)
		}
	}, beat)
	ctx, cancel := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	for _, f := range all {
		lives.Go(func() { f.Run(ctx) })
	}
	stopAll := sync.OnceFunc(func() { stop(); cancel(); lives.Wait() })
	t.Cleanup(stopAll)
	return e, events, stopAll
}

// meddling is an inventory that has f called in the middle of a decision: when it is asked
// whether a host is protected.
type meddling struct {
	hosts.Inventory
	f func(node string)
}

func (a meddling) Protected(cluster, node string) bool {
	a.f(node)
	return a.Inventory.Protected(cluster, node)
}

// onDecision calls f in the middle of each decision about a host.
func onDecision(f func(node string)) func(*engine.Options) {
	return func(o *engine.Options) { o.Hosts = meddling{o.Hosts, f} }
}

// refusals lists the reasons that were told.
func refusals(t *testing.T, events *event.Stream) (list []string) {
	for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Refused }) {
		list = append(list, string(ev.Reason))
	}
	return list
}

// seenThrough is a watch with its changes passed through a function.
type seenThrough struct {
	admit.Watch
	change func([]policy.Change) []policy.Change
}

func (s seenThrough) Changes() []policy.Change { return s.change(s.Watch.Changes()) }

// through lets the engine see the world by a function.
func through(change func([]policy.Change) []policy.Change) func(*engine.Options) {
	return func(o *engine.Options) { o.Clusters[0].Watch = seenThrough{o.Clusters[0].Watch, change} }
}

func eachMachine(change func(*policy.Change, *policy.Machine)) func(*engine.Options) {
	return through(func(list []policy.Change) []policy.Change {
		for i := range list {
			if m, ok := list[i].Value.(*policy.Machine); ok {
				change(&list[i], m)
			}
		}
		return list
	})
}

// lookingAt is the world with its fresh looks passed through a function.
type lookingAt struct {
	engine.Kube
	change func(*run.Fresh)
}

func (l lookingAt) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	f := l.Kube.Look(ctx, r, backups)
	l.change(&f)
	return f
}

// crowd adds silent Nodes to the world. The inventory has a host for each whose
// password is in a Secret, and counts who asks for it.
type crowd struct {
	engine.Kube
	hosts.Inventory
	size int
	mu   sync.Mutex
	told bool
	// asked counts look-ups by Node, secrets those that went on to the Secret.
	asked   map[string]int
	secrets int
	hangs   bool // look-ups of Secrets
}

func inCrowd(w *world, size int) *crowd {
	return &crowd{Kube: w, Inventory: w, size: size, asked: map[string]int{}}
}

func (c *crowd) options(o *engine.Options) {
	through(c.add)(o)
	o.Clusters[0].Kube, o.Hosts = c, c
}

func (c *crowd) add(list []policy.Change) []policy.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.size {
		if c.told {
			break
		}
		name := fmt.Sprintf("silent-%03d", i)
		list = append(list, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: &policy.Node{
			Name: name, UID: name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: time.Now()}})}})
	}
	c.told = true
	return list
}

func (c *crowd) Bare(_, node string) *bmc.Host {
	if strings.Contains(node, "/") {
		return nil
	}
	return &bmc.Host{Name: "c/" + node, Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Secret: "ns/" + node}}}}}
}

func (c *crowd) Find(_ context.Context, _, node string) (bmc.Host, bool, error) {
	if strings.Contains(node, "/") { // a Machine's, which has no entry
		return bmc.Host{}, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[node]++
	return bmc.Host{Name: "c/" + node, Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Secret: "ns/" + node}}}}}, true, nil
}

func (c *crowd) Credentials(ctx context.Context, _, _ string) (string, bmc.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets++
	if c.hangs {
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
	}
	return "", bmc.Secret{}, errors.New("no such Secret")
}

func (c *crowd) counted() (nodes, secrets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked), c.secrets
}
