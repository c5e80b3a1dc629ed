package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
)

// machineID identifies a Machine. Both API families may have one of the same
// name.
type machineID struct{ group, namespace, name string }

func (m *Machine) id() machineID { return machineID{m.Group(), m.Namespace, m.Name} }

// tables are the objects of a cluster with the indexes for the evaluation. Decide
// fills them once; the Ledger keeps them up to date.
type tables struct {
	owners
	upgrading string
	machines  map[machineID]*Machine
	// underRemediation are the Machines whose remediation has been requested, and
	// those that are being deleted.
	underRemediation map[machineID]*Machine
	// nodesByUUID are the Nodes by system UUID. One whose UUID identifies no machine is not there.
	nodesByUUID listing[bmc.UUID, *Node]
	// nodesWithRole and machinesWithRole are those with the control-plane role.
	nodesWithRole    map[string]*Node
	machinesWithRole map[machineID]*Machine
	// nodeless are the Machines whose Node does not exist.
	nodeless map[machineID]*Machine
	// byKey lists the Machines by their name, and by their UID.
	byKey     listing[string, *Machine]
	leases    map[string]Lease
	nodeLocks map[string]NodeLock // of others
	clusters  map[string]*Cluster
	// disabled says by the mark of a check why nobody carries out its requests.
	disabled map[string]string
	// tried lists by the mark of a check and the name of a Node or Machine the requests that
	// fenced made, and that exist no more.
	tried    map[string]map[string][]Attempt
	requests requestIndex
	pods     podIndex
	readsOff map[string]bool
	// machineChecks are the OpenShift checks, which conflict with a
	// NodeHealthCheck.
	machineChecks map[CheckID]*Check
	unreadAny     int // how many undecoded objects may be any Node
	unreadPods    int // how many may be the Pod of a member of etcd
	// overTargetLimit are the namespaces whose checks select more targets than fenced evaluates.
	overTargetLimit map[space]bool
}

func newTables(rules Rules) *tables {
	return &tables{
		owners: owners{
			rules: rules, nodes: map[string]*Node{}, byNode: newListing[string, *Machine](), hosts: map[string]*Host{}, runs: openRuns{},
			machineSpaces: machineSpaces{}, undecoded: map[ObjectKey]int{}, unreadMachines: map[ObjectKey]int{},
		},
		machines: map[machineID]*Machine{}, underRemediation: map[machineID]*Machine{}, nodesByUUID: newListing[bmc.UUID, *Node](),
		nodesWithRole: map[string]*Node{}, machinesWithRole: map[machineID]*Machine{}, nodeless: map[machineID]*Machine{},
		byKey: newListing[string, *Machine](), leases: map[string]Lease{}, clusters: map[string]*Cluster{}, readsOff: map[string]bool{},
		requests: requestIndex{byPlace: map[requestPlace][]*Request{}, spaces: rules.commonSpaces(nil), rules: rules},
		pods:     podIndex{map[ObjectKey]*Pod{}, map[string]int{}}, machineChecks: map[CheckID]*Check{}, overTargetLimit: map[space]bool{},
	}
}

// tablesOf indexes a snapshot.
func tablesOf(s *Snapshot) *tables {
	w := newTables(s.Rules)
	w.upgrading, w.readsOff = s.Upgrading, s.ReadsOff
	for i := range s.Pods {
		p := &s.Pods[i]
		w.pods.set(ObjectKey{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, p)
	}
	for name, n := range s.Nodes {
		w.setNode(name, w.pods.withRole(n))
	}
	if s.Leases != nil {
		w.leases = s.Leases
	}
	w.nodeLocks = foreignLocks(s)
	for i := range s.Machines {
		w.putMachine(&s.Machines[i])
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		w.clusters[key(c.Namespace, c.Name)] = c
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		w.hosts[h.Key()] = h
	}
	for i := range s.Requests {
		w.requests.put(&s.Requests[i])
	}
	for _, r := range s.OpenRuns {
		w.runs.put(r)
	}
	w.countRuns(s.OpenRuns, 1)
	var templates []string
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.family() == openShift {
			w.machineChecks[c.ID()] = c
		}
		templates = append(templates, templateSpaces(c)...)
	}
	w.requests.spaces = w.rules.commonSpaces(templates)
	for _, k := range s.Undecoded {
		w.countUndecoded(k, 1)
	}
	w.applyTargetLimit(s.Checks)
	return w
}

