package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
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
	unsynced   bool
	unlabelled bool      // n-1 carries no label
	foreign    bool      // the Nodes are another cluster's
	twin       bool      // another Node shows the UUID of n-1's host
	host       *bmc.Host // the inventory's entry of n-1

	machineAPI   string // of the Machines; empty: there are none
	marked       int    // how often m-1 was handed over to its owner
	controlPlane bool
	members      []policy.Member // as a look past the cache sees them
	etcd         []policy.EtcdPod
	owner        policy.Owner
	looks        int
	onLook       func(looks int) // w.mu is held
	reads        int             // of the BMC

	ticked time.Time // when it last went on
	onFor  time.Duration
	eyes   []chan struct{} // of engines beside the first

	apiDown          bool
	apiLost, apiBack time.Time
	answersLost      bool // the API is lost in the moment of the deletion

	announced    int
	announcement engine.Announcement
	foreigner    string // who holds the Lease fenced
	announceErr  error
}

func newWorld() *world {
	return &world{
		on: true, exists: true, ready: "Unknown", since: time.Now(), uid: 1, rv: 1, boot: 1, lease: 1,
		changed: make(chan struct{}, 1), bmcUUID: hostUUID, contested: remediate.No, machines: 3,
		machineAPI: policy.OpenShiftMachineAPI,
		host: &bmc.Host{Name: "c/n-1", IdentityMode: "required", Source: "hosts.d",
			Levels: []bmc.Level{{Devices: []bmc.Device{{
				Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623}}}}}},
		check: policy.Check{
			Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "workers",
			Selector: labels.Everything(), Strategy: policy.PowerCycleHosts,
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		},
	}
}

// tick is the rest of the world: a kubelet that registers 20 s after power-on.
// Several engines let it go on; it does so once a second all the same.
func (w *world) tick(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		w.mu.Lock()
		if now := time.Now(); now.Sub(w.ticked) >= time.Second {
			w.ticked = now
			w.live()
		}
		w.mu.Unlock()
		for _, each := range append(w.eyes, w.changed) {
			select {
			case each <- struct{}{}:
			default:
			}
		}
	}
}

// live is what happens in a second. w.mu is held.
func (w *world) live() {
	if !w.on {
		w.onFor = 0
	} else if w.onFor += time.Second; w.onFor == 20*time.Second && w.offAt != (time.Time{}) {
		w.boot++
		if !w.exists {
			w.uid, w.exists = w.uid+1, true
		}
		w.ready, w.since, w.rv, w.lease = "True", time.Now(), w.rv+1, w.lease+1
	}
	if w.leaseAlive {
		w.lease++
	}
}

var rack = map[string]string{"rack": "r1"}

func (w *world) node() *policy.Node {
	if !w.exists {
		return nil
	}
	labels := rack
	if w.unlabelled {
		labels = nil
	}
	return &policy.Node{Name: "n-1", UID: fmt.Sprint("uid-", w.uid), BootID: fmt.Sprint("boot-", w.boot), SystemUUID: hostUUID, MachineID: "machine-n-1", ControlPlane: w.controlPlane, Labels: labels,
		Conditions: []policy.Condition{{Type: "Ready", Status: w.ready, LastTransition: w.since}}}
}

func (w *world) machine(name, node string) policy.Machine {
	told := ""
	if w.marked > 0 && name == "m-1" {
		told = "False"
	}
	return policy.Machine{OwnerRemediated: told, APIVersion: w.machineAPI, Namespace: "ns", Name: name, UID: "m-" + name, NodeName: node, Phase: "Running",
		ControlPlane: w.controlPlane && name == "m-1", ControllerOwner: w.owner, ClusterName: "c"}
}

// Changes implements engine.Watch: it tells of everything, and of what went.
func (w *world) Changes() []policy.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []policy.Change
	if w.apiDown {
		return nil
	}
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
	for i := range s.Etcd {
		p := &s.Etcd[i]
		all[policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name}] = p
	}
	if w.machineAPI == policy.ClusterAPIV1Beta2 {
		all[policy.ObjectID{APIVersion: w.machineAPI, Kind: "Cluster", Namespace: "ns", Name: "c"}] = w.cluster()
	}
	for i := range s.Machines {
		if w.machineAPI == "" {
			break
		}
		m := &s.Machines[i]
		all[policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}] = m
	}
	for name, n := range s.Nodes {
		all[policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}] = n
	}
	return all
}

func (w *world) snapshot() policy.Snapshot {
	s := policy.Snapshot{Checks: []policy.Check{w.check}, Etcd: w.etcd, Nodes: map[string]*policy.Node{}, Machines: []policy.Machine{w.machine("m-1", "n-1")}}
	if n := w.node(); n != nil {
		s.Nodes["n-1"] = n
	}
	for i := range w.machines {
		name := fmt.Sprint("other-", i)
		s.Machines = append(s.Machines, w.machine(name, name))
		if w.foreign {
			name = "foreign-" + name
		}
		ready := policy.Condition{Type: "Ready", Status: "True"}
		if w.othersDown && i == 0 {
			ready.Status = "Unknown" // for ever: no transition time
		}
		n := &policy.Node{Name: name, UID: name, Conditions: []policy.Condition{ready}, Labels: rack, ControlPlane: w.controlPlane && w.etcdOn(name)}
		if w.twin && i == 0 {
			n.SystemUUID = hostUUID
		}
		s.Nodes[name] = n
	}
	return s
}

