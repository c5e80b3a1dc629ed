package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const hostUUID = "4c4c4544-0042-3510-8054-b4c04f4d3132"

// world is one Node, its Machine, its host and its BMC, as plain values behind
// the engine's interfaces. The real ones are in test/; this one runs in virtual
// time and can fail in ways they cannot.
type world struct {
	mu       sync.Mutex
	on       bool
	exists   bool
	ready    string // status of the Ready condition
	since    time.Time
	uid      int
	rv       int
	boot     int
	lease    int
	restored bool
	deletes  int
	commands []bmc.Command
	offAt    time.Time
	check    policy.Check
	changed  chan struct{}
	told     map[policy.ObjectID]any // by the last Changes

	bmcUUID    string
	readErr    error
	contested  remediate.Answer
	ignoreOff  bool
	leaseAlive bool // the Lease moves although the BMC says Off
	forbidden  string
	machines   int // further healthy machines
	othersDown bool
	twin       bool      // another Node shows the UUID of n-1's host
	host       *bmc.Host // the inventory's entry of n-1
}

func newWorld() *world {
	return &world{
		on: true, exists: true, ready: "Unknown", since: time.Now(), uid: 1, rv: 1, boot: 1, lease: 1,
		changed: make(chan struct{}, 1), bmcUUID: hostUUID, contested: remediate.No, machines: 3,
		host: &bmc.Host{Name: "c/n-1", IdentityMode: "required", Source: "hosts.d",
			Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623}},
		check: policy.Check{
			Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "workers",
			Selector: labels.Everything(), Strategy: policy.PowerCycleHosts,
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		},
	}
}

// tick is the rest of the world: a kubelet that registers 20 s after power-on.
func (w *world) tick(ctx context.Context) {
	var onFor time.Duration
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		w.mu.Lock()
		if !w.on {
			onFor = 0
		} else if onFor += time.Second; onFor == 20*time.Second && w.offAt != (time.Time{}) {
			w.boot++
			if !w.exists {
				w.uid, w.exists = w.uid+1, true
			}
			w.ready, w.since, w.rv, w.lease = "True", time.Now(), w.rv+1, w.lease+1
		}
		if w.leaseAlive {
			w.lease++
		}
		w.mu.Unlock()
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (w *world) node() *policy.Node {
	if !w.exists {
		return nil
	}
	return &policy.Node{Name: "n-1", UID: fmt.Sprint("uid-", w.uid), BootID: fmt.Sprint("boot-", w.boot), SystemUUID: hostUUID, MachineID: "machine-n-1",
		Conditions: []policy.Condition{{Type: "Ready", Status: w.ready, LastTransition: w.since}}}
}

func (w *world) machine(name, node string) policy.Machine {
	return policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: name, UID: "m-" + name, NodeName: node, Phase: "Running"}
}

// Changes implements engine.Watch: it tells of everything, and of what went.
func (w *world) Changes() []policy.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []policy.Change
	now := w.objects()
	for id := range w.told {
		if now[id] == nil {
			list = append(list, policy.Change{ID: id})
		}
	}
	for id, v := range now {
		list = append(list, policy.Change{ID: id, Value: v})
	}
	w.told = now
	return list
}

// objects is everything that the cluster shows now.
func (w *world) objects() map[policy.ObjectID]any {
	all := map[policy.ObjectID]any{}
	s := w.snapshot()
	for i := range s.Checks {
		c := &s.Checks[i]
		all[policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}] = c
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		all[policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}] = m
	}
	for name, n := range s.Nodes {
		all[policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}] = n
	}
	return all
}

func (w *world) snapshot() policy.Snapshot {
	s := policy.Snapshot{Checks: []policy.Check{w.check}, Nodes: map[string]*policy.Node{}, Machines: []policy.Machine{w.machine("m-1", "n-1")}}
	if n := w.node(); n != nil {
		s.Nodes["n-1"] = n
	}
	for i := range w.machines {
		name := fmt.Sprint("other-", i)
		s.Machines = append(s.Machines, w.machine(name, name))
		ready := policy.Condition{Type: "Ready", Status: "True"}
		if w.othersDown && i == 0 {
			ready.Status = "Unknown" // for ever: no transition time
		}
		n := &policy.Node{Name: name, UID: name, Conditions: []policy.Condition{ready}}
		if w.twin && i == 0 {
			n.SystemUUID = hostUUID
		}
		s.Nodes[name] = n
	}
	return s
}

func (w *world) Changed() <-chan struct{} { return w.changed }
func (w *world) View() engine.View        { return engine.View{Synced: true} }

