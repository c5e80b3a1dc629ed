package policy

import (
	"cmp"
	"slices"
	"strings"
)

// space is a namespace on an API server. Whoever may write in a namespace of the cluster decides
// nothing about the one of its name on a management API apart, nor the other way round.
type space struct {
	apart     bool // on the management API, and that is another one
	namespace string
}

// spaceOf returns where an object of an API group is. Only the objects of the Cluster API are on
// the management API.
func (r *Rules) spaceOf(apiGroup, namespace string) space {
	return space{r.ManagementApart && apiGroup == group(ClusterAPIV1Beta2), namespace}
}

// spacesOfNode returns where the Machines are that a Node names, each space once.
func (r *Rules) spacesOfNode(n *Node) (list []space) {
	if !r.ManagementApart {
		for _, namespace := range n.spaces() {
			list = append(list, space{namespace: namespace})
		}
		return list
	}
	for _, apart := range []bool{false, true} {
		for _, namespace := range n.spacesOn(apart) {
			list = append(list, space{apart, namespace})
		}
	}
	return list
}

// spacesOfRun returns where the Machines are that the Node of a run named, and where the Machine of the run
// may be, each space once. A run without a Node has none.
func (r *Rules) spacesOfRun(run *OpenRun) []space {
	if run.Node == "" {
		return nil
	}
	list := r.spacesOfNode(run.nodeThen())
	if namespace, _ := splitKey(run.Machine); namespace != "" {
		if in := r.spaceOf(group(run.MachineAPI), namespace); !slices.Contains(list, in) {
			list = append(list, in)
		}
		if apart := (space{true, namespace}); r.ManagementApart && run.MachineAPI == "" && !slices.Contains(list, apart) {
			list = append(list, apart)
		}
	}
	return list
}

// trustsSpace reports whether the administrator named the namespace as one of the Machines of the
// cluster.
func (r *Rules) trustsSpace(s space) bool {
	switch {
	case s.apart:
		return r.trusts(group(ClusterAPIV1Beta2), s.namespace)
	case r.ManagementApart:
		return r.trusts(group(OpenShiftMachineAPI), s.namespace)
	}
	return r.trusts("", s.namespace)
}

// compare orders spaces for display.
func (s space) compare(o space) int {
	switch {
	case s.apart == o.apart:
		return strings.Compare(s.namespace, o.namespace)
	case o.apart:
		return -1
	}
	return 1
}

// TrustsChecks reports whether the administrator named a namespace, where checks of an API version are, as one of the
// Machines of the cluster.
func (r *Rules) TrustsChecks(apiVersion, namespace string) bool {
	return r.trustsSpace(r.spaceOf(group(apiVersion), namespace))
}

// text names the namespace in a message.
func (s space) text() string {
	if s.apart {
		return "namespace " + s.namespace + " of the management API"
	}
	return "namespace " + s.namespace
}

// spaceCount is how many Nodes, Nodes of the control plane, and such with a label that no kubelet can set, name a
// Machine in a namespace.
type spaceCount struct{ nodes, controlPlane, labelled int }

// machineSpaces are the namespaces in which Nodes name a Machine. An open run counts like the
// Node on which it is, as that was when the run began: it may have deleted that. // I11
type machineSpaces map[space]spaceCount

// count counts a Node, or an open run, in the namespaces that it names, or removes it: by is 1 or -1.
func (s machineSpaces) count(spaces []space, controlPlane, labelled bool, by int) {
	for _, in := range spaces {
		c := s[in]
		c.nodes += by
		if controlPlane {
			c.controlPlane += by
		}
		if labelled {
			c.labelled += by
		}
		if s[in] = c; c.nodes == 0 {
			delete(s, in)
		}
	}
}