// setNode replaces a Node; nil removes it.
func (w *tables) setNode(name string, n *Node) {
	if old := w.nodes[name]; old != nil {
		delete(w.nodes, name)
		delete(w.nodesWithRole, name)
		w.countNode(old, -1)
	}
	if n != nil {
		w.nodes[name] = n
		if n.ControlPlane {
			w.nodesWithRole[name] = n
		}
		w.countNode(n, 1)
	}
	for m := range w.byNode.of(name) {
		if n == nil {
			w.nodeless[m.id()] = m
		} else {
			delete(w.nodeless, m.id())
		}
	}
}

// countNode adds a Node to what counts Nodes, or removes it: by is 1 or -1.
func (w *tables) countNode(n *Node, by int) {
	labelled := hasRoleOfAdministrator(n.Labels)
	if labelled {
		w.labelled += by
	}
	if uuid, ok := bmc.ParseUUID(n.SystemUUID); ok && by > 0 {
		w.nodesByUUID.add(uuid, n)
	} else if ok {
		w.nodesByUUID.drop(uuid, n)
	}
	w.machineSpaces.count(w.rules.spacesOfNode(n), n.ControlPlane, labelled, by)
}

// countRuns does that with open runs.
func (w *tables) countRuns(runs []OpenRun, by int) {
	for _, r := range runs {
		if r.takesTurn() && hasRoleOfAdministrator(labels.Set(r.NodeLabels)) {
			w.labelled += by
		}
		w.machineSpaces.count(w.rules.spacesOfRun(&r), r.ControlPlane, r.takesTurn(), by)
	}
}

func (w *tables) putMachine(m *Machine) {
	w.machines[m.id()] = m
	for _, key := range []string{m.Name, m.UID} {
		w.byKey.add(key, m)
	}
	if w.nodes[m.NodeName] == nil {
		w.nodeless[m.id()] = m
	}
	if m.ControlPlane {
		w.machinesWithRole[m.id()] = m
	}
	if m.ExternalRemediationRequested || m.Deleting {
		w.underRemediation[m.id()] = m
	}
	if m.NodeName != "" {
		w.byNode.put(m.NodeName, m, byMachine)
	}
}

func (w *tables) dropMachine(m *Machine) {
	delete(w.machines, m.id())
	delete(w.underRemediation, m.id())
	delete(w.machinesWithRole, m.id())
	delete(w.nodeless, m.id())
	w.byNode.drop(m.NodeName, m)
	w.byKey.drop(m.Name, m)
	w.byKey.drop(m.UID, m)
}

// countUndecoded adds the key of an object that could not be decoded, or removes it: by is 1 or -1.
func (w *tables) countUndecoded(k ObjectKey, by int) {
	if w.undecoded[k] += by; w.undecoded[k] == 0 {
		delete(w.undecoded, k)
	}
	if k.Kind == "" || k.Kind == "Node" && k.Name == "" {
		w.unreadAny += by
	}
	if k.Kind == "" || k.Kind == "Machine" && (k.Name == "" || w.rules.trusts(k.Group, k.Namespace)) {
		if w.unreadMachines[k] += by; w.unreadMachines[k] == 0 {
			delete(w.unreadMachines, k)
		}
	}
	if k.Kind == "" || k.Kind == "Pod" {
		w.unreadPods += by
	}
}

// gone reports whether a Node is known not to exist. A Node that could not be
// decoded exists.
func (w *tables) gone(node string) bool {
	return w.nodes[node] == nil && w.unreadAny == 0 && w.undecoded[ObjectKey{Kind: "Node", Name: node}] == 0
}

// insert inserts a value at its place in a sorted list.
func insert[T any](list []T, v T, order func(a, b T) int) []T {
	at, _ := slices.BinarySearchFunc(list, v, order)
	return slices.Insert(list, at, v)
}

