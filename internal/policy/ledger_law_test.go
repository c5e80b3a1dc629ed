package policy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/law"
)

// model is what a ledger should hold, kept in the plainest way.
type model struct {
	rules    Rules
	objects  map[ObjectID]any // by kind and API group, not version
	requests map[ObjectID]*Request
	files    map[CheckID]any     // what came from files stays
	broken   map[ObjectID]string // what could not be decoded, and why
	runs     []OpenRun
	readsOff map[string]bool
	listed   uint64 // how often a map was listed
}

func newModel(rules Rules) *model {
	return &model{rules, map[ObjectID]any{}, map[ObjectID]*Request{}, map[CheckID]any{}, map[ObjectID]string{}, nil, map[string]bool{}, 0}
}

// inNoOrder lists the keys of one of the model's maps, each time in another order, but
// with the same draws in the same ones. Go's own order would be chance without a seed. The text that
// people read does not do: the Machines of both API families may have one.
func inNoOrder[K comparable, V any](m *model, values map[K]V) []K {
	keys := slices.SortedFunc(maps.Keys(values), func(a, b K) int { return strings.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b)) })
	m.listed++
	rand.New(rand.NewPCG(m.listed, 0)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// TestSameDrawsMakeTheSameModel: two Machines of one name are in the same order each time.
func TestSameDrawsMakeTheSameModel(t *testing.T) {
	list := func() []Machine {
		m := newModel(Rules{})
		for _, api := range []string{OpenShiftMachineAPI, ClusterAPIV1Beta2} {
			m.apply(put(&Machine{APIVersion: api, Namespace: "a", Name: "m-0"}))
		}
		return m.snapshot().Machines
	}
	for range 100 {
		require.Equal(t, list(), list())
	}
}

func (m *model) apply(c Change) {
	delete(m.broken, c.ID)
	if c.Err != nil {
		m.broken[c.ID] = strings.ReplaceAll(c.Err.Error(), "\n", "; ")
	}
	request, known := c.Value.(*Request)
	switch {
	case known:
		m.requests[c.ID] = request
		return
	case c.Value == nil && m.requests[c.ID] != nil:
		delete(m.requests, c.ID)
		if c.Err == nil {
			return // a request may have the kind and name of something else
		}
	}
	if source := sourceOf(c.Value); source != "" {
		m.files[CheckID{c.ID.Kind, group(c.ID.APIVersion), c.ID.Namespace, c.ID.Name, source}] = c.Value
		return
	}
	id := c.ID
	switch id.Kind {
	case "Machine", MachineHealthCheckKind: // the same object in any version
		id.APIVersion = group(id.APIVersion)
		if old, ok := m.objects[id]; ok && c.Value == nil && apiVersion(old) != c.ID.APIVersion {
			return
		}
	}
	delete(m.objects, id)
	if c.Value != nil {
		m.objects[id] = c.Value
	}
}

// sourceOf is the file that an object came from.
func sourceOf(v any) string {
	switch v := v.(type) {
	case *Check:
		return strings.TrimPrefix(v.Source, "cluster")
	case *DisruptionBudget:
		return v.Source
	}
	return ""
}

func apiVersion(v any) string {
	if c, ok := v.(*Check); ok {
		return c.APIVersion
	}
	return v.(*Machine).APIVersion
}

// snapshot lists everything in no order.
func (m *model) snapshot() Snapshot {
	s := Snapshot{Nodes: map[string]*Node{}, Leases: map[string]Lease{}, Rules: m.rules, OpenRuns: m.runs, ReadsOff: m.readsOff}
	for _, id := range inNoOrder(m, m.objects) {
		switch v := m.objects[id].(type) {
		case *Node:
			s.Nodes[v.Name] = v
		case *Machine:
			s.Machines = append(s.Machines, *v)
		case *Check:
			s.Checks = append(s.Checks, *v)
		case *Lease:
			s.Leases[id.Name] = *v
		case *Cluster:
			s.Clusters = append(s.Clusters, *v)
		case *Pod:
			s.Pods = append(s.Pods, *v)
		case *Host:
			s.Hosts = append(s.Hosts, *v)
		case *Upgrade:
			s.Upgrading = v.Why
		}
	}
	for _, id := range inNoOrder(m, m.requests) {
		s.Requests = append(s.Requests, *m.requests[id])
	}
	for _, id := range inNoOrder(m, m.files) {
		switch v := m.files[id].(type) {
		case *Check:
			s.Checks = append(s.Checks, *v)
		case *DisruptionBudget:
			s.Budgets = append(s.Budgets, *v)
		}
	}
	for _, id := range inNoOrder(m, m.broken) {
		s.Undecoded = append(s.Undecoded, id.Key())
		s.Errors = append(s.Errors, ObjectError{id.String(), m.broken[id]})
	}
	slices.SortFunc(s.Budgets, func(a, b DisruptionBudget) int { return strings.Compare(a.Name+a.Source, b.Name+b.Source) })
	return s
}

// trial is a ledger beside its model.
type trial struct {
	*model
	l       *Ledger
	now     time.Time
	version uint64
	last    string // the report without clocks, at version; "" is unknown
}

func newTrial(rules Rules) *trial {
	w := &trial{model: newModel(rules), l: NewLedger(rules), now: ledgerEpoch}
	w.last = timeless(Decide(w.snapshot(), w.now))
	return w
}

// timeless is a report without anything that only follows the clock.
func timeless(r Report) string {
	r.At = time.Time{}
	for i := range r.Checks {
		c := &r.Checks[i]
		c.RecheckAfterSeconds = 0
		for j := range c.Targets {
			t := &c.Targets[j]
			t.RecheckAfterSeconds, t.MachineAPIVersion = 0, ""
			if t.Template != nil { // by value, not by address
				t.Trigger += fmt.Sprintf("%+v", *t.Template)
				t.Template = nil
			}
		}
	}
	return fmt.Sprintf("%+v", r)
}

func (w *trial) check(t *rapid.T) { w.compare(t) }

// compare compares everything that the ledger says with the reference.
func (w *trial) compare(t require.TestingT) {
	s := w.snapshot()
	want := Decide(s, w.now)
	require.Equal(t, want, Decide(w.l.Snapshot(), w.now), "the snapshot is another one")
	require.Equal(t, want, w.l.Report(w.now))
	w.checkParts(t, s)
	w.checkVersion(t, s)
	w.checkNext(t, s)
	w.checkReading(t, s)
}

// checkParts: what is told of a part is what the whole report says of it.
func (w *trial) checkParts(t require.TestingT, s Snapshot) {
	acting := []CheckReport{}
	for _, c := range Decide(s, w.now).Checks {
		c.Targets = slices.DeleteFunc(c.Targets, func(t TargetReport) bool { return t.Action == None })
		if len(c.Targets) > 0 {
			acting = append(acting, c)
		}
	}
	require.Equal(t, acting, w.l.Acting(w.now))
	for _, c := range acting {
		for _, x := range c.Targets {
			var same []TargetReport // one Node may be several targets
			for _, o := range c.Targets {
				if o.Subject() == x.Subject() {
					same = append(same, o)
				}
			}
			require.Equal(t, same, w.l.ActingOn(c.ID(), x.Subject(), w.now))
		}
	}
	for _, node := range append(worldNodes, "gone") {
		part := Decide(s, w.now)
		part.restrict(node)
		require.Equal(t, part, w.l.OnNode(node, w.now), node)
	}
	counters := Decide(s, w.now).Checks
	for i := range counters {
		counters[i].Targets, counters[i].idle = []TargetReport{}, map[string]bool{}
	}
	require.Equal(t, counters, w.l.Counters())
	w.checkOverview(t, s)
}

// checkOverview: the overview has every check and every target that is not healthy as the whole report has them, and covers whom it covers.
func (w *trial) checkOverview(t require.TestingT, s Snapshot) {
	want, o := Decide(s, w.now), w.l.Overview(w.now)
	var protected []Protected
	for i := range want.Checks {
		c := &want.Checks[i]
		if !c.Protects() {
			continue
		}
		p := Protected{Check: c.ID(), NeedsHosts: c.NeedsHosts}
		for _, x := range c.Targets {
			switch {
			case x.Verdict == Skipped:
			case x.Node != "":
				p.Nodes = append(p.Nodes, x.Node)
			default:
				p.Machines = append(p.Machines, x.Machine)
			}
		}
		protected = append(protected, p)
	}
	slips := map[CheckID]string{}
	for _, v := range Cover(want, s.Checks, s.Budgets, s.Nodes) {
		for _, f := range v.Findings {
			if f.Warning && f.Code == FoundUnknownCondition && v.State == StateActive && slips[v.Check] == "" {
				slips[v.Check] = f.Message
			}
		}
	}
	require.Equal(t, slips, o.Slips)
	for i := range o.Protected {
		slices.Sort(o.Protected[i].Nodes)
		slices.Sort(o.Protected[i].Machines)
		slices.Sort(protected[i].Nodes)
		slices.Sort(protected[i].Machines)
	}
	require.Equal(t, protected, o.Protected)
	for _, r := range []*Report{&want, &o.Report} {
		for i := range r.Checks {
			c := &r.Checks[i]
			c.Targets, c.idle = slices.DeleteFunc(c.Targets, func(x TargetReport) bool { return x.Verdict == Healthy }), nil
		}
	}
	require.Equal(t, want, o.Report)
}

func (w *trial) checkVersion(t require.TestingT, s Snapshot) {
	r := Decide(s, w.now)
	if slices.ContainsFunc(r.Checks, unremembered(s)) {
		w.last = "" // what is said of the storm changes with every look
		return
	}
	now := timeless(r)
	if w.last != "" && w.l.Version == w.version {
		require.Equal(t, w.last, now, "the report changed, the version did not")
	}
	w.version, w.last = w.l.Version, now
}

// checkNext: time alone changes nothing before the instant that Next gives.
func (w *trial) checkNext(t require.TestingT, s Snapshot) {
	before := Decide(s, w.now)
	next, ok := w.l.Next, !w.l.Next.IsZero()
	if due, any := before.NextCheck(); any {
		require.True(t, ok)
		require.False(t, next.After(due), "%s is later than %s", next, due)
	}
	if slices.ContainsFunc(before.Checks, unremembered(s)) {
		return // its message names the instant at which the storm was found to be over
	}
	if !ok {
		next = w.now.Add(10000 * time.Hour)
	}
	require.True(t, next.After(w.now))
	require.Equal(t, timeless(before), timeless(Decide(s, next.Add(-1))), "something changed before %s", next)
}

// unremembered finds checks whose storm has not been fed back to them.
func unremembered(s Snapshot) func(CheckReport) bool {
	known := map[CheckID]Storm{}
	for i := range s.Checks {
		known[s.Checks[i].ID()] = s.Checks[i].Storm
	}
	return func(c CheckReport) bool { return c.Storm != known[c.ID()] }
}

// checkReading compares the look-ups with a search.
func (w *trial) checkReading(t require.TestingT, s Snapshot) {
	require.Len(t, s.Nodes, len(slices.Collect(w.l.Nodes())))
	require.Len(t, s.Hosts, len(w.l.tables.hosts))
	zones := false
	for _, n := range s.Nodes {
		zones = zones || n.Labels.Get("zone") != ""
		shown := slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Node == n.Name })
		found := *w.l.Node(n.Name)
		require.Equal(t, n.ControlPlane || shown, found.ControlPlane, "the Pods on it show its role, too")
		found.ControlPlane, found.fromPod = n.ControlPlane, false
		require.Equal(t, *n, found)
	}
	for _, zone := range []string{"", "z1", "z2"} {
		f := Fleet{Nodes: len(s.Nodes), HasZones: zones}
		for _, n := range s.Nodes {
			in, notReady := 0, 0
			if zone != "" && n.Labels.Get("zone") == zone {
				in = 1
			}
			if !n.Ready() {
				notReady = 1
			}
			f.NotReady += notReady
			f.ZoneNodes += in
			f.ZoneNotReady += in * notReady
		}
		require.Equal(t, f, w.l.Fleet(zone))
	}
	var twins []*Node
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		if n := s.Nodes[name]; name != "n-0" && bmc.UUIDsMatch(n.SystemUUID, worldUUIDs[1]) {
			twins = append(twins, w.l.Node(name))
		}
	}
	require.Equal(t, twins, w.l.OtherNodesWithUUID("n-0", worldUUIDs[1]))
	for i := range s.Machines {
		m := &s.Machines[i]
		require.Equal(t, m, w.l.MachineIn(m.APIVersion, m.Namespace, m.Name))
	}
	seated, _ := s.Rules.seated(s.Checks)
	for i := range seated {
		require.Equal(t, &seated[i], w.l.Check(seated[i].ID()))
	}
	require.Len(t, w.l.checks, len(seated))
}

