package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Node is a Node in the API server. Its JSON is the content of a backup.
type Node struct {
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
	Created         time.Time         `json:"created"`
	ControlPlane    bool              `json:"controlPlane"`
}

// outOfService is the taint of isolation.
const outOfService = "node.kubernetes.io/out-of-service"

// NoNetwork is the taint that the operator of a network plugin sets on a Node while its agent does not
// run; see State.Plugin.
const NoNetwork = "example.com/no-network"

// OutOfService reports whether the Node has the taint of isolation.
func (n *Node) OutOfService() bool { return slices.Contains(n.Taints, outOfService) }

// policyNode is a Node as a watch returns it. The controllers of the Machines have written into it
// which Machine is its.
func (s *State) policyNode(n *Node) *policy.Node {
	v := &policy.Node{Name: n.Name, UID: n.UID, BootID: n.BootID, SystemUUID: n.SystemUUID,
		MachineID: "machine-" + n.Name, Labels: policy.LabelsOf(n.Labels), ControlPlane: n.ControlPlane,
		Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: n.Ready, LastTransition: n.Since}})}
	switch m := s.Machines[n.Name]; {
	case m == nil || m.NodeName != n.Name:
	case m.APIVersion == policy.OpenShiftMachineAPI:
		v.OpenShiftMachine = m.Key()
	default:
		v.ClusterMachine = m.Key()
	}
	return v
}

// JSON is the whole Node for a backup.
func (n *Node) JSON() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		panic("fake: a Node of plain values does not marshal: " + err.Error()) // a bug of this package
	}
	return b
}

func (n *Node) Missing(r remediate.Run, backups [][]byte) (lacks []string) {
	return n.lacks(n.wanted(r, backups))
}

// Lacks returns what a Node lacks of what its owner gave it.
func (n *Node) Lacks(h *Host) (lacks []string) {
	if n.OutOfService() {
		lacks = append(lacks, "freedom from our taint")
	}
	return append(lacks, n.lacks(h.Owned)...)
}

// wanted is what the saved Nodes of a run had, except what was read back on this Node, or was saved of it and so was never lost: that is its
// owner's. // I21
func (n *Node) wanted(r remediate.Run, backups [][]byte) Owned {
	saved := make([]Node, len(backups))
	stays := map[string]bool{}
	for i, b := range backups {
		if err := json.Unmarshal(b, &saved[i]); err != nil {
			panic("fake: a backup cannot be read: " + err.Error())
		}
		if saved[i].UID == n.UID {
			for _, key := range saved[i].has(Owned{saved[i].Labels, saved[i].Taints, saved[i].Cordoned}) {
				stays[key] = true
			}
		}
	}
	want := Owned{Labels: map[string]string{}}
	wanted := func(key string) bool { return !stays[key] && r.Restored[key] != n.UID }
	for _, old := range saved {
		for k, v := range old.Labels {
			if wanted("label " + k) {
				want.Labels[k] = v
			}
		}
		for _, t := range old.Taints {
			if t != outOfService && wanted("taint "+t) && !slices.Contains(want.Taints, t) {
				want.Taints = append(want.Taints, t)
			}
		}
		want.Cordoned = want.Cordoned || old.Cordoned && wanted("cordon")
	}
	return want
}

// lacks and has list what of it a Node has not, and has.
func (n *Node) lacks(of Owned) []string { return n.compare(of, false) }
func (n *Node) has(of Owned) []string   { return n.compare(of, true) }

func (n *Node) compare(with Owned, has bool) (keys []string) {
	for k := range with.Labels {
		if _, ok := n.Labels[k]; ok == has {
			keys = append(keys, "label "+k)
		}
	}
	for _, t := range with.Taints {
		if t != outOfService && slices.Contains(n.Taints, t) == has {
			keys = append(keys, "taint "+t)
		}
	}
	if with.Cordoned && n.Cordoned == has {
		keys = append(keys, "cordon")
	}
	return keys
}

func NodeID(name string) policy.ObjectID {
	return policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}
}

// PutNode stores a Node with a new resourceVersion. A Node without a UID gets a
// new one.
func (s *State) PutNode(n Node) {
	if n.UID == "" {
		s.uids++
		n.UID, n.Created = fmt.Sprintf("uid-%d", s.uids), time.Now()
	}
	n.ResourceVersion = s.next()
	s.Nodes[n.Name] = &n
	s.show(NodeID(n.Name), s.policyNode(&n))
	if h := s.Host(n.Name); h != nil && h.ControlPlane {
		s.show(podID(n.Name), &policy.Pod{Namespace: etcdNamespace, Name: "etcd-" + n.Name, Node: n.Name, Member: true, Ready: n.Ready == "True"})
	}
}

// ChangeNode changes a Node, if it exists.
func (s *State) ChangeNode(name string, change func(*Node)) {
	if n := s.Nodes[name]; n != nil {
		c := *n
		c.Labels, c.Taints = maps.Clone(n.Labels), slices.Clone(n.Taints)
		change(&c)
		s.PutNode(c)
	}
}

