package fake

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

const etcdNamespace = "openshift-etcd"

func podID(node string) policy.ObjectID {
	return policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: etcdNamespace, Name: "etcd-" + node}
}

func machineID(m policy.Machine) policy.ObjectID {
	return policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}
}

func (s *State) PutMachine(m policy.Machine) { s.putMachine(m.NodeName, m) }

// PutStranger stores a Machine that is on none of the hosts, whatever it says.
func (s *State) PutStranger(m policy.Machine) { s.putMachine("none: "+m.Key(), m) }

// putMachine stores the Machine of a host, which may have no Node.
func (s *State) putMachine(host string, m policy.Machine) {
	s.next()
	s.Machines[host] = &m
	shown := m // a copy: the ledger keeps it
	s.show(machineID(m), &shown)
	if n := s.Nodes[m.NodeName]; n != nil {
		s.show(NodeID(n.Name), s.policyNode(n))
	}
}

// machineOf returns the Machine of a target, nil if there is none, and the host that it is on.
func (s *State) machineOf(t remediate.Target) (host string, m *policy.Machine) {
	for host, m := range s.Machines {
		if t.Machine != "" && m.Namespace == t.Namespace && m.Name == t.Machine {
			return host, m
		}
	}
	return t.Node, s.Machines[t.Node]
}

// NeverJoined makes a host one whose Machine never had a Node.
func (s *State) NeverJoined(host string, since time.Time) {
	s.RemoveNode(host)
	delete(s.Leases, host)
	s.ChangeMachine(host, func(m *policy.Machine) { m.NodeName, m.LastUpdated, m.Phase = "", since, "Provisioned" })
}

func (s *State) ChangeMachine(node string, change func(*policy.Machine)) {
	if m := s.Machines[node]; m != nil {
		c := *m
		change(&c)
		if machineID(c) != machineID(*m) {
			s.show(machineID(*m), nil)
		}
		s.putMachine(node, c)
	}
}

// RemoveMachine deletes only the Machine of a Node.
func (s *State) RemoveMachine(node string) {
	if m := s.Machines[node]; m != nil {
		s.next()
		delete(s.Machines, node)
		s.show(machineID(*m), nil)
	}
}

// deprovision erases the host of a deleted Machine.
func (s *State) deprovision(node string) {
	if m := s.Machines[node]; m != nil && s.OnDelete != nil {
		s.OnDelete(*m)
		return
	}
	s.deprovisioned = append(s.deprovisioned, node)
	s.Note(node, "deprovisioned: its Machine is deleted")
	s.RemoveMachine(node)
	if s.Nodes[node] != nil {
		s.RemoveNode(node)
	}
	if h := s.Host(node); h != nil {
		h.Gone = true
		h.Power(false, "deprovisioned")
	}
}

func checkID(c *policy.Check) policy.ObjectID {
	return policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// ShowCheck publishes a check as it is now; DropCheck deletes it.
func (s *State) ShowCheck(c *policy.Check) { s.next(); s.show(checkID(c), c) }

func (s *State) DropCheck(c *policy.Check) { s.next(); s.show(checkID(c), nil) }

// ShowUpgrade publishes a ClusterVersion whose upgrade is in progress, for why.
func (s *State) ShowUpgrade(why string) {
	s.next()
	s.show(policy.ObjectID{APIVersion: "config.openshift.io/v1", Kind: "ClusterVersion", Name: "version"}, &policy.Upgrade{Why: why})
}

func (s *State) ChangeCheck(change func(*policy.Check)) {
	old, c := s.Check, *s.Check
	change(&c)
	if s.Check = &c; checkID(&c) != checkID(old) {
		s.DropCheck(old)
	}
	s.ShowCheck(&c)
}

// SetOwner creates the Cluster of the Machines of the Cluster API, one day old.
func (s *State) SetOwner(apiVersion string) {
	ago := time.Now().Add(-24 * time.Hour)
	s.Owner = &policy.Cluster{Namespace: Namespace, Name: "c", ControlPlaneInitialized: true, ControlPlaneSince: ago,
		InfrastructureReady: true, InfrastructureReadySince: ago}
	s.show(policy.ObjectID{APIVersion: apiVersion, Kind: "Cluster", Namespace: Namespace, Name: "c"}, s.Owner)
}

func metalID(name string) policy.ObjectID {
	return policy.ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: Namespace, Name: name}
}

// ChangeMetal changes a BareMetalHost, or creates it.
func (s *State) ChangeMetal(name string, change func(*policy.Host)) {
	h := policy.Host{Namespace: Namespace, Name: name, UID: "uid-of-" + name, Online: true}
	if old := s.Metal[name]; old != nil {
		h = *old
	}
	change(&h)
	s.next()
	s.Metal[name] = &h
	shown := h
	s.show(metalID(name), &shown)
}

// DropMetal deletes a BareMetalHost.
func (s *State) DropMetal(name string) {
	s.next()
	delete(s.Metal, name)
	s.show(metalID(name), nil)
}

// Held reports whether fenced's power lock is set on a BareMetalHost.
func Held(h *policy.Host) bool { return h.Annotations[policy.PowerLockAnnotation] != "" }

// hold sets or removes the power lock.
func (s *State) hold(name string, on bool) { s.lockPower(name, policy.PowerLockAnnotation, on) }

// OtherPowerLock is the power request of Metal3's provider for the Cluster API, for one of its remediations.
const OtherPowerLock = "reboot.metal3.io/metal3-remediation-7f3a"

// LockPower sets or removes OtherPowerLock.
func (s *State) LockPower(name string, on bool) { s.lockPower(name, OtherPowerLock, on) }

func (s *State) lockPower(name, key string, on bool) {
	s.ChangeMetal(name, func(h *policy.Host) {
		h.Annotations = maps.Clone(h.Annotations)
		if delete(h.Annotations, key); on {
			if h.Annotations == nil {
				h.Annotations = map[string]string{}
			}
			h.Annotations[key] = `{"mode":"hard"}`
		}
	})
}

// MakeControlPlane gives hosts an etcd member each.
func (s *State) MakeControlPlane(names ...string) {
	for _, name := range names {
		s.Host(name).ControlPlane = true
		s.ChangeNode(name, func(n *Node) { n.ControlPlane = true })
		s.ChangeMachine(name, func(m *policy.Machine) { m.ControlPlane = true })
	}
}

// members returns the etcd members as an uncached read shows them.
func (s *State) members() []policy.Member {
	var list []policy.Member
	for _, h := range s.Hosts {
		if n := s.Nodes[h.Name]; h.ControlPlane && !h.MemberUnseen && n != nil {
			list = append(list, policy.Member{Node: h.Name, Healthy: n.Ready == "True" && !h.MemberSick})
		}
	}
	return list
}
