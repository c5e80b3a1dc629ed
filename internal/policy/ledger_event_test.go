package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// The events that a trial is made of.

func (w *trial) apply(changes ...Change) {
	for _, c := range changes {
		w.model.apply(c)
	}
	w.l.Apply(w.now, changes...)
}

func (w *trial) changes(t *rapid.T) {
	list := []Change{}
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		list = append(list, drawChange(t, w.now))
	}
	w.apply(list...)
}

// populate applies a whole cluster at once.
func (w *trial) populate(t *rapid.T) { w.apply(drawCluster(t, w.now)...) }

// again applies an object that is there already, as it is or as a copy; takes it
// away; or says that it cannot be decoded any more.
func (w *trial) again(t *rapid.T) {
	all := maps.Clone(w.objects)
	for id, r := range w.requests {
		all[id] = r
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b ObjectID) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if len(names) == 0 {
		t.Skip("nothing is there")
	}
	id := of(t, "object", names...)
	c := Change{ID: id, Value: all[id]}
	switch v := c.Value.(type) {
	case *Machine:
		c.ID.APIVersion, c.Value = v.APIVersion, new(*v)
	case *Check:
		c.ID.APIVersion, c.Value = v.APIVersion, new(*v)
	case *Lease:
		c.Value = &Lease{RenewTime: w.now}
	}
	switch of(t, "how", "same", "gone", "broken") {
	case "gone":
		c.Value = nil
	case "broken":
		c.Value, c.Err = nil, errors.New("it is broken")
	}
	w.apply(c)
}

// edit changes one thing about a check that is there.
func (w *trial) edit(t *rapid.T) {
	checks := w.snapshot().Checks
	if len(checks) == 0 {
		t.Skip("no check is there")
	}
	slices.SortFunc(checks, func(a, b Check) int { return a.ID().compare(b.ID()) })
	c := of(t, "check", checks...)
	switch of(t, "edit", "paused", "limit", "timeout", "selector", "storm", "strategy", "delay") {
	case "paused":
		c.Paused = !c.Paused
	case "limit":
		c.MaxUnhealthy = new(intstr.Parse(of(t, "limit", "0", "1", "60%", "x")))
	case "timeout":
		c.Conditions = []UnhealthyCondition{{"Ready", "Unknown", of(t, "timeout", time.Second, time.Hour)}}
	case "selector":
		c.Selector = of(t, "selector", worldSelector...)
	case "storm":
		c.StormCooldown, c.Storm.Active = 5*time.Minute, true
	case "strategy":
		c.Strategy = of(t, "strategy", PowerCycleHosts, DeleteMachines, CountOnly)
	case "delay":
		c.HealthyDelay = 10 * time.Minute
	}
	w.apply(Change{ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: &c})
}

func (w *trial) setRuns(t *rapid.T) {
	w.runs = nil
	for i := range rapid.IntRange(0, 3).Draw(t, "runs") {
		r := OpenRun{ID: fmt.Sprintf("r-%d", i), ControlPlane: odds(t, "role", 4), NodeLabels: of(t, "labels", append(worldLabels, labels.Set{})...)}
		if odds(t, "a Machine", 2) {
			r.Machine = key(of(t, "namespace", "a", "b"), of(t, "machine", worldMachines...))
			r.MachineAPI = of(t, "api", "", OpenShiftMachineAPI, ClusterAPIV1Beta2)
		}
		if odds(t, "a Node", 2) {
			r.Node = of(t, "node", append([]string{"gone"}, worldNodes...)...)
			r.NodeNames = NodeNames{of(t, "named", worldNamed...), of(t, "named of the Cluster API", worldNamed...), of(t, "provider", worldProviders...)}
		}
		w.runs = append(w.runs, r)
	}
	w.l.SetRuns(w.now, w.runs)
}

func (w *trial) setReadsOff(t *rapid.T) {
	node, off := of(t, "node", worldNodes...), rapid.Bool().Draw(t, "off")
	delete(w.readsOff, node)
	if off {
		w.readsOff[node] = true
	}
	w.l.SetReadsOff(w.now, node, off)
}

// remember feeds the storms back, as the daemon does.
func (w *trial) remember(*rapid.T) {
	for _, r := range w.l.Counters() {
		if c := w.l.Check(r.ID()); c.Storm != r.Storm {
			next := *c
			next.Storm = r.Storm
			w.apply(Change{ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: &next})
		}
	}
}

func (w *trial) advance(t *rapid.T) {
	next, ok := w.l.Next()
	switch rapid.IntRange(0, 5).Draw(t, "how far") {
	case 0, 1, 2:
		if !ok {
			t.Skip("no clock runs")
		}
		w.now = next
	case 3:
		w.now = w.now.Add(of(t, "step", 0, 1, time.Second, 59*time.Second, time.Minute))
	case 4:
		w.now = w.now.Add(of(t, "hours", time.Hour, 30*time.Hour))
	default:
		w.now = w.now.Add(-of(t, "back", 2*time.Second, time.Minute, time.Hour))
	}
	if odds(t, "at once", 2) {
		w.l.Advance(w.now)
	}
}

// setFiles replaces what came from files; a part of it may stay.
func (w *trial) setFiles(t *rapid.T) {
	next := map[CheckID]any{}
	for _, id := range inNoOrder(w.model, w.files) {
		if odds(t, "stays", 2) {
			next[id] = w.files[id]
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "from files") {
		id, value := drawOf(t, of(t, "kind", "Check", "Check", "Budget"), w.now)
		source := of(t, "file", "p.yaml:3", "p.yaml:7", "q.yaml:1")
		switch v := value.(type) {
		case *Check:
			v.Source = source
		case *DisruptionBudget:
			v.Source = source
		}
		next[CheckID{id.Kind, group(id.APIVersion), id.Namespace, id.Name, source}] = value
	}
	w.files = next
	var checks []Check
	var budgets []DisruptionBudget
	for _, id := range inNoOrder(w.model, next) {
		switch v := next[id].(type) {
		case *Check:
			checks = append(checks, *v)
		case *DisruptionBudget:
			budgets = append(budgets, *v)
		}
	}
	w.l.SetFiles(w.now, checks, budgets)
}
