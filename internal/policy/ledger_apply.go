package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// ObjectID names one object of a cluster.
type ObjectID struct {
	APIVersion, Kind, Namespace, Name string
	// OnManagementAPI: a remediation request on a separate management API. The workload API
	// may have another one of the same name.
	OnManagementAPI bool
}

// String names the object for people.
func (id ObjectID) String() string {
	if id.Name == "" {
		return id.Kind + " (no name)"
	}
	return id.Kind + " " + key(id.Namespace, id.Name)
}

// Key is the key of the object in Snapshot.Undecoded.
func (id ObjectID) Key() ObjectKey {
	k := ObjectKey{Kind: id.kind(), Namespace: id.Namespace, Name: id.Name}
	if k.Kind == "Machine" {
		k.Group = group(id.APIVersion)
	}
	return k
}

// kindGroups are the API groups of the kinds that fenced reads; the core group is
// given by its version. An object of another group may have a kind of the same
// name, for example a remediation request of a kind that the author of a check
// chose.
var kindGroups = withChecks(map[string][]string{
	"Node": {"v1"}, "Pod": {"v1"}, "Lease": {"coordination.k8s.io"},
	"Machine": machineGroups, "Cluster": {group(ClusterAPIV1Beta2)}, DisruptionBudgetKind: {group(FencedAPI)},
	"BareMetalHost": {"metal3.io"}, "ClusterVersion": {"config.openshift.io"},
})

// withChecks adds the kinds of checks.
func withChecks(groups map[string][]string) map[string][]string {
	for check := range families {
		groups[check[1]] = append(groups[check[1]], group(check[0]))
	}
	return groups
}

// kind is the kind, with the API group appended if the group is not one that
// fenced reads under this kind. An ID without an apiVersion keeps its plain kind.
func (id ObjectID) kind() string {
	groups, ours := kindGroups[id.Kind]
	if !ours || id.APIVersion == "" || slices.Contains(groups, group(id.APIVersion)) {
		return id.Kind
	}
	return id.Kind + "." + group(id.APIVersion)
}

// Change is one object that was added, changed or deleted.
type Change struct {
	ID ObjectID
	// Value is the object: a *Node, *Machine, *Check, *DisruptionBudget, *Cluster,
	// *Request, *Pod, *Lease, *Host or *Upgrade. A nil Value with a nil Err
	// means that the object is gone from the cluster. A check that came from a file
	// stays.
	Value any
	// Err means that the object exists but could not be decoded. It is not
	// evaluated, and never treated as absent. A Value next to Err is what could be
	// read.
	Err error
}

// Upgrade is the state of a ClusterVersion: Why describes the upgrade in
// progress; "" means that there is none.
type Upgrade struct {
	Why string
}

// Apply records changes and evaluates what they concern. It is idempotent. If an object could not be decoded,
// its old value is no longer used.
func (l *Ledger) Apply(now time.Time, changes ...Change) {
	for _, c := range changes {
		err := l.put(c.ID, c.Value, c.Err)
		l.enforceTargetLimit()
		old, had := l.errors[c.ID]
		if had && err == nil {
			delete(l.errors, c.ID)
			l.tables.countUndecoded(c.ID.Key(), -1)
		}
		if err != nil {
			l.errors[c.ID] = ObjectError{Object: c.ID.String(), Message: strings.ReplaceAll(err.Error(), "\n", "; ")}
			if !had {
				l.tables.countUndecoded(c.ID.Key(), 1)
			}
		}
		if had != (err != nil) {
			l.touchUndecoded(c.ID.Key())
		}
		if old != l.errors[c.ID] {
			l.Version++
		}
	}
	l.Advance(now)
}

// touchUndecoded marks what may depend on an object that could not be decoded, or
// can be decoded again.
func (l *Ledger) touchUndecoded(k ObjectKey) {
	switch {
	case k.Kind == "Node" && k.Name != "":
		l.touchNode(k.Name)
	case k.Kind == "Node" || k.Kind == "":
		l.full = true
	case k.Kind == "Machine":
		l.touchNodeTargets(k)
	}
	l.stale = true
}

// touchNodeTargets marks every target that is a Node without a Machine, and whose Machine may be
// the one of this key.
func (l *Ledger) touchNodeTargets(k ObjectKey) {
	ofAny, named := k.Name == "" || l.tables.rules.trusts(k.Group, k.Namespace), key(k.Namespace, k.Name)
	for _, c := range l.checks {
		for _, e := range c.targets {
			if e.machine != nil {
				continue
			}
			if n := l.tables.nodes[e.node]; ofAny || n != nil && n.named(k.Group) == named {
				l.touch(e)
			}
		}
	}
}