func (s *State) RemoveNode(name string) {
	s.next()
	delete(s.Nodes, name)
	s.goneAt[name] = time.Now()
	s.show(NodeID(name), nil)
	if h := s.Host(name); h != nil && h.ControlPlane {
		s.show(podID(name), nil)
	}
}

// SetReady changes only the Ready condition of a Node.
func (s *State) SetReady(name, status string) {
	at := time.Now()
	if h := s.Host(name); h != nil && status == "Unknown" && s.Stamp != nil {
		at = s.Stamp(h)
	}
	s.ChangeNode(name, func(n *Node) {
		n.Ready, n.Since = status, at
		s.Note(name, "Node %s is Ready=%s", n.UID, status)
		if status == "True" && !n.OutOfService() {
			s.Pods[name] = s.PodsOfANode
		}
	})
}

// join registers the kubelet of a host: with a new Node, or in the existing one.
func (s *State) join(h *Host) {
	if n := s.Nodes[h.Name]; n != nil {
		s.ChangeNode(h.Name, func(n *Node) { n.BootID, n.SystemUUID = h.BootID(), h.NodeUUID })
		s.Note(h.Name, "kubelet: another boot of Node %s", n.UID)
		return
	}
	labels := map[string]string{"hostname": h.Name}
	if h.Zone != "" {
		labels["zone"] = h.Zone
	}
	s.PutNode(Node{Name: h.Name, BootID: h.BootID(), SystemUUID: h.NodeUUID, ControlPlane: h.ControlPlane, Labels: labels, Ready: "False", Since: time.Now()})
	if m := s.Machines[h.Name]; m != nil && m.NodeName == "" {
		s.ChangeMachine(h.Name, func(m *policy.Machine) { m.NodeName, m.Phase = h.Name, "Running" })
	}
	delete(s.goneAt, h.Name)
	s.Pods[h.Name] = s.PodsOfANode
	s.Note(h.Name, "kubelet: registers Node %s, boot %s", s.Nodes[h.Name].UID, h.BootID())
}

// ShowUUID writes the UUID of a host into its Node.
func (s *State) ShowUUID(h *Host) {
	if n := s.Nodes[h.Name]; n != nil && n.SystemUUID != h.NodeUUID {
		s.ChangeNode(h.Name, func(n *Node) { n.SystemUUID = h.NodeUUID })
		s.Note(h.Name, "Node %s tells UUID %s", n.UID, h.NodeUUID)
	}
}

// renew renews a kubelet's Lease.
func (s *State) renew(node string, at time.Time) {
	l := Lease{Version: s.next(), Renewed: at}
	if h := s.Host(node); h != nil {
		l.Duration = h.leaseFor()
	}
	s.Leases[node] = l
}

// PutFromGit creates a deleted Node again from its manifest, before its kubelet
// registers.
func (s *State) PutFromGit(name string) {
	s.PutNode(Node{Name: name, Labels: map[string]string{"from": "git"}, Ready: "False", Since: time.Now()})
	s.Note(name, "Node %s is made again from Git", s.Nodes[name].UID)
}

// LockDuration is how long medik8s' Lease on a Node is valid.
const LockDuration = 5 * time.Minute

// NodeLock is medik8s' Lease on a Node.
type NodeLock struct {
	Holder  string
	Run     string // of fenced
	Renewed time.Time
}

// Expired reports whether nobody respects the Lease any more.
func (l NodeLock) Expired() bool { return time.Since(l.Renewed) > LockDuration }

// foreignLock returns who else than an installation of fenced holds the Lease on a
// Node.
func (s *State) foreignLock(node string) string {
	if l, ok := s.NodeLocks[node]; s.Medik8s && ok && l.Holder != s.LocksAs && !l.Expired() {
		return l.Holder + " holds the Lease node-" + node
	}
	return ""
}

// LockNode takes or renews the Lease on the Node of a run, as the API server would
// let fenced do it.
func (s *State) LockNode(r remediate.Run) (binds time.Duration, foreign string) {
	node := r.Target.Node
	held, ok := s.NodeLocks[node]
	switch foreign := s.foreignLock(node); {
	case !s.Medik8s:
		return 0, ""
	case foreign != "":
		return 0, foreign
	case !r.Step.Destructive() && (!ok || held.Holder != s.LocksAs):
		return 0, ""
	}
	s.NodeLocks[node] = NodeLock{s.LocksAs, r.ID, time.Now()}
	return LockDuration, ""
}

// UnlockNode gives back what LockNode took for a run.
func (s *State) UnlockNode(r remediate.Run) {
	if l := s.NodeLocks[r.Target.Node]; l.Holder == s.LocksAs && l.Run == r.ID {
		delete(s.NodeLocks, r.Target.Node)
	}
}

// LockNode implements engine.Kube.
func (c *Cluster) LockNode(_ context.Context, r remediate.Run) (binds time.Duration, foreign string, err error) {
	err = c.exchange(func(s *State) error { binds, foreign = s.LockNode(r); return nil })
	return binds, foreign, err
}

// UnlockNode implements engine.Kube.
func (c *Cluster) UnlockNode(_ context.Context, r remediate.Run) error {
	return c.exchange(func(s *State) error { s.UnlockNode(r); return nil })
}
