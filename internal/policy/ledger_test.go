package policy

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// nodePolicy power-cycles every Node that is silent for a minute.
func nodePolicy() *Check {
	return &Check{Kind: FencePolicyKind, APIVersion: FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Strategy: PowerCycleHosts,
		Conditions: []UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
}

func silentNode(name string) *Node {
	return &Node{Name: name, UID: name, Conditions: ConditionsOf([]Condition{{Type: "Ready", Status: "Unknown", LastTransition: ledgerEpoch.Add(-time.Hour)}})}
}

// put is the change that adds or replaces an object.
func put(value any) Change {
	var id ObjectID
	switch v := value.(type) {
	case *Check:
		id = objectOf(v)
	case *Node:
		id = ObjectID{APIVersion: "v1", Kind: "Node", Name: v.Name}
	case *Machine:
		id = ObjectID{APIVersion: v.APIVersion, Kind: "Machine", Namespace: v.Namespace, Name: v.Name}
	case *Request:
		id = ObjectID{APIVersion: v.APIVersion, Kind: v.Kind, Namespace: v.Namespace, Name: v.Name}
	case *Lease:
		id = ObjectID{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-node-lease", Name: "n-0"}
	case *DisruptionBudget:
		id = ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: v.Name}
	case *Cluster:
		id = ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: v.Namespace, Name: v.Name}
	case *Pod:
		id = ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: v.Namespace, Name: v.Name}
	case *Host:
		id = ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: v.Namespace, Name: v.Name}
	default:
		panic("of no kind")
	}
	return Change{ID: id, Value: value}
}

func ledgerWith(rules Rules, changes ...Change) *Ledger {
	l := NewLedger(rules)
	l.Apply(ledgerEpoch, changes...)
	return l
}

// acts lists the targets that would be acted on, as the ledger and Decide say.
func acts(t *testing.T, l *Ledger) (list []string) {
	t.Helper()
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
	for _, c := range l.Acting(ledgerEpoch) {
		for _, x := range c.Targets {
			if x.Acts() {
				list = append(list, cmp.Or(x.Node, x.Machine)+" "+x.Machine)
			}
		}
	}
	return list
}

// The cases that follow are rare in the random trials, and each was once missed
// by a ledger that had been broken on purpose.

func caseCheck(strategy Strategy) *Check {
	return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: "c", Source: "cluster",
		Selector: labels.Everything(), Strategy: strategy, Template: &worldTemplate, StartupTimeout: 10 * time.Minute,
		Conditions: []UnhealthyCondition{{"Slow", "True", 10 * time.Minute}, {"Ready", "Unknown", time.Minute}}}
}

func caseMachine(name, node string) *Machine {
	return &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: name, NodeName: node, ControllerOwner: Owner{Kind: "MachineSet"}}
}

// caseNode has each condition for so long.
func caseNode(name string, kind string, ago time.Duration, more ...Condition) *Node {
	status := map[string]string{"Ready": "Unknown"}[kind]
	if status == "" {
		status = "True"
	}
	return &Node{Name: name, UID: "u", Conditions: ConditionsOf(append([]Condition{{kind, status, ledgerEpoch.Add(-ago)}}, more...))}
}

func caseNodeCheck() *Check {
	c := caseCheck(CreateRequests)
	c.APIVersion, c.Kind, c.Namespace, c.SelectsNodes = Medik8sAPI, NodeHealthCheckKind, "", true
	c.MinHealthy = new(intstr.FromInt32(0))
	return c
}

