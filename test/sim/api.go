package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// namespace of Machines and BareMetalHosts.
const namespace = "ns"

// node is a Node as the API server keeps it; its JSON is what a backup holds.
type node struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid"`
	ResourceVersion uint64            `json:"resourceVersion"`
	BootID          string            `json:"bootID"`
	SystemUUID      string            `json:"systemUUID"`
	Labels          map[string]string `json:"labels"`
	Taints          []string          `json:"taints"`
	Cordoned        bool              `json:"cordoned"`
	Ready           string            `json:"ready"`
	Since           time.Time         `json:"since"`
	ControlPlane    bool              `json:"controlPlane"`
}

// outOfService is the taint of isolation.
const outOfService = "node.kubernetes.io/out-of-service"

func (n *node) outOfService() bool { return slices.Contains(n.Taints, outOfService) }

func (n *node) policy() *policy.Node {
	return &policy.Node{Name: n.Name, UID: n.UID, ResourceVersion: fmt.Sprint(n.ResourceVersion), BootID: n.BootID, SystemUUID: n.SystemUUID,
		MachineID: "machine-" + n.Name, Labels: maps.Clone(n.Labels), ControlPlane: n.ControlPlane,
		Conditions: []policy.Condition{{Type: "Ready", Status: n.Ready, LastTransition: n.Since}}}
}

// machine is a Machine.
type machine struct {
	name, uid, node string
	controlPlane    bool
}

func (m *machine) policy(metal bool) *policy.Machine {
	p := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: m.name, UID: m.uid, NodeName: m.node, Phase: "Running",
		ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "set", UID: "set"}, ControlPlane: m.controlPlane}
	if metal {
		p.Annotations = map[string]string{"metal3.io/BareMetalHost": namespace + "/" + m.node}
	}
	return p
}

// lease is a kubelet's heartbeat.
type lease struct {
	version uint64
	renewed time.Time
}

// change is one entry of the API server's history, which watches follow.
type change struct {
	version uint64
	at      time.Time
	policy.Change
}

// apiServer keeps the objects. Guarded by the world's mutex.
type apiServer struct {
	w        *World
	version  uint64
	check    *policy.Check // as it should be
	uids     int
	nodes    map[string]*node
	machines map[string]*machine // by Node
	leases   map[string]lease
	pods     map[string]int       // bound to a Node's name
	goneAt   map[string]time.Time // when a Node went, for the pod garbage collector
	metal    map[string]*metalHost
	rival    string    // another remediator that holds its Lease
	rivalTo  time.Time // until then
	fenced   fencedLease
	visitTo  time.Time // another installation tries to hold it until then
	down     time.Time // for everybody, until then
	history  []change
}

func newAPIServer(w *World) *apiServer {
	return &apiServer{w: w, nodes: map[string]*node{}, machines: map[string]*machine{}, leases: map[string]lease{}, pods: map[string]int{},
		goneAt: map[string]time.Time{}, metal: map[string]*metalHost{}}
}

func (a *apiServer) next() uint64 { a.version++; return a.version }

// show writes an object into the history; a nil value is its deletion.
func (a *apiServer) show(id policy.ObjectID, value any) {
	a.history = append(a.history, change{a.version, time.Now(), policy.Change{ID: id, Value: value}})
}

func nodeID(name string) policy.ObjectID {
	return policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}
}

func machineID(name string) policy.ObjectID {
	return policy.ObjectID{APIVersion: policy.OpenShiftMachineAPI, Kind: "Machine", Namespace: namespace, Name: name}
}

// put stores a Node under a new resourceVersion.
func (a *apiServer) put(n *node) {
	n.ResourceVersion = a.next()
	a.nodes[n.Name] = n
	a.show(nodeID(n.Name), n.policy())
	if h := a.w.hostOf(n.Name); h != nil && h.controlPlane {
		a.show(policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "etcd", Name: "etcd-" + n.Name},
			&policy.EtcdPod{Namespace: "etcd", Name: "etcd-" + n.Name, Node: n.Name, Ready: n.Ready == "True"})
	}
}

