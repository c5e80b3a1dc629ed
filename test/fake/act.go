package fake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// ErrAPI is the error of an API server that does not answer.
var ErrAPI = errors.New("the API server does not answer")

func (s *State) metalOf(t remediate.Target) *policy.Host {
	_, name, _ := strings.Cut(t.BareMetalHost, "/")
	return s.Metal[name]
}

// Look returns the current state, as the API server would answer an uncached
// read.
func (s *State) Look(r remediate.Run, backups [][]byte) run.Fresh {
	t := r.Target
	f := run.Fresh{Cluster: s.Owner, Members: s.members(), MembersKnown: !s.MembersUnknown, NoNodeLocks: !s.Medik8s, Observation: remediate.Observation{
		API: remediate.APIReachable, ClusterUID: s.UID, Contested: s.Contested, Contender: s.Contender, PowerForbidden: s.PowerForbidden, PowerLock: remediate.No,
		Lease: remediate.Lease{Known: true}, Node: remediate.Node{Exists: remediate.No}, Machine: remediate.Machine{Exists: remediate.No}}}
	if who := s.foreignLock(t.Node); who != "" {
		f.Observation.Contested, f.Observation.Contender = remediate.Yes, who
	}
	if l, ok := s.Leases[t.Node]; ok {
		f.Observation.Lease.ResourceVersion, f.Observation.Lease.RenewTime, f.Lease.RenewTime = fmt.Sprint(l.Version), l.Renewed, l.Renewed
		f.Observation.Lease.Duration = l.Duration
	}
	_, m := s.machineOf(t)
	if m != nil && t.Node == "" { // it may have joined since
		t.Node = m.NodeName
	}
	if n := s.Nodes[t.Node]; n != nil {
		f.Node = s.policyNode(n)
		f.Observation.Lease.KubeletReporting = f.Node.KubeletReporting()
		f.Observation.Node = remediate.Node{Exists: remediate.Yes, UID: n.UID, ResourceVersion: fmt.Sprint(n.ResourceVersion), BootID: n.BootID,
			SystemUUID: n.SystemUUID, Created: n.Created, Ready: remediate.AnswerOf(n.Ready == "True"), OutOfService: n.OutOfService()}
		if backups != nil {
			want := n.wanted(r, backups)
			f.Observation.Restored = remediate.AnswerOf(len(n.lacks(want)) == 0 && !(r.Isolation == remediate.IsolateTaint && n.OutOfService()))
			f.Observation.ReadBack = n.has(want)
		}
	}
	if m != nil {
		shown := *m
		f.Machine, f.Observation.Machine = &shown, seenMachine(m)
	}
	if h := s.metalOf(t); h != nil {
		f.Observation.BareMetalHostUID = h.UID
		if f.Observation.PowerLock = remediate.AnswerOf(Held(h)); !h.Online {
			f.Observation.PowerForbidden, f.Observation.OwnerWantsOff = "its owner wants it off", true
		}
		if other := h.OtherPowerLock(); other != "" {
			f.Observation.Contested, f.Observation.Contender, f.Observation.OtherPowerLock = remediate.Yes, "the power request "+other, other
		}
		if (r.Target.WithoutNode() != "" || t.ByHardware) && h.ConsumerRef != t.MachineKey() {
			f.Observation.PowerForbidden = "it belongs to another Machine, or to none"
		}
	}
	s.lookAtRequest(r, &f)
	if r.Step == remediate.PowerOn && r.Abandon == "" {
		f.Observation.PodsGone = remediate.AnswerOf(s.Pods[t.Node] == 0)
		f.Observation.PodsReleased = f.Observation.PodsGone
		for i := range s.Pods[t.Node] {
			f.PodsLeft = append(f.PodsLeft, fmt.Sprintf("default/web-%d", i))
		}
	}
	return f
}

func seenMachine(m *policy.Machine) remediate.Machine {
	seen := remediate.Machine{Exists: remediate.Yes, UID: m.UID, Deleting: m.Deleting, Marked: m.OwnerRemediated != "", Requested: m.ExternalRemediationRequested, Replaceable: remediate.Yes}
	switch {
	case m.ControllerOwner == policy.Owner{}:
		seen.Replaceable, seen.Why = remediate.No, "no controller owns it"
	case m.ControlPlane:
		seen.Replaceable, seen.Why = remediate.No, "it is a control plane"
	}
	return seen
}