// put replaces one object; a nil value removes it. It returns err, or an error of
// its own if the value does not have the type of the kind.
func (l *Ledger) put(id ObjectID, value any, err error) error {
	switch _, request := value.(*Request); {
	case request, value == nil && err == nil && l.requests[id] != nil:
		// The author of a check chooses the kind of its requests. A request must
		// never replace or remove an object of another kind, whatever its name.
		dispatch(id, value, l.setRequest)
		return err
	case err != nil && l.requests[id] != nil:
		l.setRequest(id, nil)
	}
	ok := true
	switch id.kind() {
	case "Node":
		ok = dispatch(id, value, l.setNode)
	case "Machine":
		ok = dispatch(id, value, l.setMachine)
	case MachineHealthCheckKind, NodeHealthCheckKind, FencePolicyKind:
		ok = dispatch(id, value, l.setCheck)
	case DisruptionBudgetKind:
		ok = dispatch(id, value, l.setBudget)
	case "Cluster":
		ok = dispatch(id, value, l.setCluster)
	case "Pod":
		ok = dispatch(id, value, l.setPod)
	case "Lease":
		ok = dispatch(id, value, l.setLease)
	case "BareMetalHost":
		ok = dispatch(id, value, l.setHost)
	case "ClusterVersion":
		ok = dispatch(id, value, l.setUpgrade)
	default:
		ok = dispatch(id, value, l.setRequest)
	}
	if !ok && err == nil {
		return fmt.Errorf("a %s cannot be a %T", id.Kind, value)
	}
	return err
}

// dispatch calls set with a value of type *T, or with nil for any other type.
func dispatch[T any](id ObjectID, value any, set func(ObjectID, *T)) bool {
	v, ok := value.(*T)
	set(id, v)
	return ok || value == nil
}

func (l *Ledger) setNode(id ObjectID, n *Node) {
	old := l.tables.nodes[id.Name]
	if old == nil && n == nil || id.Namespace != "" { // a Node has no namespace
		return
	}
	if n != nil {
		n = l.tables.pods.withRole(n)
	}
	same := old != nil && n != nil && old.equalsExceptHealth(n)
	relabelled := old == nil || n == nil || !old.Labels.Equal(n.Labels)
	var before nodeCoverage
	if relabelled {
		before = l.coverageOf(id.Name)
	}
	var spaces map[space]spaceCount
	if !same {
		spaces = l.spaceCounts(slices.Concat(l.tables.rules.spacesOfNode(old), l.tables.rules.spacesOfNode(n)))
		l.countNode(old, -1)
		l.countMachinesWith(id.Name, spaces, -1)
	}
	l.tables.setNode(id.Name, n)
	l.touchNode(id.Name)
	if same {
		return
	}
	l.countNode(n, 1)
	l.countMachinesWith(id.Name, spaces, 1)
	if relabelled {
		l.cover(before)
	}
	l.touchSpaces(spaces)
	l.Version++
}

// spaceCounts returns the counts of some namespaces.
func (l *Ledger) spaceCounts(list []space) map[space]spaceCount {
	counts := map[space]spaceCount{}
	for _, in := range list {
		counts[in] = l.tables.machineSpaces[in]
	}
	return counts
}

// countMachinesWith adds the Machines of a Node to the counts of all budgets, or removes them: by is 1 or -1. So it
// does with the Machines without a Node where a Node more or less decides whether they count.
func (l *Ledger) countMachinesWith(node string, before map[space]spaceCount, by int) {
	if len(l.budgets) == 0 {
		return
	}
	for m := range l.tables.byNode.of(node) {
		l.countMachine(m, by)
	}
	for in, was := range before {
		for _, m := range l.tables.nodeless {
			if was.nodes <= 1 && l.tables.rules.spaceOf(m.Group(), m.Namespace) == in && m.NodeName != node {
				l.countMachine(m, by)
			}
		}
	}
}