func TestLedgerCases(t *testing.T) {
	request := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "m-0"}
	nodeRequest := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "x", NodeName: "n-0"}
	failed, orphan, sick, other := caseMachine("m-0", ""), caseMachine("m-0", "n-0"), caseNode("n-0", "Ready", time.Hour), caseNode("n-0", "Other", 0)
	failed.Phase = "Failed"
	orphan.ControllerOwner = Owner{}
	renewed := *other
	renewed.UID = "u2"
	slow := Condition{"Slow", "True", ledgerEpoch.Add(-9 * time.Minute)}
	capi := caseCheck(MarkOwners)
	capi.APIVersion, capi.ClusterName = ClusterAPIV1Beta2, "k"
	moved := caseMachine("m-0", "gone") // its providerID keeps the UID that its host had in another management cluster
	moved.APIVersion, moved.ClusterName, moved.ProviderID, moved.Infrastructure = ClusterAPIV1Beta2, "k", "metal3://before", InfrastructureRef{Kind: metal3Kind, Name: "i"}
	host := &Host{Namespace: "a", Name: "h-0", UID: "after", Online: true, ConsumerRef: "a/i", ConsumerKind: metal3Kind, State: "provisioned"}
	others := *host
	others.ConsumerRef = "a/other"
	gone := func(v any) Change { return Change{ID: put(v).ID} }
	for name, events := range map[string][]Change{
		"a request for a Machine":       {put(caseCheck(CreateRequests)), put(failed), put(request), gone(request)},
		"a request for a Node":          {put(caseNodeCheck()), put(sick), put(nodeRequest), gone(nodeRequest)},
		"a wait without a clock":        {put(caseCheck(DeleteMachines)), put(caseMachine("m-0", "")), put(caseMachine("m-1", "")), put(caseMachine("m-0", "n-0")), put(caseMachine("m-1", "n-1"))},
		"the Cluster cannot be decoded": {put(capi), {ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "a", Name: "k"}, Err: errors.New("broken")}, {ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "a", Name: "k"}}},
		"only a refusal":                {put(caseCheck(DeleteMachines)), put(sick), put(caseMachine("m-0", "n-0")), put(orphan)},
		"only a due": {put(caseCheck(PowerCycleHosts)), put(sick), put(caseMachine("m-0", "n-0")),
			put(&Lease{RenewTime: ledgerEpoch.Add(-30 * time.Second)}), put(&Lease{RenewTime: ledgerEpoch.Add(-20 * time.Second)})},
		"a host that was moved": {put(capi), put(moved), put(host), put(&others), put(host), gone(host)},
		"only a UID":            {put(caseNodeCheck()), put(other), put(&renewed)},
		"a reason that changes before anything is due": {put(caseNodeCheck()), put(caseNode("n-0", "Ready", time.Hour, slow)),
			put(caseNode("n-1", "Slow", 0)), put(caseNode("n-2", "Slow", 5*time.Minute)), put(caseNode("n-3", "Slow", time.Minute))},
		"the same the other way round": {put(caseNodeCheck()), put(caseNode("n-0", "Ready", time.Hour, slow)),
			put(caseNode("n-2", "Slow", 5*time.Minute)), put(caseNode("n-1", "Slow", 0)), put(caseNode("n-3", "Slow", time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrial(Rules{})
			for _, c := range events {
				before := w.l.Version
				w.apply(c)
				require.Greater(t, w.l.Version, before)
				w.compare(t)
			}
		})
	}
}

// Of two runs on one Node each counts: what the first of them names tells a budget which Machines are of the cluster, also while
// the other one stands for the Node. // I11
func TestBothRunsOnANodeCount(t *testing.T) {
	first := OpenRun{ID: "r-1", Node: "n-1", NodeNames: NodeNames{OpenShiftMachine: "a/m-1"}}
	second := OpenRun{ID: "r-2", Node: "n-1"}
	w := newTrial(Rules{})
	w.apply(put(&DisruptionBudget{Name: "b", Selector: labels.Everything(), SelectsMachines: true, Source: "p.yaml:1"}), put(caseMachine("m-0", "")))
	for _, runs := range [][]OpenRun{{first, second}, {second}, {first, second}, {first}} {
		w.runs = runs
		w.l.SetRuns(w.now, runs)
		w.compare(t)
	}
}

// TestLedgerStormEnds: the end of a cooldown is an instant like any other.
func TestLedgerStormEnds(t *testing.T) {
	c := caseNodeCheck()
	c.MinHealthy, c.StormCooldown, c.Storm = new(intstr.FromString("0%")), 5*time.Minute, Storm{Active: true, CooldownSince: ledgerEpoch}
	w := newTrial(Rules{})
	w.apply(put(c), put(caseNode("n-0", "Ready", time.Hour)))
	w.compare(t)
	next, ok := w.l.Next, !w.l.Next.IsZero()
	require.True(t, ok)
	require.Equal(t, ledgerEpoch.Add(5*time.Minute), next)
	require.Equal(t, []reason.Code{reason.StormCooldown, reason.Delegated}, w.l.Acting(next.Add(-1))[0].Targets[0].Refusals)
	before := w.l.Version
	w.now = next
	w.l.Advance(next)
	require.Greater(t, w.l.Version, before)
	require.Equal(t, []reason.Code{reason.Delegated}, w.l.Acting(next)[0].Targets[0].Refusals)
}

