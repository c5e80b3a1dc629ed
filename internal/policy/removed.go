package policy

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
)

// While a run is open on a Node, every check that selected the Node goes on to count it: also when
// the run has deleted it, and when it registers again without the labels that step 5 restores, or
// another machine registers under its name.
// Otherwise each Node that fenced removes would make room under the limit for the next one, and a
// percentage would shrink with them. Such a Node is a target like any other. It is under
// remediation, so no check asks for anything there. // I11

// Equal reports whether two runs are the same to everything that is evaluated.
func (r OpenRun) Equal(o OpenRun) bool {
	return r.ID == o.ID && r.Machine == o.Machine && r.MachineAPI == o.MachineAPI && r.Node == o.Node && r.ControlPlane == o.ControlPlane &&
		(r.NodeLabels == nil) == (o.NodeLabels == nil) && maps.Equal(r.NodeLabels, o.NodeLabels) && r.NodeNames == o.NodeNames
}

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

// nodeCoverage says which checks cover a Node.
type nodeCoverage struct {
	node   string
	checks map[*checkEntry]bool
}

// coverageOf returns the checks that cover a Node now.
func (l *Ledger) coverageOf(node string) nodeCoverage {
	v := nodeCoverage{node: node, checks: map[*checkEntry]bool{}}
	nodes := l.w.targetNodes()
	n := nodes.get(node)
	if n == nil {
		return v
	}
	seen := nodes.labelsOf(n)
	for _, c := range l.checks {
		if c.check.SelectsNodes && seen.match(c.check.Selector) {
			v.checks[c] = true
		}
	}
	return v
}

// cover adds and removes targets after a change of a Node, or of the run on it. before is its
// coverage before the change.
func (l *Ledger) cover(before nodeCoverage) {
	after := l.coverageOf(before.node)
	for c := range before.checks {
		l.setCovered(c, l.nodeTarget(c, before.node), true, after.checks[c], nil, before.node)
	}
	for c := range after.checks {
		l.setCovered(c, l.nodeTarget(c, before.node), before.checks[c], true, nil, before.node)
	}
}
