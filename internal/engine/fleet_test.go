package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// fleet is a cluster of many Nodes, each with a BMC that obeys and a kubelet that
// registers after a boot. It counts how many hosts are off at once.
type fleet struct {
	mu      sync.Mutex
	name    string
	nodes   []*member
	changed chan struct{}
	mostOff map[string]int        // at once, by zone; "all" is all
	onFind  func(node string)     // mu is not held
	ready   map[*member]time.Time // when it will be Ready again
}

type member struct {
	name, zone, ip string
	on, exists     bool
	status         string // of Ready
	since          time.Time
	uid, boot, rv  int
	controlPlane   bool
	restored       bool
	reads          int // of its BMC
}

func (m *member) uuid() string {
	return fmt.Sprintf("4c4c4544-0042-3510-8054-%012x", len(m.name)<<16+m.last())
}

func (m *member) last() (n int) {
	_, _ = fmt.Sscanf(m.name[len(m.name)-3:], "%d", &n)
	return n
}

// newFleet has as many Nodes in each zone, all Ready.
func newFleet(name string, size int, zones ...string) *fleet {
	f := &fleet{name: name, changed: make(chan struct{}, 1), mostOff: map[string]int{}, ready: map[*member]time.Time{}}
	for _, zone := range zones {
		for range size {
			n := len(f.nodes)
			f.nodes = append(f.nodes, &member{name: fmt.Sprintf("%s-%03d", name, n), zone: zone, ip: fmt.Sprintf("%s-%d.test", name, n),
				on: true, exists: true, status: "True", since: time.Now(), uid: 1, boot: 1, rv: 1})
		}
	}
	return f
}

// fail silences the first Nodes.
func (f *fleet) fail(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes[:n] {
		m.status, m.since = "Unknown", time.Now()
	}
}

func (f *fleet) silent() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		if !m.exists || m.status != "True" {
			n++
		}
	}
	return n
}

func (f *fleet) find(node string) *member {
	for _, m := range f.nodes {
		if m.name == node {
			return m
		}
	}
	return nil
}

// live lets kubelets register until ctx ends.
func (f *fleet) live(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		f.mu.Lock()
		for m, at := range f.ready {
			if m.on && !time.Now().Before(at) {
				delete(f.ready, m)
				m.boot, m.rv, m.status, m.since = m.boot+1, m.rv+1, "True", time.Now()
				if !m.exists {
					m.uid, m.exists = m.uid+1, true
				}
			}
		}
		f.mu.Unlock()
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

func (m *member) node() *policy.Node {
	if !m.exists {
		return nil
	}
	return &policy.Node{Name: m.name, UID: fmt.Sprint(m.name, m.uid), BootID: fmt.Sprint("boot-", m.boot), SystemUUID: m.uuid(), ControlPlane: m.controlPlane,
		Labels: map[string]string{"zone": m.zone}, Conditions: []policy.Condition{{Type: "Ready", Status: m.status, LastTransition: m.since}}}
}

func (f *fleet) Changes() (list []policy.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		ch := policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: m.name}}
		if n := m.node(); n != nil {
			ch.Value = n
		}
		list = append(list, ch)
		if m.controlPlane {
			list = append(list, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "kube-system", Name: "etcd-" + m.name},
				Value: &policy.EtcdPod{Namespace: "kube-system", Name: "etcd-" + m.name, Node: m.name, Ready: m.status == "True"}})
		}
	}
	return list
}

func (f *fleet) Changed() <-chan struct{} { return f.changed }
func (f *fleet) View() engine.View        { return engine.View{Synced: true} }

func (f *fleet) Look(_ context.Context, r remediate.Run, _ [][]byte) engine.Fresh {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(r.Target.Node)
	fresh := engine.Fresh{Node: m.node(), MembersKnown: true, Seen: remediate.Seen{
		API: remediate.APIReachable, Contested: remediate.No, PodsGone: remediate.Yes, Restored: remediate.Ask(m.restored),
		Lease:   remediate.Lease{Known: true, ResourceVersion: fmt.Sprint(m.boot), RenewTime: m.since.Add(-time.Hour)},
		Machine: remediate.Machine{Exists: remediate.No}, Node: remediate.Node{Exists: remediate.Ask(m.exists)},
	}}
	for _, each := range f.nodes {
		if each.controlPlane {
			fresh.Members = append(fresh.Members, policy.Member{Node: each.name, Healthy: each.exists && each.status == "True"})
		}
	}
	if n := fresh.Node; n != nil {
		fresh.Seen.Node = remediate.Node{Exists: remediate.Yes, UID: n.UID, ResourceVersion: fmt.Sprint(m.rv), BootID: n.BootID,
			SystemUUID: n.SystemUUID, Ready: remediate.Ask(m.status == "True")}
	}
	return fresh
}

