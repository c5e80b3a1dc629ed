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

// requestIndex has the remediation requests by where they are, and by the name of their Machine or
// Node.
type requestIndex struct {
	byPlace map[requestPlace][]*Request
	// spaces are the namespaces whose requests may be for every target.
	spaces []string
	// ofAll: those of all namespaces count.
	ofAll bool
}

func newRequestIndex(rules Rules) requestIndex {
	return requestIndex{byPlace: map[requestPlace][]*Request{}, spaces: rules.commonSpaces(nil), ofAll: rules.TrustNames}
}

func (x *requestIndex) place(namespace, target string) requestPlace {
	if x.ofAll {
		namespace = ""
	}
	return requestPlace{namespace, target}
}

func (x *requestIndex) put(r *Request) {
	at := x.place(r.Namespace, r.targetName())
	x.byPlace[at] = insert(slices.Clone(x.byPlace[at]), r, byRequest)
}

func (x *requestIndex) drop(r *Request) {
	drop(x.byPlace, x.place(r.Namespace, r.targetName()), r)
}

// of lists the requests for a target of this name. Machine and Node may be nil.
func (x *requestIndex) of(target string, m *Machine, n *Node) []*Request {
	if x.ofAll {
		return x.byPlace[x.place("", target)]
	}
	var list []*Request
	for _, namespace := range withTarget(x.spaces, m, n) {
		if in := x.byPlace[requestPlace{namespace, target}]; len(list) == 0 {
			list = in
		} else {
			list = slices.Concat(list, in)
		}
	}
	return list
}

// mayBeFor reports whether a request may be for a target.
func (x *requestIndex) mayBeFor(q *Request, m *Machine, n *Node) bool {
	return x.ofAll || slices.Contains(withTarget(x.spaces, m, n), q.Namespace)
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

// RequestSpaces lists the namespaces whose requests, of any kind, may be for a target.
func (r *Rules) RequestSpaces(checks []*Check, m *Machine, n *Node) []string {
	var templates []string
	for _, c := range checks {
		templates = append(templates, templateSpaces(c)...)
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

// Administrators reports whether only administrators can write a check: it has no namespace, or comes
// from a file.
func (c *Check) Administrators() bool {
	return c.Namespace == "" || c.Source != "" && c.Source != "cluster"
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
