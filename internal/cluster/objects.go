package cluster

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Objects holds what the watch shows of one cluster, and what the checks find in it. A method needs no other lock.
type Objects struct {
	cluster string
	started time.Time // of the daemon

	mu          sync.Mutex
	ledger      *policy.Ledger
	storms      storms
	stableUntil stableUntil
	// replacements says which Machines were never Ready.
	replacements replacements
	filesRefused string // why checks and budgets from files may be missing
	seenVersion  uint64 // version of the ledger at the last Follow
	complete     bool   // the ledger has the complete view of the cluster
}

// SetReadsOff records whether the BMC of a Node's host reads Off. Checks that allow it end
// their wait then.
func (o *Objects) SetReadsOff(now time.Time, node string, off bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.SetReadsOff(now, node, off)
}

// DraftPending drafts a run for each pending target of a check that acts at once if the host
// is off. It includes a target in known that is unhealthy only because its BMC reads Off.
// anyShortens is false if there is no such check.
func (o *Objects) DraftPending(known map[string]bool) (wanted map[string]remediate.Run, anyShortens bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wanted = map[string]remediate.Run{}
	for _, r := range o.ledger.Counters() {
		check := o.ledger.Check(r.ID())
		if check == nil || !check.ShortenOnEvidence {
			continue
		}
		anyShortens = true
		for _, t := range o.ledger.Waiting(r.ID()) {
			if t.Node == "" || t.Verdict != policy.Pending && (t.Verdict != policy.Unhealthy || !known[t.Node]) {
				continue
			}
			m, n := evaluatedMachine(o.ledger, &t), o.ledger.Node(t.Node)
			if m == nil || o.ledger.Owns(m, n) { // else its BMC says nothing about the Node // I8
				wanted[t.Node] = remediate.Run{Target: targetOf(o.ledger, o.cluster, m, n, t.Node)}
			}
		}
	}
	return wanted, anyShortens
}

// FilesRefused says why checks and budgets from files may be missing; "" if none is.
func (o *Objects) FilesRefused() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.filesRefused
}

// Seen says whether the ledger has the complete view of the cluster.
func (o *Objects) Seen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.complete
}

// TargetOn returns the objects of one Node as the target of a run; false when no Node has
// this name and no Machine refers to it.
func (o *Objects) TargetOn(node string) (remediate.Target, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, m := o.ledger.Node(node), o.ledger.MachineOf(node)
	return targetOf(o.ledger, o.cluster, m, n, node), n != nil || m != nil
}

// Check returns a check as the ledger has it now, or nil.
func (o *Objects) Check(id policy.CheckID) *policy.Check {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Check(id)
}

// ActingChecks lists the checks with the targets that they want remediated.
func (o *Objects) ActingChecks(now time.Time) []policy.CheckReport {
	o.mu.Lock()
	list := o.ledger.Acting(now)
	o.mu.Unlock()
	fewestFirst(list)
	return list
}

// NodeReport is what the checks find about one Node.
func (o *Objects) NodeReport(node string, now time.Time) policy.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.OnNode(node, now)
}

// Counters lists the checks without their targets, and counts the Nodes. It returns nothing
// before the view is complete.
func (o *Objects) Counters() (checks []policy.CheckReport, nodes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return nil, 0
	}
	return o.ledger.Counters(), o.ledger.Fleet("").Nodes
}

// WithTargets adds its targets to a check as they are now. matched is false while no Machine
// has its Node: the Nodes may be those of another cluster, and say nothing about the Machines.
// found is false when the check is gone.
func (o *Objects) WithTargets(id policy.CheckID, now time.Time) (r policy.CheckReport, matched, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, found = o.ledger.CheckReport(id, now)
	return r, anyMachineHasItsNode(o.ledger), found
}

// Overview is what the checks find now, and what they cover.
func (o *Objects) Overview() (policy.Overview, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return policy.Overview{}, ErrNotSeen()
	}
	return o.ledger.Overview(time.Now()), nil
}

// Coverage is what every check and budget selects and allows. Its cost grows with the size of the cluster.
func (o *Objects) Coverage() ([]policy.Coverage, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return nil, ErrNotSeen()
	}
	return o.ledger.Coverage(time.Now()), nil
}