// drop removes a value from one of the lists of an index.
func drop[K, V comparable](index map[K][]V, name K, v V) {
	list := index[name]
	at := slices.Index(list, v)
	switch {
	case at < 0:
	case len(list) == 1:
		delete(index, name)
	default: // copy: a caller may still hold the old list
		index[name] = slices.Concat(list[:at], list[at+1:])
	}
}

// byMachine orders Machines for display, independent of the input order.
func byMachine(a, b *Machine) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Group(), b.Group()))
}

// byRequest orders requests for display, independent of the input order.
func byRequest(a, b *Request) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.APIVersion, b.APIVersion))
}

// machineGroups are the API groups whose Machines are read.
var machineGroups = []string{group(OpenShiftMachineAPI), group(ClusterAPIV1Beta2)}

// openRuns are the open runs by what they are on. Each is there by its Machine and by its Node.
type openRuns map[runSubject]OpenRun

// runSubject is a Machine "namespace/name" of an API group, or a Node.
type runSubject struct{ group, machine, node string }

func (o openRuns) put(r OpenRun) {
	if r.Machine != "" {
		o[runSubject{group: group(r.MachineAPI), machine: r.Machine}] = r
	}
	if r.Node != "" {
		o[runSubject{node: r.Node}] = r
	}
}

// onMachine returns the run on a Machine, or else one that may be on it; see OpenRun.MachineAPI.
func (o openRuns) onMachine(m *Machine) OpenRun {
	if r, open := o[runSubject{group: m.Group(), machine: m.Key()}]; open {
		return r
	}
	return o[runSubject{machine: m.Key()}]
}

// machinesOf lists the Machines that a run may be for.
func (w *tables) machinesOf(r OpenRun) (list []*Machine) {
	namespace, name := splitKey(r.Machine)
	for _, g := range machineGroups {
		if m := w.machines[machineID{g, namespace, name}]; m != nil && r.isOf(m) {
			list = append(list, m)
		}
	}
	return list
}

// Equal reports whether two runs are the same to everything that is evaluated.
func (r OpenRun) Equal(o OpenRun) bool {
	return r.ID == o.ID && r.Machine == o.Machine && r.MachineAPI == o.MachineAPI && r.Node == o.Node && r.ControlPlane == o.ControlPlane && r.TakesNoTurn == o.TakesNoTurn && r.SystemUUID == o.SystemUUID &&
		(r.NodeLabels == nil) == (o.NodeLabels == nil) && maps.Equal(r.NodeLabels, o.NodeLabels) && r.NodeNames == o.NodeNames
}

// While a run is open on a Node, every check that selected the Node goes on to count it: also when
// the run has deleted it, and when it registers again without the labels that step 5 restores, or
// another machine registers under its name.
// Otherwise each Node that fenced removes would make room under the limit for the next one, and a
// percentage would shrink with them. Such a Node is a target like any other. It is under
// remediation, so no check asks for anything there. // I11

// targetNode returns the Node of this name, as the checks and budgets see it. A Node that does not exist and that an open run names has the
// labels that the run knows. It is nil if there is neither.
func (o *owners) targetNode(name string) *Node {
	if n := o.nodes[name]; n != nil {
		return n
	}
	if r, open := o.runs[runSubject{node: name}]; open {
		return &Node{Name: name, Labels: LabelsOf(r.NodeLabels), ControlPlane: r.ControlPlane, unlabelled: r.NodeLabels == nil}
	}
	return nil
}

// targetNodes iterates over the Nodes as the checks see them, in no order.
func (o *owners) targetNodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, n := range o.nodes {
			if !yield(n) {
				return
			}
		}
		for on := range o.runs {
			if on.node != "" && o.nodes[on.node] == nil && !yield(o.targetNode(on.node)) {
				return
			}
		}
	}
}

// targetLabels are the labels of a Node as selectors see them. While a run is open on it, a selector
// that matched it when the run began matches, too: the Node may lack its labels now, or another
// machine may have its name. If a Node does not exist and its labels are not known, every selector
// matches it, as every budget counts it.
type targetLabels struct {
	own     Labels
	begun   labels.Set // when the run began; nil: no run is open, or they are not known
	unknown bool
}