// Backup returns the current Node of a target.
func (s *State) Backup(t remediate.Target) ([]byte, remediate.Backup, error) {
	n := s.Nodes[t.Node]
	if n == nil || t.NodeUID != "" && n.UID != t.NodeUID {
		return nil, remediate.Backup{}, errors.New("its UID is not that of the target")
	}
	return n.JSON(), remediate.Backup{UID: n.UID, ResourceVersion: fmt.Sprint(n.ResourceVersion)}, nil
}

// Act does one write, under its preconditions. // I2
func (s *State) Act(r remediate.Run, action remediate.Action, backups [][]byte, b remediate.Backup) error {
	n := s.Nodes[r.Target.Node]
	switch action {
	case remediate.SetPowerLock, remediate.ReleasePowerLock:
		h := s.metalOf(r.Target)
		if h == nil {
			return errors.New("there is no such BareMetalHost")
		}
		if uid := r.Target.BareMetalHostUID; uid != "" && uid != h.UID && action == remediate.SetPowerLock {
			return errors.New("its UID is not that of the target")
		}
		s.hold(h.Name, action == remediate.SetPowerLock)
	case remediate.IsolateNode:
		return s.isolate(n, r, backups, b)
	case remediate.ReleasePods:
		s.Pods[r.Target.Node] = 0
	case remediate.DeleteTargetMachine:
		host, m := s.machineOf(r.Target)
		if m == nil { // it is gone already
			return nil
		}
		if m.UID != r.Target.MachineUID {
			return errors.New("its UID is not that of the target")
		}
		s.replace(host, m)
	case remediate.ClearRequest:
		host, m := s.machineOf(r.Target)
		if m != nil && m.UID == r.Target.MachineUID {
			s.ChangeMachine(host, func(m *policy.Machine) { m.ExternalRemediationRequested = false })
		}
	default:
		return fmt.Errorf("unexpected action %s in step %s", action, r.Step)
	}
	return nil
}

func (s *State) isolate(n *Node, r remediate.Run, backups [][]byte, b remediate.Backup) error {
	if n == nil {
		return nil
	}
	if len(backups) == 0 || b.UID == "" || b.UID != r.Target.NodeUID {
		return errors.New("there is no backup of this Node")
	}
	if !s.IgnorePreconditions && (n.UID != b.UID || fmt.Sprint(n.ResourceVersion) != b.ResourceVersion) {
		return errors.New("it has changed since the backup")
	}
	if s.OnIsolate != nil {
		s.OnIsolate(n, r, b)
	}
	if r.Isolation != remediate.IsolateDelete {
		s.ChangeNode(n.Name, func(n *Node) { n.Taints = append(n.Taints, outOfService) })
		return nil
	}
	s.RemoveNode(n.Name)
	if h := s.Host(n.Name); h != nil {
		h.Isolated++
	}
	if s.DownAtIsolation { // it was done, but the answer is lost
		s.TakeDown()
		return ErrAPI
	}
	return nil
}

// Restore gives the Node of a run what was saved; existing values take precedence.
func (s *State) Restore(r remediate.Run, backups [][]byte) (readBack []string, err error) {
	n := s.Nodes[r.Target.Node]
	if n == nil || n.UID != r.NewNodeUID {
		return nil, errors.New("it is another Node than the one that registered")
	}
	want := n.wanted(r, backups)
	if s.RestoreNothing {
		return n.has(want), nil
	}
	s.ChangeNode(n.Name, func(n *Node) {
		live := n.Labels
		n.Labels = want.Labels
		maps.Copy(n.Labels, live)
		for _, t := range want.Taints {
			if !slices.Contains(n.Taints, t) {
				n.Taints = append(n.Taints, t)
			}
		}
		n.Cordoned = n.Cordoned || want.Cordoned
		if r.Isolation == remediate.IsolateTaint {
			n.Taints = slices.DeleteFunc(n.Taints, func(t string) bool { return t == outOfService })
		}
	})
	return s.Nodes[r.Target.Node].has(want), nil
}

// replace deletes a Machine of OpenShift, or hands one of the Cluster API to its
// owner.
func (s *State) replace(host string, m *policy.Machine) {
	if m.APIVersion == policy.OpenShiftMachineAPI {
		s.deprovision(host)
		return
	}
	s.ChangeMachine(host, func(m *policy.Machine) { m.OwnerRemediated = "False" })
	s.marked++
}