// spaces are the namespaces of the Machines that the Node names, each once.
func (n *Node) spaces() (list []string) {
	if n == nil {
		return nil
	}
	add := func(namespace string) {
		if namespace != "" && !slices.Contains(list, namespace) {
			list = append(list, namespace)
		}
	}
	for _, named := range []string{n.OpenShiftMachine, n.ClusterMachine} {
		if namespace, _, found := strings.Cut(named, "/"); found {
			add(namespace)
		}
	}
	if ref, err := parseProviderID(n.ProviderID); err == nil {
		add(ref.namespace)
	}
	return list
}

// spacesOn are the namespaces of n.spaces on one of two APIs.
func (n *Node) spacesOn(apart bool) []string {
	if n == nil {
		return nil
	}
	seen := Node{}
	if apart {
		seen.ClusterMachine = n.ClusterMachine
	} else {
		seen.OpenShiftMachine = n.OpenShiftMachine
	}
	if apart == (groupOfProvider(n.ProviderID) == group(ClusterAPIV1Beta2)) {
		seen.ProviderID = n.ProviderID
	}
	return seen.spaces()
}

// Whoever may create requests in some namespace could name any target. So a request says
// something about a target only where whoever writes there may decide about it: in a
// namespace that the administrator names, in one of the templates of checks that have no
// namespace themselves, in that of the Machine, or in one that the Node names. Elsewhere it
// counts nowhere. A namespace of a management API apart is not the one of its name in the
// cluster, which anybody may have created. // I2

// requestPlace is a namespace on an API, and the name of a target there. The namespace is "" if the
// requests of all namespaces count.
type requestPlace struct {
	apart             bool
	namespace, target string
}

// requestIndex has the remediation requests by where they are, and by their keys.
type requestIndex struct {
	byPlace map[requestPlace][]*Request
	// spaces are the namespaces whose requests may be for every target.
	spaces []string
	// rules say whether there is a management API apart, and whether those of all namespaces count.
	rules Rules
}

// places are where a request is found: once for each of its keys.
func (x *requestIndex) places(r *Request) (list []requestPlace) {
	for _, key := range r.keys() {
		if x.rules.TrustNames {
			list = append(list, requestPlace{target: key})
		} else {
			list = append(list, requestPlace{r.OnManagementAPI, r.Namespace, key})
		}
	}
	return list
}

func (x *requestIndex) put(r *Request) {
	for _, at := range x.places(r) {
		x.byPlace[at] = insert(slices.Clone(x.byPlace[at]), r, byRequest)
	}
}

func (x *requestIndex) drop(r *Request) {
	for _, at := range x.places(r) {
		drop(x.byPlace, at, r)
	}
}

// of lists the requests for a target, sorted. Its Machine and Node may be nil.
func (x *requestIndex) of(t TargetNames, m *Machine, n *Node) (list []*Request) {
	if len(x.byPlace) == 0 {
		return nil
	}
	add := func(at requestPlace) {
		for _, at.target = range []string{t.Node, t.Machine, t.MachineUID} {
			for _, q := range x.byPlace[at] {
				if q.IsFor(t) {
					list = append(list, q)
				}
			}
		}
	}
	for _, apart := range []bool{false, true} {
		switch {
		case apart && !x.rules.ManagementApart:
		case x.rules.TrustNames:
			add(requestPlace{})
		default:
			for _, namespace := range x.rules.withTarget(x.spaces, apart, m, n) {
				add(requestPlace{apart: apart, namespace: namespace})
			}
		}
	}
	slices.SortStableFunc(list, byRequest)
	return slices.Compact(list)
}

// TargetNames are the names of a target. Without a Machine, or a Node, its names are empty.
type TargetNames struct{ Namespace, Machine, MachineUID, Node string }

