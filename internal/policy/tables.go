package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// machineID identifies a Machine. Both API families may have one of the same
// name.
type machineID struct{ group, namespace, name string }

func (m *Machine) id() machineID { return machineID{m.Group(), m.Namespace, m.Name} }

// tables are the objects of a cluster with the indexes for the evaluation. Decide
// fills them once; the Ledger keeps them up to date.
type tables struct {
	rules     Rules
	upgrading string
	nodes     map[string]*Node
	machines  map[machineID]*Machine
	// underRemediation are the Machines whose remediation has been requested, and
	// those that are being deleted.
	underRemediation map[machineID]*Machine
	nodesByUUID      nodesByUUID
	// nodesWithRole and machinesWithRole are those with the control-plane role.
	nodesWithRole    map[string]*Node
	machinesWithRole map[machineID]*Machine
	labelled         labelledRoles
	// nodeless are the Machines whose Node does not exist.
	nodeless nodelessIndex
	// byNode lists the Machines that name a Node, sorted.
	byNode map[string][]*Machine
	// byKey lists the Machines by their name, and by their UID.
	byKey map[string][]*Machine
	// machineSpaces counts by namespace the Nodes that name a Machine there, and the open runs.
	machineSpaces machineSpaces
	leases        map[string]Lease
	nodeLocks     map[string]NodeLock // of others
	clusters      map[string]*Cluster
	hosts         hostsByName
	// disabled says by the mark of a check why nobody carries out its requests.
	disabled map[string]string
	// tried lists by the mark of a check and the name of a Node or Machine the requests that
	// fenced made, and that exist no more.
	tried    map[string]map[string][]Attempt
	requests requestIndex
	pods     podIndex
	runs     openRuns
	readsOff map[string]bool
	// machineChecks are the OpenShift checks, which conflict with a
	// NodeHealthCheck.
	machineChecks map[CheckID]*Check
	undecoded     map[ObjectKey]int // how many objects with this key
	unreadAny     int               // how many undecoded objects may be any Node
	// unreadMachines are the undecoded objects that may be the Machine of any Node, and how many have this
	// key: those where the administrator says that Machines are, and those without a name or a kind.
	unreadMachines map[ObjectKey]int
	unreadPods     int // how many may be the Pod of a member of etcd
	// overTargetLimit are the namespaces whose checks select more targets than fenced evaluates.
	overTargetLimit crowds
}

