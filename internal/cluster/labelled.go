package cluster

import (
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Labelled is what of a cluster has some labels.
type Labelled struct {
	// Nodes have all of the labels, by name. A Node that fenced or another remediator has deleted has those that it had
	// when its open run, or its request, began. One that has registered since fenced deleted it has those, too, but where
	// it has others by now: they are restored last.
	Nodes []string
	// Runs are the open runs on these Nodes, by Node.
	Runs map[string]string
	// Unlabelled are Machines and open runs whose Node is not known: nobody can say whether they would have the labels.
	Unlabelled []string
	// Values are the first that the label has, if no Node has the wanted one.
	Values []string
}

// WithLabels finds the Nodes with all of these labels, as the view has them now.
func (c *Model) WithLabels(wanted map[string]string) Labelled {
	defer c.lock()()
	found, open := Labelled{Runs: map[string]string{}}, c.Runs.open()
	all, unlabelled := c.labels(open)
	for m := range c.Objects.ledger.Machines() {
		if _, known := all[m.NodeName]; !known && !unlabelled[m.NodeName] {
			unlabelled[m.Key()] = true
		}
	}
	for name, labels := range all {
		if hasAll(labels, wanted) {
			found.Nodes = append(found.Nodes, name)
		}
	}
	for i := range open {
		if name := open[i].Target.Node; slices.Contains(found.Nodes, name) {
			found.Runs[name] = open[i].ID
		}
	}
	if len(found.Nodes) == 0 {
		found.Values = valuesOf(all, wanted)
	}
	slices.Sort(found.Nodes)
	found.Unlabelled = slices.Sorted(maps.Keys(unlabelled))
	return found
}

// labels are those of each Node, as Labelled tells: those of a Node that a run has deleted are in its record. unlabelled are
// the open runs whose Node is not known. The lock is held.
func (c *Model) labels(open []remediate.Run) (all map[string]policy.Labels, unlabelled map[string]bool) {
	all = map[string]policy.Labels{}
	for n := range c.Objects.ledger.Nodes() {
		all[n.Name] = n.Labels
	}
	recorded, unlabelled := c.recordedLabels(open)
	maps.Copy(all, recorded)
	return all, unlabelled
}

// recordedLabels are those of labels that the Nodes themselves do not have now. The lock is held.
func (c *Model) recordedLabels(open []remediate.Run) (recorded map[string]policy.Labels, unlabelled map[string]bool) {
	recorded, unlabelled = map[string]policy.Labels{}, map[string]bool{}
	for i := range open {
		r := &open[i]
		if n := c.Objects.ledger.Node(r.Target.Node); n != nil {
			if !r.Isolated.IsZero() && n.UID != r.Target.NodeUID && r.NodeLabels != nil {
				begun := maps.Clone(r.NodeLabels)
				maps.Copy(begun, n.Labels.Map())
				recorded[n.Name] = policy.LabelsOf(begun)
			}
			continue
		}
		if r.Target.Node != "" && r.NodeLabels != nil {
			recorded[r.Target.Node] = policy.LabelsOf(r.NodeLabels)
		} else {
			unlabelled[SubjectOf(r.Target)] = true
		}
	}
	for _, p := range c.Runs.repairs {
		_, known := recorded[p.Target.Node]
		if !known && c.Objects.ledger.Node(p.Target.Node) == nil && p.By != "" && p.NodeLabels != nil {
			recorded[p.Target.Node] = policy.LabelsOf(p.NodeLabels)
		}
	}
	return recorded, unlabelled
}

// Place is where a Node stands, as its labels say; "" without the label. Whoever may write Nodes chose the texts.
type Place struct{ Zone, Rack string }

// Places says of each of these Nodes where it stands, also of one that fenced or another remediator has deleted. rackKey is the label that holds the rack.
func (c *Model) Places(rackKey string, nodes []string) []Place {
	defer c.lock()()
	recorded, _ := c.recordedLabels(c.Runs.open())
	places := make([]Place, len(nodes))
	for i, name := range nodes {
		labels, known := recorded[name]
		if n := c.Objects.ledger.Node(name); n != nil && !known {
			labels = n.Labels
		}
		places[i] = Place{Zone: labels.Get(c.Options.Rules.ZoneKey), Rack: labels.Get(rackKey)}
	}
	return places
}

func hasAll(labels policy.Labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, found := labels.Lookup(key); !found || has != value {
			return false
		}
	}
	return true
}

// maxValues bounds how many values of a label a message lists.
const maxValues = 10

// valuesOf lists the first values of a label; none if several labels are wanted.
func valuesOf(all map[string]policy.Labels, wanted map[string]string) []string {
	if len(wanted) != 1 {
		return nil
	}
	values := map[string]bool{}
	for key := range wanted {
		for _, labels := range all {
			values[labels.Get(key)] = true
		}
	}
	delete(values, "") // the Node has no such label
	list := slices.Sorted(maps.Keys(values))
	return list[:min(len(list), maxValues)]
}