// touchSpaces marks the Machines without a Node where another answer is true now.
func (l *Ledger) touchSpaces(before map[space]spaceCount) {
	for in, was := range before {
		is := l.tables.machineSpaces[in]
		if (was.nodes > 0) == (is.nodes > 0) && (was.controlPlane > 0) == (is.controlPlane > 0) && (was.labelled > 0) == (is.labelled > 0) {
			continue
		}
		for _, m := range l.tables.nodeless {
			if l.tables.rules.spaceOf(m.Group(), m.Namespace) == in {
				l.touchMachine(m.Name)
			}
		}
	}
}

// equalsExceptHealth reports whether two versions of a Node are the same to
// everything but the health rules.
func (n *Node) equalsExceptHealth(o *Node) bool {
	return n.UID == o.UID && n.SystemUUID == o.SystemUUID && n.BootID == o.BootID && n.MachineID == o.MachineID &&
		n.ProviderID == o.ProviderID && n.OpenShiftMachine == o.OpenShiftMachine && n.ClusterMachine == o.ClusterMachine && n.ControlPlane == o.ControlPlane && n.fromPod == o.fromPod && n.Deleting == o.Deleting &&
		n.Ready() == o.Ready() && n.Labels.Equal(o.Labels) && slices.Equal(n.Addresses, o.Addresses)
}

func (l *Ledger) setMachine(id ObjectID, m *Machine) {
	old := l.tables.machines[machineID{group(id.APIVersion), id.Namespace, id.Name}]
	if m == nil && (old == nil || old.APIVersion != id.APIVersion) {
		return // it does not exist, or still exists in another version of the API
	}
	if old != nil {
		l.countMachine(old, -1)
		l.tables.dropMachine(old)
		l.touchNode(old.NodeName)
	}
	if m != nil {
		l.tables.putMachine(m)
		l.countMachine(m, 1)
	}
	for _, c := range l.checks {
		var e *targetEntry
		if old != nil {
			e = find(l.onMachine.of(old.Name), c, old)
		}
		if e != nil && m != nil {
			if e.machine = m; e.node != m.NodeName {
				l.onNode.drop(e.node, e)
				if e.node = m.NodeName; e.node != "" {
					l.onNode.add(e.node, e)
				}
			}
		}
		if c.check.SelectsNodes {
			continue
		}
		if old == nil || m == nil || !maps.Equal(old.Labels, m.Labels) {
			was, node := old != nil && c.check.Covers(old, nil), ""
			if m != nil {
				node = m.NodeName
			}
			l.setCovered(c, e, was, m != nil && c.check.Covers(m, nil), m, node)
		}
	}
	if m != nil {
		l.touchMachine(m.Name)
		l.touchNode(m.NodeName)
	}
	if old == nil || m == nil || !old.equalsExceptHealth(m) {
		l.Version++
	}
}

// equalsExceptHealth reports whether two versions of a Machine are the same to
// everything but the health rules.
func (m *Machine) equalsExceptHealth(o *Machine) bool {
	return m.UID == o.UID && m.Phase == o.Phase && m.Deleting == o.Deleting && m.NodeName == o.NodeName && m.NodeUID == o.NodeUID &&
		m.Authoritative == o.Authoritative && m.isSuspended() == o.isSuspended() && m.Infrastructure == o.Infrastructure &&
		m.ProviderID == o.ProviderID && m.ControllerOwner == o.ControllerOwner && m.ControlPlane == o.ControlPlane &&
		m.ExternalRemediationRequested == o.ExternalRemediationRequested && maps.Equal(m.Annotations, o.Annotations)
}

func (l *Ledger) setCluster(id ObjectID, c *Cluster) {
	name := key(id.Namespace, id.Name)
	delete(l.tables.clusters, name)
	if c != nil {
		l.tables.clusters[name] = c
	}
	l.stale = true
}

func (l *Ledger) setPod(id ObjectID, p *Pod) {
	for _, name := range l.tables.pods.set(id.Key(), p) {
		if n := l.tables.nodes[name]; n != nil && l.tables.pods.withRole(n) != n {
			l.setNode(ObjectID{Kind: "Node", Name: name}, n)
		}
	}
	l.Version++
}

func (l *Ledger) setLease(id ObjectID, v *Lease) {
	delete(l.tables.leases, id.Name)
	if v != nil {
		l.tables.leases[id.Name] = *v
	}
	l.touchNode(id.Name)
}