func newTables(rules Rules) *tables {
	return &tables{
		rules: rules, nodes: map[string]*Node{}, machines: map[machineID]*Machine{}, underRemediation: map[machineID]*Machine{},
		nodesByUUID: nodesByUUID{}, nodesWithRole: map[string]*Node{}, machinesWithRole: map[machineID]*Machine{}, nodeless: nodelessIndex{}, byNode: map[string][]*Machine{},
		byKey:         map[string][]*Machine{},
		machineSpaces: machineSpaces{},
		leases:        map[string]Lease{}, clusters: map[string]*Cluster{}, hosts: hostsByName{}, requests: newRequestIndex(rules),
		pods: newPodIndex(), runs: openRuns{}, readsOff: map[string]bool{},
		machineChecks: map[CheckID]*Check{}, undecoded: map[ObjectKey]int{}, unreadMachines: map[ObjectKey]int{}, overTargetLimit: crowds{},
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
	w.nodes = w.pods.withRoles(s.Nodes)
	for _, n := range w.nodes {
		w.recordNode(n)
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
		w.machineSpaces.countRun(&w.rules, r, 1)
	}
	w.labelled.setRuns(w.runs)
	var templates []string
	for i := range s.Checks {
		w.putMachineCheck(&s.Checks[i])
		templates = append(templates, templateSpaces(&s.Checks[i])...)
	}
	w.requests.spaces = w.rules.commonSpaces(templates)
	for _, k := range s.Undecoded {
		w.putUndecoded(k)
	}
	w.applyTargetLimit(s.Checks)
	return w
}

func (w *tables) putNode(n *Node) {
	w.nodes[n.Name] = n
	w.recordNode(n)
}

// recordNode adds a Node to the indexes.
func (w *tables) recordNode(n *Node) {
	if n.ControlPlane {
		w.nodesWithRole[n.Name] = n
	}
	w.labelled.addNode(n, 1)
	w.nodesByUUID.note(n, true)
	w.machineSpaces.count(&w.rules, n, 1)
	w.nodeless.recordAll(w.byNode[n.Name], true)
}

func (w *tables) dropNode(name string) {
	if n := w.nodes[name]; n != nil {
		w.nodesByUUID.note(n, false)
	}
	w.labelled.addNode(w.nodes[name], -1)
	w.machineSpaces.count(&w.rules, w.nodes[name], -1)
	delete(w.nodes, name)
	delete(w.nodesWithRole, name)
	w.nodeless.recordAll(w.byNode[name], false)
}

func (w *tables) putMachine(m *Machine) {
	w.machines[m.id()] = m
	for _, key := range []string{m.Name, m.UID} {
		w.byKey[key] = append(w.byKey[key], m)
	}
	w.nodeless.note(m, w.nodes[m.NodeName] != nil)
	if m.ControlPlane {
		w.machinesWithRole[m.id()] = m
	}
	if m.ExternalRemediationRequested || m.Deleting {
		w.underRemediation[m.id()] = m
	}
	if m.NodeName != "" {
		w.byNode[m.NodeName] = insert(w.byNode[m.NodeName], m, byMachine)
	}
}

func (w *tables) dropMachine(m *Machine) {
	delete(w.machines, m.id())
	delete(w.underRemediation, m.id())
	delete(w.machinesWithRole, m.id())
	delete(w.nodeless, m.id())
	drop(w.byNode, m.NodeName, m)
	drop(w.byKey, m.Name, m)
	drop(w.byKey, m.UID, m)
}

func (w *tables) putMachineCheck(c *Check) {
	if c.family() == openShift {
		w.machineChecks[c.ID()] = c
	}
}

func (w *tables) putUndecoded(k ObjectKey) { w.countUndecoded(k, 1) }

func (w *tables) dropUndecoded(k ObjectKey) { w.countUndecoded(k, -1) }

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

// onMachine returns the run on a Machine.
func (o openRuns) onMachine(m *Machine) OpenRun {
	return o[runSubject{group: m.Group(), machine: m.Key()}]
}

// machineOf returns the Machine of the run, or nil.
func (r OpenRun) machineOf(w *tables) *Machine {
	namespace, name := splitKey(r.Machine)
	return w.machines[machineID{group(r.MachineAPI), namespace, name}]
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

// targetNodes are the Nodes as the checks and budgets see them.
type targetNodes struct {
	nodes map[string]*Node
	runs  openRuns
}

func (w *tables) targetNodes() targetNodes { return targetNodes{w.nodes, w.runs} }

// get returns the Node of this name. A Node that does not exist and that an open run names has the
// labels that the run knows. It is nil if there is neither.
func (x targetNodes) get(name string) *Node {
	if n := x.nodes[name]; n != nil {
		return n
	}
	if r, open := x.runs[runSubject{node: name}]; open {
		return &Node{Name: name, Labels: r.NodeLabels, ControlPlane: r.ControlPlane, unlabelled: r.NodeLabels == nil}
	}
	return nil
}

// all iterates over the Nodes, in no order.
func (x targetNodes) all() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, n := range x.nodes {
			if !yield(n) {
				return
			}
		}
		for on := range x.runs {
			if on.node != "" && x.nodes[on.node] == nil && !yield(x.get(on.node)) {
				return
			}
		}
	}
}

// covers reports whether a check that selects Nodes covers this one.
func (x targetNodes) covers(c *Check, n *Node) bool {
	return c.SelectsNodes && x.labelsOf(n).match(c.Selector)
}

// selects reports whether a selector matches a Node.
func (x targetNodes) selects(s labels.Selector, n *Node) bool { return x.labelsOf(n).match(s) }

// targetLabels are the labels of a Node as selectors see them. While a run is open on it, a selector
// that matched it when the run began matches, too: the Node may lack its labels now, or another
// machine may have its name. If a Node does not exist and its labels are not known, every selector
// matches it, as every budget counts it.
type targetLabels struct {
	own     labels.Set
	begun   labels.Set // when the run began; nil: no run is open, or they are not known
	unknown bool
}