// Quorum says why etcd would lose its quorum without the member on a Node, by members that were just
// read; "" if it would not. // I12
func (o *Objects) Quorum(members []policy.Member, node string) (reason.Code, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Quorum(members, node)
}

// TakesTurn says whether other control-plane hosts wait for the one with this Node and this Machine,
// either of which may be nil. // I12
func (o *Objects) TakesTurn(n *policy.Node, m *policy.Machine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.TakesTurn(n, m)
}

// RenamedTo returns the name of another Node with the system UUID of the run's host: the
// host has registered under that name. unseen: the view is not complete, so the answer is
// not known. // I6
func (o *Objects) RenamedTo(r remediate.Run) (node string, unseen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.complete {
		return "", true
	}
	for _, n := range o.ledger.OtherNodesWithUUID(r.Target.Node, cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)) { // none for a placeholder
		if hasReturned(n, r) {
			return n.Name, false
		}
	}
	return "", false
}

// TargetOf returns the objects of one Machine, which may have no Node, as the target of a
// run. machine is its "namespace/name". It returns false when no Machine has this name, or
// one of each API family has.
func (o *Objects) TargetOf(machine string) (remediate.Target, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := machineNamed(o.ledger, machine)
	if m == nil {
		return remediate.Target{}, false
	}
	return targetOf(o.ledger, o.cluster, m, o.ledger.Node(m.NodeName), m.NodeName), true
}

// MachineOf returns the Machine of a target; nil when it is gone or was replaced.
func (o *Objects) MachineOf(t remediate.Target) *policy.Machine {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// Node returns the Node with this name, or nil.
func (o *Objects) Node(name string) *policy.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Node(name)
}

// Machines lists all Machines, in no order.
func (o *Objects) Machines() []*policy.Machine {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(o.ledger.Machines())
}

// BareMetalHost returns the BareMetalHost with this name, or nil.
func (o *Objects) BareMetalHost(namespace, name string) *policy.Host {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Host(namespace, name)
}

// HostOf finds the BareMetalHost of a Machine.
func (o *Objects) HostOf(m *policy.Machine) (policy.Host, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.HostOf(m)
}

// OtherNodeWithUUID describes another Node that has the system UUID; "" if none has. // I9
func (o *Objects) OtherNodeWithUUID(node, systemUUID string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.NodeWithSameUUID(node, systemUUID)
}

// NamesSince returns the Node that the Machine of a target has now, and the Machine that has its Node.
func (o *Objects) NamesSince(t remediate.Target) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := o.ledger.MachineIn(t.MachineAPI, t.Namespace, t.Machine); m != nil {
		names = append(names, m.NodeName)
	}
	if m := o.ledger.MachineOf(t.Node); m != nil {
		names = append(names, m.Key())
	}
	return names
}

// Names lists the Nodes and the Machines ("namespace/name") whose names begin with a prefix, in no
// order.
func (o *Objects) Names(prefix string) (nodes, machines []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := range o.ledger.Nodes() {
		if strings.HasPrefix(n.Name, prefix) {
			nodes = append(nodes, n.Name)
		}
	}
	for m := range o.ledger.Machines() {
		if name := m.Namespace + "/" + m.Name; strings.HasPrefix(name, prefix) {
			machines = append(machines, name)
		}
	}
	return nodes, machines
}

// Unlabelled lists the Nodes that only their kubelets make one of the control plane, in a cluster that labels its
// control plane. // I12
func (o *Objects) Unlabelled() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Unlabelled()
}

// Crowds lists the namespaces with more checks than are evaluated.
func (o *Objects) Crowds() []policy.Crowd {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ledger.Crowds()
}