// TestLedger: after every event the ledger says what Decide says.
func TestLedger(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		rules := Rules{
			ZoneKey: "zone", NodesCountAsMembers: rapid.Bool().Draw(t, "stand in"), ExternalEtcd: rapid.Bool().Draw(t, "external"),
			ClusterRequired: rapid.Bool().Draw(t, "required"), Instance: of(t, "instance", "", "me"),
			MachineFailureReason: rapid.Bool().Draw(t, "failure"), WaitForUpgrade: odds(t, "wait", 4),
			Namespaces: of(t, "namespaces", nil, []string{"a"}), ManagementNamespace: of(t, "management", "", "b"), TrustNames: odds(t, "saved", 4),
			DeleteControlPlaneMachines: rapid.Bool().Draw(t, "delete"), MaxTargets: of(t, "most targets", 0, 0, 1, 4, 10), MaxChecks: of(t, "most checks", 0, 0, 1, 2),
			ManagementApart: odds(t, "apart", 3),
		}
		w := newTrial(rules)
		w.changes(t)
		if rapid.Bool().Draw(t, "populated") {
			w.populate(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": w.check, "edit": w.edit, "changes": w.changes, "more changes": w.changes, "again": w.again, "runs": w.setRuns,
			"readsOff": w.setReadsOff, "files": w.setFiles, "remember": w.remember, "advance": w.advance, "advance more": w.advance,
		})
	})
}

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
	w.apply(put(&c))
}