func (o *owners) targetLabels(n *Node) targetLabels {
	v := targetLabels{own: n.Labels}
	if r, open := o.runs[runSubject{node: n.Name}]; open {
		v.begun, v.unknown = r.NodeLabels, r.NodeLabels == nil && o.nodes[n.Name] == nil
	}
	return v
}

func (v targetLabels) match(s labels.Selector) bool {
	return s != nil && (v.unknown || s.Matches(v.own) || v.begun != nil && s.Matches(v.begun))
}

// Covers reports whether the check selects a target with this Machine and this
// Node, either of which may be nil.
func (c *Check) Covers(m *Machine, n *Node) bool {
	switch {
	case c.Selector == nil:
		return false
	case c.SelectsNodes:
		return n != nil && c.Selector.Matches(n.Labels)
	case m == nil:
		return false
	case c.family() == fenced: // any namespace, either API family
		return c.Selector.Matches(labels.Set(m.Labels))
	}
	return m.Namespace == c.Namespace && m.Group() == group(c.APIVersion) && c.Selector.Matches(labels.Set(m.Labels))
}

// covered iterates over what a check covers, in no order: Machines, or else Nodes.
func (w *tables) covered(c *Check) iter.Seq2[*Machine, *Node] {
	return func(yield func(*Machine, *Node) bool) {
		if c.SelectsNodes {
			for n := range w.targetNodes() {
				if w.targetLabels(n).match(c.Selector) && !yield(nil, n) {
					return
				}
			}
			return
		}
		for _, m := range w.machines {
			if c.Covers(m, nil) && !yield(m, nil) {
				return
			}
		}
	}
}

// selected lists the targets that a check covers, by Machine and Node.
func (w *tables) selected(c *Check) []Subject {
	var list []Subject
	for m, n := range w.covered(c) {
		if m != nil {
			list = append(list, w.withRequests(w.machineSubject(m)))
		} else {
			list = append(list, w.withRequests(w.nodeSubject(n)))
		}
	}
	slices.SortFunc(list, bySubject)
	return list
}

// machineSubject is a target that is a Machine.
func (w *tables) machineSubject(m *Machine) Subject {
	x := Subject{Machine: m, Run: w.runs.onMachine(m).ID}
	if m.NodeName != "" {
		x.Node, x.Gone = w.nodes[m.NodeName], w.gone(m.NodeName)
		x.Run = cmp.Or(x.Run, w.runs[runSubject{node: m.NodeName}].ID)
		x.Lease, x.ReadsOff = w.leases[m.NodeName], w.readsOff[m.NodeName]
		x.Doubt = w.doubt(m)
	}
	x.NotOwned, x.Foreign = w.NotOwned(m, x.Node), !w.counts(m)
	return x
}

// nodeSubject is a target that is a Node.
func (w *tables) nodeSubject(n *Node) Subject {
	x := Subject{Node: n, Lease: w.leases[n.Name], ReadsOff: w.readsOff[n.Name]}
	if x.Machine, x.Doubt = w.machineOf(n); x.Machine != nil {
		x.Run = w.runs.onMachine(x.Machine).ID
	}
	x.Run = cmp.Or(x.Run, w.runs[runSubject{node: n.Name}].ID)
	return x
}

// withRequests is a target with its requests. The target of a request comes without: of many requests for one
// target, each would list all.
func (w *tables) withRequests(x Subject) Subject {
	names := TargetNames{Node: x.nodeName()}
	if m := x.Machine; m != nil {
		names.Namespace, names.Machine, names.MachineUID = m.Namespace, m.Name, m.UID
	}
	x.Requests = w.requests.of(names, x.Machine, x.Node)
	return x
}

// CheckContext returns the context in which a check is evaluated. Later changes do not affect it.
func (w *tables) CheckContext(c *Check) CheckContext {
	author, limited := w.rules.authorOf(c)
	a := CheckContext{Rules: w.rules, OverTargetLimit: limited && w.overTargetLimit[author]}
	c.family().addContext(w, c, &a)
	if c.AsksOthers() {
		a.Disabled, a.Tried = w.disabled[c.Mark()], w.tried[c.Mark()]
	}
	if w.rules.WaitForUpgrade || c.family() == medik8s { // whose checks do nothing during an upgrade, whatever fenced.yaml says
		a.Upgrading = w.upgrading
	}
	return a
}