// etcdOn says whether an etcd member runs on a Node.
func (w *world) etcdOn(node string) bool {
	return slices.ContainsFunc(w.etcd, func(p policy.EtcdPod) bool { return p.Node == node })
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) View() engine.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := engine.View{Synced: !w.unsynced, Since: w.apiBack}
	if w.apiDown {
		v.Age = time.Since(w.apiLost)
	}
	return v
}

// Look implements engine.Kube.
func (w *world) Look(context.Context, remediate.Run, [][]byte) engine.Fresh {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.onLook != nil {
		w.onLook(w.looks)
	}
	if w.apiDown {
		return engine.Fresh{Err: errAPI}
	}
	m := w.machine("m-1", "n-1")
	f := engine.Fresh{Node: w.node(), Machine: &m, Cluster: w.cluster(), Members: w.members, MembersKnown: w.members != nil, Seen: remediate.Seen{
		API: remediate.APIReachable, Contested: w.contested, Contender: "someone", PowerForbidden: w.forbidden,
		PodsGone: remediate.Yes, Restored: remediate.Ask(w.restored),
		Lease: remediate.Lease{Known: true, ResourceVersion: fmt.Sprint(w.lease), RenewTime: w.since.Add(-time.Hour)},
		Machine: remediate.Machine{Exists: remediate.Yes, UID: m.UID, Marked: w.marked > 0,
			Replaceable: remediate.Ask(w.owner != policy.Owner{}), Why: "no controller owns it"},
		Node: remediate.Node{Exists: remediate.Ask(w.exists)},
	}}
	if w.machineAPI == "" {
		f.Machine, f.Seen.Machine = nil, remediate.Machine{Exists: remediate.No}
	}
	if n := f.Node; n != nil {
		f.Seen.Node = remediate.Node{Exists: remediate.Yes, UID: n.UID, ResourceVersion: fmt.Sprint(w.rv), BootID: n.BootID,
			SystemUUID: n.SystemUUID, Ready: remediate.Ask(w.ready == "True")}
	}
	return f
}

func (w *world) cluster() *policy.Cluster {
	ago := time.Now().Add(-24 * time.Hour)
	return &policy.Cluster{Namespace: "ns", Name: "c", ControlPlaneInitialized: true, ControlPlaneSince: ago,
		InfrastructureReady: true, InfrastructureReadySince: ago}
}

func (w *world) Backup(context.Context, remediate.Target) ([]byte, remediate.Backup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.node()
	if n == nil || w.apiDown {
		return nil, remediate.Backup{}, errors.New("no such node")
	}
	data, err := json.Marshal(map[string]string{"uid": n.UID})
	return data, remediate.Backup{UID: n.UID, ResourceVersion: fmt.Sprint(w.rv)}, err
}

func (w *world) Act(_ context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.apiDown {
		return errAPI
	}
	switch a {
	case remediate.IsolateNode:
		if b.UID != fmt.Sprint("uid-", w.uid) || b.ResourceVersion != fmt.Sprint(w.rv) || len(backups) == 0 {
			return errors.New("conflict")
		}
		w.exists, w.restored = false, false
		w.deletes++
		if w.answersLost { // it was done, and nobody hears of it
			w.lose()
			return errAPI
		}
	case remediate.RestoreTargetNode:
		w.restored = true
	case remediate.DeleteTargetMachine:
		if r.Target.MachineAPI != policy.ClusterAPIV1Beta2 {
			return fmt.Errorf("a Machine of %s is deleted", r.Target.MachineAPI)
		}
		w.marked++
	default:
		return fmt.Errorf("unexpected action %s in step %s", a, r.Step)
	}
	return nil
}

func (w *world) Credentials(context.Context, string, string) (string, bmc.Secret, error) {
	return "", bmc.Secret{}, errors.New("no Secrets here")
}

var errAPI = errors.New("the API server does not answer")

// lose takes the API away. w.mu is held.
func (w *world) lose() { w.apiDown, w.apiLost = true, time.Now() }

// find gives it back, and shows everything as it is then.
func (w *world) find() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apiDown, w.apiBack, w.answersLost = false, time.Now(), false
}

// leaseDuration is how long an announcement keeps others away.
const leaseDuration = 15 * time.Second

// Announce implements engine.Kube.
func (w *world) Announce(_ context.Context, a engine.Announcement) (time.Duration, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.apiDown {
		return 0, "", errAPI
	}
	w.announced++
	w.announcement = a
	return leaseDuration, w.foreigner, w.announceErr
}

// List implements engine.Hosts.
func (w *world) List(string) []string {
	if w.host == nil {
		return nil
	}
	return []string{"n-1"}
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
	p.w.reads++
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