func (l *Ledger) setHost(id ObjectID, h *Host) {
	name := key(id.Namespace, id.Name)
	old := l.tables.hosts[name]
	if !reflect.DeepEqual(old, h) {
		l.Version++
	}
	delete(l.tables.hosts, name)
	if h != nil {
		l.tables.hosts[name] = h
	}
	if !old.sameConsumer(h) {
		for _, m := range l.tables.nodeless { // a BareMetalHost shows whose the Node was
			if m.NodeName != "" && (m.mayRunOn(old) || m.mayRunOn(h)) {
				l.touchMachine(m.Name)
				l.touchNode(m.NodeName)
			}
		}
	}
}

// sameConsumer reports whether two versions of a host name the same Machine.
func (h *Host) sameConsumer(o *Host) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.UID == o.UID && h.OnManagementAPI == o.OnManagementAPI && h.ConsumerRef == o.ConsumerRef && h.ConsumerKind == o.ConsumerKind && h.State == o.State
}

func (l *Ledger) setUpgrade(id ObjectID, u *Upgrade) {
	switch {
	case u != nil:
		l.upgradeOf, l.tables.upgrading = id, u.Why
	case l.upgradeOf == id:
		l.tables.upgrading = ""
	}
	l.stale = true
}

func (l *Ledger) setRequest(id ObjectID, r *Request) {
	old := l.requests[id]
	if old != nil {
		delete(l.requests, id)
		l.tables.requests.drop(old)
		l.touchTargetsOf(old)
	}
	if r != nil {
		l.requests[id] = r
		l.tables.requests.put(r)
		l.touchTargetsOf(r)
	}
	if old != nil || r != nil {
		l.Version++
	}
}

// touchTargetsOf marks the targets that a request may be for.
func (l *Ledger) touchTargetsOf(r *Request) {
	for _, key := range r.keys() {
		l.touchNode(key)
		for m := range l.byKey.of(key) {
			l.touchMachine(m.Name)
			l.touchNode(m.NodeName)
		}
	}
}

// SetRuns replaces the list of open runs. It marks the targets of every run that started, ended or changed.
func (l *Ledger) SetRuns(now time.Time, runs []OpenRun) {
	if slices.EqualFunc(runs, l.runs, OpenRun.Equal) {
		l.Advance(now)
		return
	}
	fresh := make(openRuns, 2*len(runs))
	for _, r := range runs {
		fresh.put(r)
	}
	changed := slices.Concat(notAmong(l.runs, runs), notAmong(runs, l.runs))
	var where []space
	nodes, machines := map[string]nodeCoverage{}, map[*Machine]bool{}
	for _, r := range changed {
		where = append(where, l.tables.rules.spacesOfRun(&r)...)
		nodes[r.Node] = l.coverageOf(r.Node)
		for m := range l.tables.byNode.of(r.Node) {
			machines[m] = true
		}
		for _, m := range l.tables.machinesOf(r) {
			machines[m] = true
			l.touchMachine(m.Name)
			l.touchNode(m.NodeName)
		}
	}
	spaces := l.spaceCounts(where)
	for _, m := range l.tables.nodeless { // a run more or less decides whether they count
		if _, concerned := spaces[l.tables.rules.spaceOf(m.Group(), m.Namespace)]; concerned {
			machines[m] = true
		}
	}
	for m := range machines {
		l.countMachine(m, -1)
	}
	for name := range nodes {
		l.touchNode(name)
		l.countNode(l.tables.nodes[name], -1)
	}
	l.tables.countRuns(l.runs, -1)
	l.tables.countRuns(runs, 1)
	l.runs, l.tables.runs = slices.Clone(runs), fresh
	l.touchSpaces(spaces)
	for name, before := range nodes {
		l.countNode(l.tables.nodes[name], 1)
		l.cover(before)
	}
	l.enforceTargetLimit()
	for m := range machines {
		l.countMachine(m, 1)
	}
	l.Version++
	l.Advance(now)
}

// notAmong lists the runs that are not the same among others. They are lists, because of two runs on one Node openRuns has
// only one there, and the namespaces that the other names count, too. // I11
func notAmong(runs, others []OpenRun) (list []OpenRun) {
	type subject struct{ id, machine, node string }
	of := func(r OpenRun) subject { return subject{r.ID, r.Machine, r.Node} }
	known := make(map[subject]OpenRun, len(others))
	for _, r := range others {
		known[of(r)] = r
	}
	for _, r := range runs {
		if o, found := known[of(r)]; !found || !r.Equal(o) {
			list = append(list, r)
		}
	}
	return list
}