// A cooldown that a clock which was a year ahead began does not last for the year, but begins now.
func TestCooldownToComeBeginsNow(t *testing.T) {
	next, quiet := Storm{Active: true, CooldownSince: ledgerEpoch.AddDate(1, 0, 0)}.next(true, 5*time.Minute, ledgerEpoch)
	require.Equal(t, Storm{Active: true, CooldownSince: ledgerEpoch}, next)
	require.Equal(t, ledgerEpoch.Add(5*time.Minute), quiet)
}

// The report about one target has what other targets mean for it: the first of them takes the place
// that a budget has left, and the turn of the control plane. // I12
func TestActingOnOneTargetCountsTheOthers(t *testing.T) {
	broken := func(name string) *Node { // it is Ready, so its remediation makes one more unavailable
		return &Node{Name: name, UID: name, Conditions: ConditionsOf([]Condition{
			{Type: "Ready", Status: "True"}, {Type: "Broken", Status: "True", LastTransition: ledgerEpoch.Add(-time.Hour)},
		})}
	}
	master := func(name string) *Node {
		n := silentNode(name)
		n.ControlPlane = true
		return n
	}
	check := nodePolicy()
	check.Conditions = append(check.Conditions, UnhealthyCondition{Type: "Broken", Status: "True", Timeout: time.Minute})
	budget := Change{
		ID:    ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: "b"},
		Value: &DisruptionBudget{Name: "b", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
	}
	for name, c := range map[string]struct {
		world []Change
		want  reason.Code
	}{
		"budget":        {[]Change{budget, put(broken("n-1")), put(broken("n-2"))}, reason.Budget},
		"control plane": {[]Change{put(master("n-1")), put(master("n-2"))}, reason.ControlPlaneBusy},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledgerWith(Rules{}, append(c.world, put(check))...)
			all := l.Acting(ledgerEpoch)
			require.Len(t, all, 1)
			require.Len(t, all[0].Targets, 2)
			require.NotContains(t, all[0].Targets[0].Refusals, c.want)
			require.Contains(t, all[0].Targets[1].Refusals, c.want)
			for i, node := range []string{"n-1", "n-2"} {
				assert.Equal(t, all[0].Targets[i:i+1], l.ActingOn(check.ID(), node, ledgerEpoch))
			}
			assert.Empty(t, l.ActingOn(check.ID(), "n-3", ledgerEpoch))
			assert.Empty(t, l.ActingOn(CheckID{Name: "another"}, "n-1", ledgerEpoch))
		})
	}
}

// The author of a check names the kind of its requests. Whatever he writes, no
// request takes the place of anything else, nor takes it away with it.
func TestRequestsReplaceNothing(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n", Paused: true}
	for _, id := range []ObjectID{put(m).ID, put(silentNode("n")).ID, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: "n"}, {APIVersion: "x.example/v1", Kind: "Machine", Namespace: "ns", Name: "m"}, {APIVersion: "x.example/v1", Kind: "Cluster", Namespace: "ns", Name: "k"}} {
		l := NewLedger(Rules{Namespaces: []string{"ns"}})
		cluster := Change{ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "ns", Name: "k"}, Value: &Cluster{Namespace: "ns", Name: "k", Paused: true}}
		l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("n")), put(m), cluster)
		all := func(what string) {
			require.Empty(t, acts(t, l), "%s %v", what, id)
			require.NotNil(t, l.Node("n"), "%s %v", what, id)
			require.NotNil(t, l.MachineIn(OpenShiftMachineAPI, "ns", "m"), "%s %v", what, id)
			require.NotNil(t, l.tables.clusters["ns/k"], "%s %v", what, id)
		}
		l.Apply(ledgerEpoch, Change{ID: id, Value: &Request{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}})
		require.Len(t, l.Snapshot().Requests, 1)
		all("after the request came")
		l.Apply(ledgerEpoch, Change{ID: id})
		require.Empty(t, l.Snapshot().Requests)
		all("after it went")
	}
}