// Look implements engine.Kube.
func (w *world) Look(context.Context, remediate.Run, [][]byte) engine.Fresh {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machine("m-1", "n-1")
	f := engine.Fresh{Node: w.node(), Machine: &m, Seen: remediate.Seen{
		API: remediate.APIReachable, Contested: w.contested, Contender: "someone", PowerForbidden: w.forbidden,
		PodsGone: remediate.Yes, Restored: remediate.Ask(w.restored),
		Lease:   remediate.Lease{Known: true, ResourceVersion: fmt.Sprint(w.lease), RenewTime: w.since.Add(-time.Hour)},
		Machine: remediate.Machine{Exists: remediate.Yes, UID: m.UID, Replaceable: remediate.No, Why: "no controller owns it"},
		Node:    remediate.Node{Exists: remediate.Ask(w.exists)},
	}}
	if n := f.Node; n != nil {
		f.Seen.Node = remediate.Node{Exists: remediate.Yes, UID: n.UID, ResourceVersion: fmt.Sprint(w.rv), BootID: n.BootID,
			SystemUUID: n.SystemUUID, Ready: remediate.Ask(w.ready == "True")}
	}
	return f
}

func (w *world) Backup(context.Context, remediate.Target) ([]byte, remediate.Backup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.node()
	if n == nil {
		return nil, remediate.Backup{}, errors.New("no such node")
	}
	data, err := json.Marshal(map[string]string{"uid": n.UID})
	return data, remediate.Backup{UID: n.UID, ResourceVersion: fmt.Sprint(w.rv)}, err
}

func (w *world) Act(_ context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch a {
	case remediate.IsolateNode:
		if b.UID != fmt.Sprint("uid-", w.uid) || b.ResourceVersion != fmt.Sprint(w.rv) || len(backups) == 0 {
			return errors.New("conflict")
		}
		w.exists, w.restored = false, false
		w.deletes++
	case remediate.RestoreTargetNode:
		w.restored = true
	default:
		return fmt.Errorf("unexpected action %s in step %s", a, r.Step)
	}
	return nil
}

func (w *world) Credentials(context.Context, string, string) (string, bmc.Secret, error) {
	return "", bmc.Secret{}, errors.New("no Secrets here")
}

// Find implements engine.Hosts.
func (w *world) Find(_ context.Context, _, node string) (bmc.Host, bool, error) {
	if w.host == nil || node != "n-1" {
		return bmc.Host{}, false, nil
	}
	return *w.host, true, nil
}

// power is the BMC of n-1.
type power struct{ w *world }

func (p power) Read(context.Context) (bmc.Reading, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.readErr != nil {
		return bmc.Reading{}, p.w.readErr
	}
	s := bmc.Off
	if p.w.on {
		s = bmc.On
	}
	return bmc.Reading{State: s, At: time.Now(), Session: 1, Identity: bmc.Identity{UUID: p.w.bmcUUID}}, nil
}

func (p power) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.commands = append(p.w.commands, c)
	switch {
	case c == bmc.CommandOn:
		p.w.on = true
	case !p.w.ignoreOff:
		p.w.on, p.w.offAt = false, time.Now()
	}
	return bmc.Receipt{}, nil
}

func (p power) Close(context.Context) error { return nil }

// failingStore is a store that refuses every write while it is told to.
type failingStore struct {
	state.Store
	mu   sync.Mutex
	fail bool
}

func (s *failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return 0, errors.New("disk full")
	}
	return s.Store.Put(ctx, r)
}

func (s *failingStore) set(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// start runs an engine over the world until the test's bubble ends it.
func start(t *testing.T, w *world, store state.Store, change func(*engine.Options)) (*engine.Engine, *engine.Stream, func()) {
	t.Helper()
	events := engine.NewStream()
	opt := engine.Options{
		Store: store, Hosts: w, Open: func(bmc.Host) (bmc.Power, error) { return power{w}, nil }, Events: events,
		Clusters: []engine.ClusterOptions{{Name: "c", Mode: policy.ModeEvaluate, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: w, Kube: w}},
		Guards: policy.Limits{ViewMaxAge: time.Minute, ClockSkewMax: time.Minute, MaxInFlight: 5, MaxInFlightPercent: 100,
			MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3, MaxFencesPerDay: 10},
		Run: remediate.Limits{OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: time.Minute, OnDeadline: 3 * time.Minute,
			RestoreTimeout: 10 * time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: time.Minute, MaxAttempts: 3, PowerOnFoundOff: true,
			ReadyTimeout: 10 * time.Minute},
		Power: engine.PowerTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second},
	}
	if change != nil {
		change(&opt)
	}
	e, err := engine.New(t.Context(), opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, func() {}) }()
	ticking := make(chan struct{})
	go func() { w.tick(ctx); close(ticking) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
			<-ticking
		})
	}
	t.Cleanup(stop)
	return e, events, stop
}

func openStore(t *testing.T, dir string) state.Store {
	t.Helper()
	s, err := state.OpenBolt(filepath.Join(dir, "state.db"))
	require.NoError(t, err)
	return s
}

func (w *world) count(c bmc.Command) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, each := range w.commands {
		if each == c {
			n++
		}
	}
	return n
}

func (w *world) deleted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deletes
}