// IsFor reports whether a request, in a namespace whose requests may be for a target, is for that one: who carries it
// out would switch the same host. It is if the Machine owns it, if it has the name of the Machine in the namespace of
// that, also of one that had the name before, or if it names the Node, whatever owns it. Where no Node is known the
// Machine may be the one of the named Node. The Nodes of a separate management API are those of another cluster. // I22
func (r *Request) IsFor(t TargetNames) bool {
	name := r.targetName()
	switch {
	case t.MachineUID != "" && slices.ContainsFunc(r.Owners, func(o Owner) bool { return o.UID == t.MachineUID }):
		return true
	case name == t.Machine && r.Namespace == t.Namespace:
		return true
	case r.OnManagementAPI:
		return false
	}
	return name == t.Node || t.Node == "" && name == t.Machine
}

// targetName is the name that a request gives its target: of the Node that it names, or its own. What a request on
// a separate management API names is a Node of another cluster.
func (r *Request) targetName() string {
	if r.OnManagementAPI {
		return r.Name
	}
	return cmp.Or(r.NodeName, r.Name)
}

// keys are what a target has that a request is for: the name, or the UID of an owner.
func (r *Request) keys() []string {
	keys := []string{r.targetName()}
	for _, o := range r.Owners {
		if o.UID != "" && !slices.Contains(keys, o.UID) {
			keys = append(keys, o.UID)
		}
	}
	return keys
}

// contender names a request to another remediator for a target; "" if there is none.
func (x *requestIndex) contender(t *TargetReport, m *Machine, n *Node) string {
	namespace, machine := splitKey(t.Machine)
	for _, q := range x.of(TargetNames{namespace, machine, t.MachineUID, t.Node}, m, n) {
		if q.Power == nil {
			return q.Contender()
		}
	}
	return ""
}

// Contender says that a request is one to another remediator.
func (r *Request) Contender() string {
	return r.Kind + " " + r.key() + " asks another remediator to repair it"
}

// mayBeFor reports whether a request may be for a target.
func (x *requestIndex) mayBeFor(q *Request, m *Machine, n *Node) bool {
	return x.rules.TrustNames || slices.Contains(x.rules.withTarget(x.spaces, q.OnManagementAPI, m, n), q.Namespace)
}

// withTarget adds the namespaces that a target itself names, on the API of the cluster or on the management API apart,
// where the Machines of the Cluster API are. list are those of the cluster, and must have no spare capacity.
func (r *Rules) withTarget(list []string, apart bool, m *Machine, n *Node) []string {
	own := n.spaces()
	if r.ManagementApart {
		own = n.spacesOn(apart)
	}
	if m != nil && (!r.ManagementApart || apart == (m.Group() == group(ClusterAPIV1Beta2))) {
		own = append(own, m.Namespace)
	}
	if apart { // nor is a namespace there the one of a template in the cluster
		list = nil
		if r.ManagementNamespace != "" {
			own = append(own, r.ManagementNamespace)
		}
	}
	for _, namespace := range own {
		if !slices.Contains(list, namespace) {
			list = append(list, namespace)
		}
	}
	return list
}

// RequestSpaces lists the namespaces of an API whose requests, of any kind, may be for a target.
func (r *Rules) RequestSpaces(checks []*Check, apart bool, m *Machine, n *Node) []string {
	var templates []string
	for _, c := range checks {
		templates = append(templates, templateSpaces(c)...)
	}
	return r.withTarget(r.commonSpaces(templates), apart, m, n)
}

// commonSpaces lists the namespaces of the cluster whose requests may be for every target. templates
// are those of the checks.
func (r *Rules) commonSpaces(templates []string) []string {
	list := slices.Concat(r.RequestNamespaces, r.Namespaces, templates)
	if r.ManagementNamespace != "" && !r.ManagementApart {
		list = append(list, r.ManagementNamespace)
	}
	slices.Sort(list)
	return slices.Clip(slices.Compact(list))
}

// templateSpaces are the namespaces of the templates of a check of administrators.
func templateSpaces(c *Check) (list []string) {
	if !c.Administrators() {
		return nil
	}
	for _, e := range c.rungs() {
		if e.Template.Namespace != "" {
			list = append(list, e.Template.Namespace)
		}
	}
	return list
}