// An object of another group that cannot be read is none of ours, whatever its
// kind is called; one without an apiVersion may be.
func TestUnreadObjectsOfOtherGroups(t *testing.T) {
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	c := nodePolicy()
	c.SelectsNodes = false
	l.Apply(ledgerEpoch, put(c), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}))
	require.Equal(t, []string{"n ns/m"}, acts(t, l), "its Node is gone")
	for _, id := range []ObjectID{{APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: ""}, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "ns", Name: "n"}, {APIVersion: "x.example/v1", Kind: "Node", Namespace: "", Name: "n"}} {
		l.Apply(ledgerEpoch, Change{ID: id, Err: errors.New("x")})
		assert.Equal(t, []string{"n ns/m"}, acts(t, l), id)
	}
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "", Kind: "Node", Name: "n"}, Err: errors.New("x")})
	assert.Empty(t, acts(t, l))
}

// What cannot be read any more is not used any more, even beside a request of the
// same name.
func TestUnreadObjectBesideItsRequest(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(m), Change{ID: put(m).ID, Value: &Request{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m"}})
	l.Apply(ledgerEpoch, Change{ID: put(m).ID, Err: errors.New("x")})
	assert.Nil(t, l.MachineIn(OpenShiftMachineAPI, "ns", "m"))
	assert.Empty(t, l.Snapshot().Requests)
	assert.Equal(t, []ObjectKey{{"Machine", "ns", "m", "machine.openshift.io"}}, l.Snapshot().Undecoded)
}

func named(namespace, name string) *Check {
	return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: namespace, Name: name, Selector: labels.Everything(), Strategy: PowerCycleHosts,
		Conditions: nodePolicy().Conditions}
}

// seatedIn lists the checks of a namespace that are evaluated, as the ledger and Decide say.
func seatedIn(t *testing.T, l *Ledger, namespace string) (list []string) {
	t.Helper()
	r := l.Report(ledgerEpoch)
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), r)
	require.Len(t, l.Counters(), len(r.Checks), "what is over the limit has no metrics")
	for _, c := range r.Checks {
		if c.Namespace == namespace {
			list = append(list, c.Name)
		}
	}
	return list
}

// Of the checks of one namespace the first by name are evaluated. The others are in no table, and take nothing from the
// checks of others. A seat that becomes free goes to the next.
func TestChecksBeyondTheLimitAreNotEvaluated(t *testing.T) { // I18
	m, n, _ := prod()
	file := named("tenant", "from-a-file")
	file.Source = "policies.d/all.yaml:1"
	l := ledgerWith(Rules{MaxChecks: 2}, put(n), put(m), put(named("prod", "c")), put(nodePolicy()), put(file))
	before := acts(t, l)
	for _, name := range []string{"c", "b", "d", "a"} {
		l.Apply(ledgerEpoch, put(named("tenant", name)))
	}
	assert.Equal(t, []string{"a", "b", "from-a-file"}, seatedIn(t, l, "tenant"))
	assert.Equal(t, []string{"c"}, seatedIn(t, l, "prod"))
	assert.Equal(t, before, acts(t, l))
	require.Len(t, l.Crowds(), 1)
	assert.Equal(t, "namespace tenant", l.Crowds()[0].Namespace)
	assert.Equal(t, []ObjectError{{"namespace tenant", "CheckLimit: it has more than 2 checks, and fenced evaluates the first 2 by name: " +
		"the others select nothing and limit nothing; delete those that are not needed"}}, l.Report(ledgerEpoch).Errors)

	changed := named("tenant", "d")
	changed.Strategy = CountOnly
	l.Apply(ledgerEpoch, put(changed))
	for _, step := range []struct {
		gone string
		want []string
	}{{"a", []string{"b", "c", "from-a-file"}}, {"c", []string{"b", "d", "from-a-file"}}, {"b", []string{"d", "from-a-file"}}, {"x", []string{"d", "from-a-file"}}} {
		l.Apply(ledgerEpoch, Change{ID: put(named("tenant", step.gone)).ID})
		assert.Equal(t, step.want, seatedIn(t, l, "tenant"), "without %s", step.gone)
	}
	assert.Equal(t, CountOnly, l.Check(changed.ID()).Strategy, "what changed while it had no seat")
	assert.Empty(t, l.Crowds())
	assert.Empty(t, l.Report(ledgerEpoch).Errors)
}