func (w *trial) setRuns(t *rapid.T) {
	w.runs = nil
	for i := range rapid.IntRange(0, 3).Draw(t, "runs") {
		r := OpenRun{ID: fmt.Sprintf("r-%d", i), ControlPlane: odds(t, "role", 4), TakesNoTurn: odds(t, "no turn", 4), SystemUUID: of(t, "uuid", worldUUIDs...),
			NodeLabels: of(t, "labels", append(worldLabels, labels.Set{}, labels.Set{labelEtcd: "true"})...)}
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
	next, ok := w.l.Next, !w.l.Next.IsZero()
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

// TestLedgerTrialCanFail keeps one kind of event from the ledger: the comparison
// that TestLedger makes must find out, or it proves nothing about that kind.
// Hosts take no part in any judgement.
func TestLedgerTrialCanFail(t *testing.T) {
	kinds := slices.DeleteFunc(slices.Compact(slices.Clone(worldKinds)), func(kind string) bool { return kind == "Host" })
	for _, kind := range append(kinds, "runs", "readsOff", "time") {
		t.Run(kind, func(t *testing.T) {
			found := false
			for seed := 0; seed < 1000 && !found; seed++ { // the same ones each time
				found = rapid.Custom(func(t *rapid.T) bool { return notices(t, kind) }).Example(seed)
			}
			assert.True(t, found)
		})
	}
}

// notices says whether the comparison sees what the ledger was not told.
func notices(t *rapid.T, kind string) bool {
	w := newTrial(Rules{NodesCountAsMembers: true})
	w.populate(t)
	at := w.now
	switch kind {
	case "runs":
		w.runs = []OpenRun{{ID: "r", Node: of(t, "node", worldNodes...)}}
	case "readsOff":
		for _, node := range worldNodes {
			w.readsOff[node] = true
		}
	case "time":
		var ok bool
		if at, ok = w.l.Next, !w.l.Next.IsZero(); !ok {
			return false
		}
	default:
		for range 4 {
			id, value := drawOf(t, kind, w.now)
			w.model.apply(Change{ID: id, Value: value})
		}
	}
	return !reflect.DeepEqual(Decide(w.snapshot(), at).Checks, w.l.Report(w.now).Checks)
}