// join registers the kubelet of a host: a new Node, or another boot of the old.
func (a *apiServer) join(h *host) {
	n := a.nodes[h.name]
	if n != nil {
		c := *n
		c.BootID, c.SystemUUID = h.bootID(), h.tells
		a.put(&c)
		a.w.note(h.name, "kubelet: another boot of Node %s", c.UID)
		return
	}
	a.uids++
	n = &node{Name: h.name, UID: fmt.Sprintf("uid-%d", a.uids), BootID: h.bootID(), SystemUUID: h.tells, ControlPlane: h.controlPlane,
		Labels: map[string]string{"hostname": h.name}, Ready: "False", Since: time.Now()}
	if h.zone != "" {
		n.Labels["zone"] = h.zone
	}
	if a.uids <= len(a.w.hosts)+1 && h.boots == 1 { // as its owner wants it: no kubelet would bring that back
		n.Labels["team"], n.Labels["rack"] = "storage", "r-"+h.name
		h.cordoned = h.rng.IntN(4) == 0
		n.Taints, n.Cordoned = []string{"gpu"}, h.cordoned
		n.Ready = "True"
	}
	a.put(n)
	delete(a.goneAt, h.name)
	a.pods[h.name] = 3
	a.w.note(h.name, "kubelet: registers Node %s, boot %s", n.UID, n.BootID)
}

func (a *apiServer) addMachine(h *host) {
	m := &machine{name: "m-" + h.name, uid: "m-" + h.name, node: h.name, controlPlane: h.controlPlane}
	a.machines[h.name] = m
	a.next()
	a.show(machineID(m.name), m.policy(a.w.plan.Metal))
	if a.w.plan.Metal {
		a.addMetal(h)
	}
}

// setReady turns the Ready condition of a Node.
func (a *apiServer) setReady(name, status string) {
	n := *a.nodes[name]
	if n.Ready, n.Since = status, time.Now(); status == "Unknown" {
		n.Since = a.stamp(a.w.hostOf(name))
	}
	a.put(&n)
	a.w.note(name, "Node %s is Ready=%s", n.UID, status)
	if status == "True" && !n.outOfService() {
		a.pods[name] = 3
	}
}

func (a *apiServer) renew(h *host) {
	a.leases[h.name] = lease{a.next(), time.Now()}
}

// touch is some controller that writes on a Node just after it was read.
func (a *apiServer) touch(name string) {
	n := a.nodes[name]
	if n == nil || a.w.calm || a.w.dice.IntN(10) > 0 {
		return
	}
	c := *n
	a.put(&c)
	a.w.fault("node-changed", name, "by another controller")
}

// remove deletes a Node.
func (a *apiServer) remove(name string) {
	a.next()
	delete(a.nodes, name)
	a.goneAt[name] = time.Now()
	a.show(nodeID(name), nil)
	if h := a.w.hostOf(name); h != nil && h.controlPlane {
		a.show(policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "etcd", Name: "etcd-" + name}, nil)
	}
}

// json is the whole Node for a backup.
func (n *node) json() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		panic("sim: a node of plain values does not marshal: " + err.Error()) // a bug of this package
	}
	return b
}

const leaseGrace = 50 * time.Second

// tick is the controllers of the control plane: the node lifecycle, the garbage
// collector of pods, and the owner of the hosts' power.
func (a *apiServer) tick(now time.Time) {
	for _, h := range a.w.hosts {
		n := a.nodes[h.name]
		switch {
		case n != nil && n.Ready == "True" && now.Sub(a.leases[h.name].renewed) > leaseGrace && now.Sub(a.w.began) > leaseGrace:
			a.setReady(h.name, "Unknown")
		case n != nil && n.Ready == "False" && now.Sub(a.leases[h.name].renewed) > leaseGrace && now.Sub(n.Since) > leaseGrace:
			a.setReady(h.name, "Unknown")
		}
		if n != nil && n.outOfService() {
			a.pods[h.name] = 0
		}
		if gone := a.goneAt[h.name]; n == nil && !gone.IsZero() && now.Sub(gone) > 55*time.Second {
			a.pods[h.name] = 0
		}
	}
	a.tickMetal(now)
	a.tickStrangers(now)
}