// evaluatedMachine finds the Machine that was evaluated; nil when it is gone or was replaced.
func evaluatedMachine(l *policy.Ledger, t *policy.TargetReport) *policy.Machine {
	ns, name, _ := strings.Cut(t.Machine, "/")
	m := l.MachineIn(t.MachineAPIVersion, ns, name)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// targetOf returns the target of a run, with the UIDs that its objects have now. // I2
func targetOf(l *policy.Ledger, cluster string, m *policy.Machine, n *policy.Node, nodeName string) remediate.Target {
	t := remediate.Target{Cluster: cluster, Node: nodeName}
	if n != nil {
		t.NodeUID, t.BootID, t.SystemUUID = n.UID, n.BootID, n.SystemUUID
	}
	if m != nil {
		t.Namespace, t.Machine, t.MachineUID, t.MachineAPI = m.Namespace, m.Name, m.UID, m.APIVersion
		if h, err := l.HostOf(m); err == nil { // otherwise hosts.d may name the host
			t.BareMetalHost, t.BareMetalHostUID = h.Key(), h.UID
		}
	}
	return t
}

// SubjectOf is the name of a target as policy has it: its Node, or the "namespace/name" of
// a Machine that has none.
func SubjectOf(t remediate.Target) string { return cmp.Or(t.Node, t.MachineKey()) }

// IsOn says whether a run is on the Node of a target or, if that has none, on its Machine.
func IsOn(r *remediate.Run, subject string) bool {
	return subject != "" && (r.Target.Node == subject || r.Target.MachineKey() == subject)
}

// machineNamed returns the Machine with this "namespace/name"; nil if there is none, or one
// of each API family.
func machineNamed(l *policy.Ledger, machine string) (found *policy.Machine) {
	namespace, name, _ := strings.Cut(machine, "/")
	for _, api := range []string{policy.OpenShiftMachineAPI, policy.ClusterAPIV1Beta2} {
		m := l.MachineIn(api, namespace, name)
		if m != nil && found != nil {
			return nil
		}
		if m != nil {
			found = m
		}
	}
	return found
}

// missingHost says why the BareMetalHost that a Machine names is not found; "" if it is
// found, or if none is named. Without it fenced can neither ask its owner nor set the power
// lock, even if hosts.d names the host. // I22
func missingHost(l *policy.Ledger, m *policy.Machine) string {
	if m == nil || !m.NamesHost() {
		return ""
	}
	if _, err := l.HostOf(m); err != nil {
		return "Machine " + m.Key() + ": " + err.Error()
	}
	return ""
}

// anyMachineHasItsNode says whether Machines and Nodes are of one cluster: if every Machine's
// Node is missing, the Nodes are those of another cluster. In a normal cluster the first Node
// answers.
func anyMachineHasItsNode(l *policy.Ledger) bool {
	for n := range l.Nodes() {
		if l.MachineOf(n.Name) != nil {
			return true
		}
	}
	return false
}

// hasReturned says whether a Node with the UUID of a run's host shows that the host has
// registered since the run started. A kubelet writes Ready as True or False. The control plane writes
// Unknown when it gets no heartbeat. Such a Node may be left over from a renaming before the
// run. It counts only if it is of another boot and became Unknown after the run started.
func hasReturned(n *policy.Node, r remediate.Run) bool {
	otherBoot := n.BootID != "" && n.BootID != r.Target.BootID
	for c := range n.Conditions.All() {
		if c.Type == "Ready" && c.Status != "True" && c.Status != "False" {
			return otherBoot && c.LastTransition.After(r.Started)
		}
		if c.Type == "Ready" {
			return true
		}
	}
	return otherBoot
}

func ErrNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the watch of the cluster is not complete yet; try again in a few seconds"}
}

// fewestFirst puts files and checks without a namespace first, then the namespaces with the fewest targets. A
// decision may have no time for all, and whoever makes up many in one namespace must not come before the others.
func fewestFirst(list []policy.CheckReport) {
	of := func(c *policy.CheckReport) string {
		if c.Source != "" && c.Source != "cluster" {
			return ""
		}
		return c.Namespace
	}
	targets := map[string]int{}
	for i := range list {
		if namespace := of(&list[i]); namespace != "" {
			targets[namespace] += len(list[i].Targets)
		}
	}
	slices.SortStableFunc(list, func(x, y policy.CheckReport) int { return cmp.Compare(targets[of(&x)], targets[of(&y)]) })
}