func (f *fleet) Backup(_ context.Context, t remediate.Target) ([]byte, remediate.Backup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.find(t.Node).node()
	if n == nil {
		return nil, remediate.Backup{}, errors.New("no such node")
	}
	return []byte("{}"), remediate.Backup{UID: n.UID, ResourceVersion: fmt.Sprint(f.find(t.Node).rv)}, nil
}

func (f *fleet) Act(_ context.Context, r remediate.Run, a remediate.Action, _ [][]byte, _ remediate.Backup) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m := f.find(r.Target.Node); a {
	case remediate.IsolateNode:
		m.exists, m.restored = false, false
	case remediate.RestoreTargetNode:
		m.restored = true
	}
	return nil
}

func (f *fleet) Credentials(context.Context, string, string) (string, bmc.Secret, error) {
	return "", bmc.Secret{}, errors.New("no Secrets here")
}

func (f *fleet) Announce(context.Context, engine.Announcement) (time.Duration, string, error) {
	return leaseDuration, "", nil
}

// off counts the hosts that are off now, and remembers the most.
func (f *fleet) off() {
	now := map[string]int{}
	for _, m := range f.nodes {
		if !m.on {
			now[m.zone]++
			now["all"]++
		}
	}
	for zone, n := range now {
		f.mostOff[zone] = max(f.mostOff[zone], n)
	}
}

// bmcOf is the BMC of one host.
type bmcOf struct {
	f *fleet
	m *member
}

func (b bmcOf) Read(context.Context) (bmc.Reading, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.m.reads++
	s := bmc.Off
	if b.m.on {
		s = bmc.On
	}
	return bmc.Reading{State: s, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: b.m.uuid()}}, nil
}

func (b bmcOf) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if b.m.on = c == bmc.CommandOn; b.m.on {
		b.f.ready[b.m] = time.Now().Add(20 * time.Second)
	}
	b.f.off()
	return bmc.Receipt{}, nil
}

func (b bmcOf) Close(context.Context) error { return nil }

// fleets are the clusters of one engine, and its inventory.
type fleets []*fleet

func (all fleets) List(string) []string { return nil }

func (all fleets) Find(_ context.Context, cluster, node string) (bmc.Host, bool, error) {
	for _, f := range all {
		if f.name != cluster {
			continue
		}
		if f.onFind != nil {
			f.onFind(node)
		}
		return bmc.Host{Name: cluster + "/" + node, IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
			Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: f.find(node).ip, Port: 623}}}}}}, true, nil
	}
	return bmc.Host{}, false, nil
}

// guard runs an engine over the fleets.
func (all fleets) guard(t *testing.T, store state.Store, change func(*engine.Options)) (*engine.Engine, *engine.Stream, func()) {
	t.Helper()
	return all.guardBeating(t, store, change, func() {})
}

// guardBeating is guard for a test that listens to the beats for the watchdog.
func (all fleets) guardBeating(t *testing.T, store state.Store, change func(*engine.Options), beat func()) (*engine.Engine, *engine.Stream, func()) {
	t.Helper()
	p := nodePolicy()
	p.Selector, p.Conditions[0].Timeout = labels.Everything(), 10*time.Second
	e, events, stop := startBeating(t, newWorld(), store, func(o *engine.Options) {
		o.Hosts, o.Clusters = all, nil
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			for _, f := range all {
				for _, m := range f.nodes {
					if m.ip == d.Endpoint.Host {
						return bmcOf{f, m}, nil
					}
				}
			}
			return nil, errors.New("no such BMC")
		}
		for _, f := range all {
			o.Clusters = append(o.Clusters, engine.ClusterOptions{Name: f.name, Mode: policy.ModeEvaluate, Isolation: remediate.IsolateDelete,
				IdentityMode: "required", Watch: f, Kube: f, FileChecks: []policy.Check{p}})
		}
		o.Guards.ZoneKey, o.Guards.ZoneBreakerPercent, o.Guards.MaxInFlight = "zone", 101, 50
		if change != nil {
			change(o)
		}
	}, beat)
	ctx, cancel := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	for _, f := range all {
		lives.Go(func() { f.live(ctx) })
	}
	return e, events, func() { stop(); cancel(); lives.Wait() }
}

func (f *fleet) asked(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(node).reads > 0
}

// refusals lists the reasons that were told.
func refusals(t *testing.T, events *engine.Stream) (list []string) {
	for _, ev := range eventsOf(t, events, func(ev engine.Event) bool { return ev.Type == engine.EventRefused }) {
		list = append(list, ev.Reason)
	}
	return list
}