func (x targetNodes) labelsOf(n *Node) targetLabels {
	v := targetLabels{own: n.Labels}
	if r, open := x.runs[runSubject{node: n.Name}]; open {
		v.begun, v.unknown = r.NodeLabels, r.NodeLabels == nil && x.nodes[n.Name] == nil
	}
	return v
}

func (v targetLabels) match(s labels.Selector) bool {
	return s != nil && (v.unknown || s.Matches(v.own) || v.begun != nil && s.Matches(v.begun))
}

// covers reports whether a check that selects Machines covers this one.
func (c *Check) covers(m *Machine) bool {
	switch {
	case c.Selector == nil || c.SelectsNodes:
		return false
	case c.family() == fenced: // any namespace, either API family
		return c.Selector.Matches(set(m.Labels))
	}
	return m.Namespace == c.Namespace && m.Group() == group(c.APIVersion) && c.Selector.Matches(set(m.Labels))
}

// Covers reports whether the check selects a target with this Machine and this
// Node, either of which may be nil.
func (c *Check) Covers(m *Machine, n *Node) bool {
	if c.SelectsNodes {
		return n != nil && c.Selector != nil && c.Selector.Matches(set(n.Labels))
	}
	return m != nil && c.covers(m)
}

// covered iterates over what a check covers, in no order: Machines, or else Nodes.
func (w *tables) covered(c *Check) iter.Seq2[*Machine, *Node] {
	return func(yield func(*Machine, *Node) bool) {
		if c.SelectsNodes {
			for n := range w.targetNodes().all() {
				if w.targetNodes().covers(c, n) && !yield(nil, n) {
					return
				}
			}
			return
		}
		for _, m := range w.machines {
			if c.covers(m) && !yield(m, nil) {
				return
			}
		}
	}
}

// selected lists the targets that a check covers, by Machine and Node.
func (w *tables) selected(c *Check) []Subject {
	var list []Subject
	if w.overTargetLimit.includes(&w.rules, c) {
		return nil
	}
	for m, n := range w.covered(c) {
		if m != nil {
			list = append(list, w.machineSubject(m))
		} else {
			list = append(list, w.nodeSubject(n))
		}
	}
	slices.SortFunc(list, bySubject)
	return list
}

// machineSubject is a target of a check that selects Machines.
func (w *tables) machineSubject(m *Machine) Subject {
	x := w.machineAlone(m)
	x.Requests = w.requests.of(x.names(), m, x.Node)
	return x
}

// machineAlone is a target that is a Machine, without its requests.
func (w *tables) machineAlone(m *Machine) Subject {
	x := Subject{Machine: m, Run: w.runs.onMachine(m).ID}
	if m.NodeName != "" {
		x.Node, x.Gone = w.nodes[m.NodeName], w.gone(m.NodeName)
		w.addNode(&x, m.NodeName)
		x.Doubt = w.owners().doubt(m)
	}
	x.NotOwned, x.Foreign = w.owners().notOwned(m, x.Node), !w.owners().counts(m)
	return x
}

// nodeSubject is a target of a check that selects Nodes.
func (w *tables) nodeSubject(n *Node) Subject {
	x := w.nodeAlone(n)
	x.Requests = w.requests.of(x.names(), x.Machine, n)
	return x
}

// nodeAlone is a target that is a Node, without its requests.
func (w *tables) nodeAlone(n *Node) Subject {
	x := Subject{Node: n}
	if x.Machine, x.Doubt = w.owners().machineOf(n); x.Machine != nil {
		x.Run = w.runs.onMachine(x.Machine).ID
	}
	w.addNode(&x, n.Name)
	return x
}

func (w *tables) addNode(x *Subject, node string) {
	x.Run = cmp.Or(x.Run, w.runs[runSubject{node: node}].ID)
	x.Lease, x.ReadsOff = w.leases[node], w.readsOff[node]
}

// checkContext returns the context in which a check is evaluated.
func (w *tables) checkContext(c *Check) CheckContext {
	a := CheckContext{Rules: w.rules, OverTargetLimit: w.overTargetLimit.includes(&w.rules, c)}
	c.family().addContext(w, c, &a)
	if c.AsksOthers() {
		a.Disabled, a.Tried = w.disabled[c.Mark()], w.tried[c.Mark()]
	}
	if w.rules.WaitForUpgrade || c.family().waitsForUpgrades() {
		a.Upgrading = w.upgrading
	}
	return a
}