// What the documents say. The administrator's are not limited.
func TestThousandChecksOfANamespace(t *testing.T) { // I18
	l := NewLedger(Rules{})
	var all []Change
	for i := range 1002 {
		p := nodePolicy()
		p.Name = fmt.Sprintf("p-%04d", i)
		all = append(all, put(named("tenant", fmt.Sprintf("c-%04d", i))), put(p))
	}
	l.Apply(ledgerEpoch, all...) // at once: after each one all checks would be asked anew
	assert.Len(t, seatedIn(t, l, "tenant"), 1000)
	assert.Len(t, seatedIn(t, l, ""), 1002)
}

// Of what is gone nothing is kept: whoever may create namespaces, and objects in them, may do so without end.
func TestLedgerKeepsNothingOfWhatIsGone(t *testing.T) {
	l := NewLedger(Rules{MaxChecks: 2, MaxTargets: 3, Namespaces: []string{"ns-1"}})
	entries := func() (n int) {
		for _, of := range []reflect.Value{reflect.ValueOf(l).Elem(), reflect.ValueOf(l.tables).Elem(), reflect.ValueOf(&l.tables.owners).Elem(), reflect.ValueOf(&l.tables.requests).Elem(),
			reflect.ValueOf(&l.tables.pods).Elem(), reflect.ValueOf(&l.tables.byKey).Elem(), reflect.ValueOf(&l.tables.byNode).Elem(), reflect.ValueOf(&l.tables.nodesByUUID).Elem(),
			reflect.ValueOf(&l.onNode).Elem(), reflect.ValueOf(&l.onMachine).Elem()} {
			for i := range of.NumField() {
				if f := of.Field(i); f.Kind() == reflect.Map {
					n += f.Len()
				}
			}
		}
		return n
	}
	l.Apply(ledgerEpoch, put(silentNode("n-0")))
	before := entries()
	for i := range 4 {
		namespace, node := fmt.Sprint("ns-", i), fmt.Sprint("n-", i+1)
		var came, gone []Change
		for j := range 3 {
			c := caseCheck(DeleteMachines)
			c.Namespace, c.Name = namespace, fmt.Sprint("c-", j)
			m := caseMachine(fmt.Sprint("m-", i, j), node)
			m.Namespace, m.UID = namespace, fmt.Sprint(i, j)
			q := &Request{APIVersion: "x.example/v1", Kind: "Fix", Namespace: namespace, Name: m.Name, UID: m.UID, Owners: []Owner{{Kind: "Machine", Name: m.Name, UID: m.UID}}}
			came = append(came, put(c), put(m), put(q), put(&Host{Namespace: namespace, Name: m.Name, UID: m.UID}), put(&Pod{Namespace: "kube-system", Name: "etcd-" + m.Name, Node: node, Member: true}))
		}
		n := silentNode(node)
		n.SystemUUID, n.OpenShiftMachine, n.ControlPlane = "33221100-5544-7766-8899-AABBCCDDEEFF", namespace+"/m", i == 1
		came = append(came, put(n), put(&Cluster{Namespace: namespace, Name: "k"}))
		l.Apply(ledgerEpoch, came...)
		l.SetRuns(ledgerEpoch, []OpenRun{{ID: "1", Machine: namespace + "/m", MachineAPI: OpenShiftMachineAPI, Node: node}})
		l.SetReadsOff(ledgerEpoch, node, true)
		for _, c := range came {
			l.Apply(ledgerEpoch, Change{ID: c.ID, Err: errors.New("cannot be read")})
			gone = append(gone, Change{ID: c.ID})
		}
		l.Apply(ledgerEpoch, gone...)
		l.SetRuns(ledgerEpoch, nil)
		l.SetReadsOff(ledgerEpoch, node, false)
		l.Advance(ledgerEpoch.Add(time.Hour))
	}
	assert.Equal(t, before, entries())
}
