package policy

import "slices"

// Whoever may create requests in some namespace could name any target. So a request says
// something about a target only where whoever writes there may decide about it: in a
// namespace that the administrator names, in one of the templates of checks that have no
// namespace themselves, in that of the Machine, or in one that the Node names. Elsewhere it
// counts nowhere. // I2

// requestPlace is a namespace, and the name of a target there. The namespace is "" if the
// requests of all namespaces count.
type requestPlace struct{ namespace, target string }

func (w *tables) placeOf(namespace, target string) requestPlace {
	if w.rules.TrustNames {
		namespace = ""
	}
	return requestPlace{namespace, target}
}

// requestsFor lists the requests for a target of this name. Machine and Node may be nil.
func (w *tables) requestsFor(target string, m *Machine, n *Node) []*Request {
	if w.rules.TrustNames {
		return w.requests[w.placeOf("", target)]
	}
	var list []*Request
	for _, namespace := range w.requestSpaces(m, n) {
		if in := w.requests[requestPlace{namespace, target}]; len(list) == 0 {
			list = in
		} else {
			list = slices.Concat(list, in)
		}
	}
	return list
}

// requestSpaces lists the namespaces whose requests may be for a target.
func (w *tables) requestSpaces(m *Machine, n *Node) []string {
	return withTarget(slices.Clip(w.commonSpaces), m, n)
}

// withTarget adds the namespaces that a target itself names. list must have no spare capacity.
func withTarget(list []string, m *Machine, n *Node) []string {
	own := n.spaces()
	if m != nil {
		own = append(own, m.Namespace)
	}
	for _, namespace := range own {
		if !slices.Contains(list, namespace) {
			list = append(list, namespace)
		}
	}
	return list
}

// isRequestSpace reports whether the requests of a namespace may be for a target.
func (w *tables) isRequestSpace(namespace string, m *Machine, n *Node) bool {
	return w.rules.TrustNames || slices.Contains(w.requestSpaces(m, n), namespace)
}

// RequestSpaces lists the namespaces whose requests, of any kind, may be for a target.
func (r *Rules) RequestSpaces(checks []*Check, m *Machine, n *Node) []string {
	var templates []string
	for _, c := range checks {
		templates = append(templates, c.templateSpaces()...)
	}
	return withTarget(r.commonSpaces(templates), m, n)
}

// commonSpaces lists the namespaces whose requests may be for every target. templates are those of
// the checks.
func (r *Rules) commonSpaces(templates []string) []string {
	list := slices.Concat(r.RequestNamespaces, r.Namespaces, templates)
	if r.ManagementNamespace != "" {
		list = append(list, r.ManagementNamespace)
	}
	slices.Sort(list)
	return slices.Clip(slices.Compact(list))
}

// templateSpaces are the namespaces of the templates of a check that only administrators can
// write: it has no namespace itself, or comes from a file.
func (c *Check) templateSpaces() (list []string) {
	if c.Namespace != "" && (c.Source == "" || c.Source == "cluster") {
		return nil
	}
	for _, e := range c.rungs() {
		if e.Template.Namespace != "" {
			list = append(list, e.Template.Namespace)
		}
	}
	return list
}
