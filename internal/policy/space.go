package policy

import (
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

// spaceOfMachine returns where a Machine is.
func (r *Rules) spaceOfMachine(m *Machine) space { return r.spaceOf(m.Group(), m.Namespace) }

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
// may be, each space once: older records do not have its API. A run without a Node has none.
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
