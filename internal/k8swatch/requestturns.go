package k8swatch

import (
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// author is a namespace on an API server whose checks name kinds of requests.
type author struct {
	side      *side
	namespace string
}

// chosenKinds returns the kinds that are watched: all that an administrator named, and as many as there is room for of those that
// only checks in namespaces name; full says that there is no more room. The namespaces have their turns, first those that
// clusters[] names: whoever may write checks in one takes the places of no other. // I18
func chosenKinds(wanted map[requestKind]wish, rules *policy.Rules) (chosen map[requestKind]bool, full bool) {
	chosen = map[requestKind]bool{}
	named := map[author][]requestKind{}
	for k, w := range wanted {
		if chosen[k] = w.always; w.always {
			continue
		}
		for namespace := range w.namespaces {
			named[author{k.side, namespace}] = append(named[author{k.side, namespace}], k)
		}
	}
	free := maxRequestKinds
	for _, first := range []bool{true, false} {
		turns := slices.DeleteFunc(slices.SortedFunc(maps.Keys(named), author.compare), func(a author) bool { return a.isTrusted(rules) != first })
		for _, a := range turns {
			slices.SortFunc(named[a], func(x, y requestKind) int { return strings.Compare(x.kind.String(), y.kind.String()) })
		}
		for at := 0; len(turns) > 0; at++ {
			turns = slices.DeleteFunc(turns, func(a author) bool { return at == len(named[a]) })
			for _, a := range turns {
				if k := named[a][at]; !chosen[k] && free > 0 {
					chosen[k] = true
					free--
				}
			}
		}
	}
	return chosen, free == 0
}

// isTrusted reports whether the administrator named the namespace as one of the Machines of the cluster.
func (a author) isTrusted(rules *policy.Rules) bool {
	if a.side.IsApart() {
		return rules.TrustsChecks(policy.ClusterAPIV1Beta2, a.namespace)
	}
	return rules.TrustsChecks("", a.namespace)
}

// compare orders authors independent of the order of the checks; those of the cluster come first.
func (a author) compare(b author) int {
	switch {
	case a.side == b.side:
		return strings.Compare(a.namespace, b.namespace)
	case b.side.IsApart():
		return -1
	}
	return 1
}
