package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

var requestedAt = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// askedLedger is a cluster with Machine ns/m-1 on Node n-1, which is silent, and the Node n-2
// without a Machine, which is silent, too. The NodeHealthCheck "metal" covers n-2 and has its
// template in the namespace ns.
func askedLedger(t *testing.T, requests ...Request) *Ledger {
	t.Helper()
	return askedLedgerWith(t, Rules{}, requests...)
}

func askedLedgerWith(t *testing.T, rules Rules, requests ...Request) *Ledger {
	t.Helper()
	l := NewLedger(rules)
	silent := []Condition{{Type: "Ready", Status: "Unknown", LastTransition: requestedAt.Add(-time.Hour)}}
	changes := []Change{
		{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-1"}, Value: &Node{Name: "n-1", UID: "u-1", ClusterMachine: "ns/m-1", Conditions: ConditionsOf(silent)}},
		{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-2"}, Value: &Node{Name: "n-2", UID: "u-2", Labels: LabelsOf(labels.Set{"pool": "metal"}), Conditions: ConditionsOf(silent)}},
		{ID: ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Machine", Namespace: "ns", Name: "m-1"},
			Value: &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m-1", UID: "mu", NodeName: "n-1"}},
		{ID: ObjectID{APIVersion: Medik8sAPI, Kind: NodeHealthCheckKind, Name: "metal"}, Value: &Check{
			APIVersion: Medik8sAPI, Kind: NodeHealthCheckKind, Name: "metal", UID: "ku", SelectsNodes: true, Selector: labels.SelectorFromSet(labels.Set{"pool": "metal"}),
			Strategy: CreateRequests, Template: &Template{APIVersion: FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}, MinHealthy: new(intstr.FromString("51%")),
		}},
	}
	for i := range requests {
		q := &requests[i]
		q.APIVersion, q.Kind, q.Namespace = FencedAPI, FencedRemediationKind, cmp.Or(q.Namespace, "ns")
		if q.UID == "" {
			q.UID = "q-" + q.Name
		}
		if q.Power == nil {
			q.Power = &PowerRequest{}
		}
		changes = append(changes, Change{ID: ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, OnManagementAPI: q.OnManagementAPI}, Value: q})
	}
	l.Apply(requestedAt, changes...)
	return l
}

func ownedByCheck(name, uid string) []Owner {
	return []Owner{{Kind: NodeHealthCheckKind, Name: name, UID: uid}}
}

func owner(uid string) []Owner { return []Owner{{Kind: "Machine", Name: "m-1", UID: uid}} }

// The target of a request is the Machine that owns it, the Node that it names, or what has its
// name. Nothing else, however alike, is hit.
func TestTargetOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		request       Request
		machine, node string
	}{
		"of the Cluster API":                     {Request{Name: "m-1", Owners: owner("mu")}, "ns/m-1", "n-1"},
		"of a Machine that was replaced":         {Request{Name: "m-1", Owners: owner("other")}, "", ""},
		"of a NodeHealthCheck, named so":         {Request{Name: "n-2", Owners: ownedByCheck("metal", "ku")}, "", "n-2"},
		"of a NodeHealthCheck, annotated":        {Request{Name: "n-2-x7k2p", NodeName: "n-2", Owners: ownedByCheck("metal", "ku")}, "", "n-2"},
		"for the Node of a Machine":              {Request{Name: "x", NodeName: "n-1"}, "ns/m-1", "n-1"},
		"made by hand for a Machine":             {Request{Name: "m-1"}, "ns/m-1", "n-1"},
		"for nobody":                             {Request{Name: "m-3"}, "", ""},
		"elsewhere, for a Node of the same name": {Request{Name: "n-2", OnManagementAPI: true}, "", ""},
		"elsewhere, annotated":                   {Request{Name: "x", NodeName: "n-2", OnManagementAPI: true}, "", ""},
		"elsewhere, of a Machine":                {Request{Name: "m-1", Owners: owner("mu"), OnManagementAPI: true}, "ns/m-1", "n-1"},
	} {
		list := askedLedger(t, c.request).Requested(false, requestedAt)
		require.Len(t, list, 1, name)
		found := list[0].Target
		assert.Equal(t, []string{c.machine, c.node}, []string{found.Machine, found.Node}, name)
		assert.Equal(t, c.machine+c.node != "", found.Acts(), name)
		if found.Acts() {
			assert.Equal(t, PowerCycle, found.Action, name)
		}
	}
}

// Nodes have no namespace: whoever may create a request somewhere must not have any Node
// power-cycled by its name.
func TestRequestThatOnlyNamesItsNode(t *testing.T) {
	byCheck := Request{Name: "x", NodeName: "n-2", TemplateName: "power", Owners: ownedByCheck("metal", "ku")}
	change := func(f func(*Request)) Request { q := byCheck; f(&q); return q }
	for name, c := range map[string]struct {
		request Request
		rules   Rules
		trusted bool
	}{
		"by a NodeHealthCheck, where its template is": {byCheck, Rules{}, true},
		"with such an owner, elsewhere":               {change(func(q *Request) { q.Namespace = "tenant" }), Rules{}, false},
		"of a check that is not seen":                 {change(func(q *Request) { q.Owners = ownedByCheck("gone", "ku") }), Rules{}, false},
		"of an earlier check of this name":            {change(func(q *Request) { q.Owners = ownedByCheck("metal", "old") }), Rules{}, false},
		"of a Node that the check does not cover":     {change(func(q *Request) { q.NodeName, q.Namespace = "n-1", "tenant" }), Rules{}, false},
		"from another template":                       {change(func(q *Request) { q.TemplateName = "other" }), Rules{}, false},
		"by hand":                                     {Request{Name: "n-2"}, Rules{}, false},
		"by hand, annotated":                          {Request{Name: "x", NodeName: "n-2"}, Rules{}, false},
		"by hand, in a namespace that is listed":      {Request{Name: "n-2"}, Rules{RequestNamespaces: []string{"ns"}}, true},
		"by hand, in another":                         {Request{Name: "n-2", Namespace: "tenant"}, Rules{RequestNamespaces: []string{"ns"}}, false},
		"by hand, beside the Machine":                 {Request{Name: "x", NodeName: "n-1"}, Rules{}, true},
		"by hand, not beside the Machine":             {Request{Name: "x", NodeName: "n-1", Namespace: "tenant"}, Rules{}, false},
		"in a namespace of that name on another API":  {Request{Name: "x", NodeName: "n-1"}, Rules{ManagementApart: true}, false},
	} {
		list := askedLedgerWith(t, c.rules, c.request).Requested(false, requestedAt)
		require.Len(t, list, 1, name)
		assert.Equal(t, c.trusted, list[0].Target.Acts(), name)
		if !c.trusted {
			assert.Equal(t, []reason.Code{reason.RequestNotTrusted}, list[0].Target.Refusals, name)
			assert.Contains(t, list[0].Target.Message, "requestNamespaces", name)
		}
	}
}

// A name says nothing about whose it was when a request was made. The host of one that was reinstalled or replaced
// since is not power-cycled while it joins. A Machine that owns the request, or an annotation on it, is of one UID;
// and whoever holds the request has begun a run, which may itself have let the Node be new. // I4
func TestRequestForWhatHadTheNameBefore(t *testing.T) {
	byCheck := Request{Name: "x", NodeName: "n-2", TemplateName: "power", Owners: ownedByCheck("metal", "ku")}
	change := func(f func(*Request)) Request { q := byCheck; f(&q); return q }
	for name, c := range map[string]struct {
		request Request
		refused bool
	}{
		"by a NodeHealthCheck":                         {byCheck, true},
		"by hand, for the Node":                        {Request{Name: "x", NodeName: "n-1"}, true},
		"by hand, for the Machine":                     {Request{Name: "m-1"}, true},
		"by hand, for a Machine without a Node":        {Request{Name: "m-2"}, true},
		"also if it asks for a Node that is Ready":     {change(func(q *Request) { q.Power = &PowerRequest{ReadyNodes: true} }), true},
		"of a Machine, by its UID":                     {Request{Name: "m-1", Owners: owner("mu")}, false},
		"with the finalizer of the run that has begun": {change(func(q *Request) { q.Power = &PowerRequest{HasFinalizer: true} }), false},
	} {
		c.request.Created = requestedAt.Add(-time.Minute)
		for made, refused := range map[time.Time]bool{c.request.Created.Add(time.Second): c.refused, c.request.Created: false, {}: false} {
			l := askedLedger(t, c.request)
			for _, n := range []string{"n-1", "n-2"} {
				anew := *l.Node(n)
				anew.Created = made
				l.Apply(requestedAt, put(&anew))
			}
			l.Apply(requestedAt, put(&Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m-2", UID: "mu2", Created: made}))
			found := l.Requested(false, requestedAt)[0].Target
			assert.Equal(t, refused, slices.Equal(found.Refusals, []reason.Code{reason.TargetChanged}), "%s: %v", name, found.Refusals)
			assert.Equal(t, !refused, found.Acts(), name)
			assert.Equal(t, refused, strings.Contains(found.Message, "older than"), "%s: %s", name, found.Message)
		}
	}
}

// A NodeHealthCheck asks for no Node that is gone: whoever writes one as the owner of a request for
// such a Node reaches no Machine elsewhere by its name.
func TestRequestOfACheckForANodeThatIsGone(t *testing.T) {
	q := Request{Name: "n-9", NodeName: "n-9", Owners: ownedByCheck("metal", "ku")}
	for namespace, trusted := range map[string]bool{"elsewhere": false, "ns": true} {
		l := askedLedgerWith(t, Rules{Namespaces: []string{namespace}}, q)
		m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: namespace, Name: "m-9", UID: "mu9", NodeName: "n-9"}
		l.Apply(requestedAt, Change{ID: ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: namespace, Name: m.Name}, Value: m})
		found := l.Requested(false, requestedAt)[0].Target
		require.Equal(t, namespace+"/m-9", found.Machine)
		assert.Equal(t, trusted, found.Acts(), "%s: %v", namespace, found.Refusals)
		assert.Equal(t, !trusted, slices.Contains(found.Refusals, reason.RequestNotTrusted), namespace)
	}
}

// On the workload API, nothing asks for a Machine of the management API: its namespace there is
// another one.
func TestMachinesOfTheManagementAPIAreNamedThere(t *testing.T) {
	apart := Rules{ManagementApart: true}
	for name, q := range map[string]Request{"by name": {Name: "m-1"}, "by owner": {Name: "m-1", Owners: owner("mu")}} {
		assert.Empty(t, askedLedgerWith(t, apart, q).Requested(false, requestedAt)[0].Target.Machine, name)
		q.OnManagementAPI = true
		assert.Equal(t, "ns/m-1", askedLedgerWith(t, apart, q).Requested(false, requestedAt)[0].Target.Machine, name)
	}
}

// A request on one API does not take the place of one on the other.
func TestRequestsOfTwoAPIsAreTwo(t *testing.T) {
	there := Request{Name: "m-1", UID: "there", Owners: owner("mu"), OnManagementAPI: true}
	l := askedLedgerWith(t, Rules{ManagementApart: true}, there, Request{Name: "m-1", UID: "here"})
	list := l.Requested(false, requestedAt)
	require.Len(t, list, 2)
	l.Apply(requestedAt, Change{ID: ObjectID{APIVersion: FencedAPI, Kind: FencedRemediationKind, Namespace: "ns", Name: "m-1"}})
	list = l.Requested(false, requestedAt)
	require.Len(t, list, 1)
	assert.Equal(t, "there", list[0].Request.UID)
}

func TestWhatARequestAsksFor(t *testing.T) {
	now := requestedAt
	ready := Condition{Type: "Ready", Status: "True", LastTransition: now.Add(-time.Hour)}
	asks := func(q Request, m *Machine, n *Node, cluster *Cluster) TargetReport {
		if q.Power == nil {
			q.Power = &PowerRequest{}
		}
		return EvaluateRequest(&q, Subject{Machine: m, Node: n}, cluster, now)
	}
	m, silent, well := Machine{Name: "m"}, Node{Name: "n"}, Node{Name: "n", Conditions: ConditionsOf([]Condition{ready})}
	change := func(f func(m *Machine)) *Machine { c := m; f(&c); return &c }
	for name, c := range map[string]struct {
		got     TargetReport
		verdict Verdict
		code    reason.Code // of the verdict, or the first refusal
	}{
		"a silent Node":                    {asks(Request{}, &m, &silent, nil), Unhealthy, ""},
		"a Machine without a Node":         {asks(Request{}, &m, nil, nil), Unhealthy, ""},
		"nothing":                          {asks(Request{}, nil, nil, nil), Indeterminate, reason.NodeNotFound},
		"a Node that is Ready":             {asks(Request{}, &m, &well, nil), Healthy, ""},
		"such a Node, all the same":        {asks(Request{Power: &PowerRequest{ReadyNodes: true}}, &m, &well, nil), Unhealthy, ""},
		"a request that is being deleted":  {asks(Request{Deleting: true}, &m, &silent, nil), Indeterminate, reason.Deleting},
		"one that medik8s has given up on": {asks(Request{TimedOut: now}, &m, &silent, nil), Indeterminate, reason.RequestTimeout},
		"one in time": {asks(Request{Created: now.Add(-time.Minute), Power: &PowerRequest{Timeout: time.Minute}}, &m, &silent, nil),
			Unhealthy, ""},
		"one that is too old": {asks(Request{Created: now.Add(-time.Minute - 1), Power: &PowerRequest{Timeout: time.Minute}}, &m, &silent, nil),
			Indeterminate, reason.RequestTimeout},
		"a Machine that is being deleted": {asks(Request{}, change(func(m *Machine) { m.Deleting = true }), &silent, nil), Unhealthy, reason.Deleting},
		"a Machine that is paused":        {asks(Request{}, change(func(m *Machine) { m.Paused = true }), &silent, nil), Unhealthy, reason.Paused},
		"a Cluster that is paused":        {asks(Request{}, &m, &silent, &Cluster{Paused: true}), Unhealthy, reason.Paused},
		"a Machine to be skipped":         {asks(Request{}, change(func(m *Machine) { m.SkipRemediation = true }), &silent, nil), Unhealthy, reason.SkipRequested},
		"what another installation holds": {asks(Request{Power: &PowerRequest{FinalizerElsewhere: true}}, &m, &silent, nil), Unhealthy, reason.RequestNotHeld},
		"another host's Node": {asks(Request{}, change(func(m *Machine) { m.ProviderID = "a" }), &Node{Name: "n", ProviderID: "b"}, nil),
			Unhealthy, reason.NodeMismatch},
	} {
		assert.Equal(t, c.verdict, c.got.Verdict, name)
		code := c.got.Reason
		if len(c.got.Refusals) > 0 {
			code = c.got.Refusals[0]
		}
		assert.Equal(t, c.code, code, name)
		assert.Equal(t, c.verdict == Unhealthy && code == "", c.got.Acts(), name)
	}
}

// A request that names another Node than its Machine has is refused: nobody knows which is meant.
func TestRequestThatContradictsItself(t *testing.T) {
	found := askedLedger(t, Request{Name: "m-1", Owners: owner("mu"), NodeName: "n-2"}).Requested(false, requestedAt)[0].Target
	assert.Equal(t, []reason.Code{reason.NodeMismatch}, found.Refusals)
	assert.Contains(t, found.Message, "names Node n-2")
}

// What the checks say about the target binds requests, too: pets are protected from everything, and
// a Node that needs long to register gets the time.
func TestRequestsObeyTheChecksOfTheTarget(t *testing.T) {
	l := askedLedger(t, Request{Name: "m-1"})
	put := func(c Check) {
		c.APIVersion, c.Selector = FencedAPI, labels.Everything()
		l.Apply(requestedAt, Change{ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name}, Value: &c})
	}
	put(Check{Kind: FencePolicyKind, Name: "slow", StartupTimeout: time.Hour, Strategy: PowerCycleHosts})
	put(Check{Kind: FencePolicyKind, Name: "other", StartupTimeout: time.Minute, Strategy: PowerCycleHosts})
	found := l.Requested(false, requestedAt)[0].Target
	assert.True(t, found.Acts(), found.Refusals)
	assert.Equal(t, time.Hour, found.StartupTimeout)

	put(Check{Kind: FencePolicyKind, Name: "pets", Strategy: CountOnly, Paused: true})
	assert.True(t, l.Requested(false, requestedAt)[0].Target.Acts(), "a check that is paused protects nothing")
	put(Check{Kind: FencePolicyKind, Name: "pets", Strategy: CountOnly})
	found = l.Requested(false, requestedAt)[0].Target
	assert.Equal(t, []reason.Code{reason.Overlap}, found.Refusals)
	assert.Contains(t, found.Message, "FencePolicy pets")
}

// A Node that renews its Lease runs, whoever asks. It is evaluated again when the Lease is old. // I4
func TestRequestForANodeThatRenewsItsLease(t *testing.T) {
	l := askedLedger(t, Request{Name: "m-1"})
	renewed := requestedAt.Add(-time.Second)
	l.Apply(requestedAt, Change{ID: ObjectID{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-node-lease", Name: "n-1"}, Value: &Lease{RenewTime: renewed}})
	found := l.Requested(false, requestedAt)[0].Target
	assert.Equal(t, []reason.Code{reason.NodeAlive}, found.Refusals)
	assert.Equal(t, renewed.Add(leaseFresh), found.Due)
	assert.True(t, l.Requested(false, found.Due)[0].Target.Acts())
}

// Budgets and the control plane bind requests as they bind checks. // I12
func TestRequestsObeyWhatIsShared(t *testing.T) {
	both, byHand := []Request{{Name: "n-1"}, {Name: "n-2"}}, Rules{RequestNamespaces: []string{"ns"}}
	l := askedLedgerWith(t, byHand, both...)
	none := &DisruptionBudget{Name: "none", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(0)}
	l.Apply(requestedAt, put(none))
	for _, q := range l.Requested(false, requestedAt) {
		assert.Contains(t, q.Target.Refusals, reason.Budget)
	}

	l = askedLedgerWith(t, byHand, both...)
	for _, name := range []string{"n-1", "n-2"} {
		n := *l.Node(name)
		n.ControlPlane = true
		l.Apply(requestedAt, put(&n))
	}
	for i, q := range l.Requested(false, requestedAt) {
		assert.Contains(t, q.Target.Refusals, reason.QuorumUnknown)
		assert.Equal(t, i > 0, slices.Contains(q.Target.Refusals, reason.ControlPlaneBusy), "one after the other")
	}

	// One that was answered, or that a budget refuses, does not keep the other waiting.
	for name, spoil := range map[string]func(){
		"answered": func() {
			q := *l.tables.requests.of(TargetNames{Node: "n-1"}, nil, l.Node("n-1"))[0]
			q.Power = &PowerRequest{Phase: PhaseSucceeded}
			l.Apply(requestedAt, put(&q))
		},
		"refused": func() {
			q := Request{APIVersion: FencedAPI, Kind: FencedRemediationKind, Namespace: "ns", Name: "n-1", UID: "new", Power: &PowerRequest{}}
			b := &DisruptionBudget{Name: "first", SelectsMachines: true, Selector: labels.SelectorFromSet(labels.Set{"first": "yes"}), MaxUnavailable: intstr.FromInt32(0)}
			first := *l.MachineOf("n-1")
			first.Labels = labels.Set{"first": "yes"}
			l.Apply(requestedAt, put(&q),
				put(b),
				put(&first))
		},
	} {
		spoil()
		list := l.Requested(false, requestedAt)
		require.Len(t, list, 2, name)
		assert.NotContains(t, list[1].Target.Refusals, reason.ControlPlaneBusy, name)
	}
}

// A budget counts the same for requests and for checks: here a Machine that never had a Node.
func TestBudgetsCountTheSameForRequests(t *testing.T) {
	l := askedLedgerWith(t, Rules{RequestNamespaces: []string{"ns"}}, Request{Name: "n-2"})
	n := *l.Node("n-2")
	n.Conditions = ConditionsOf([]Condition{{Type: "Ready", Status: "True"}})
	q := *l.tables.requests.of(TargetNames{Node: "n-2"}, nil, l.Node("n-2"))[0]
	q.Power = &PowerRequest{ReadyNodes: true}
	m := Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m-9", UID: "mu9"}
	b := &DisruptionBudget{Name: "all", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(2)}
	l.Apply(requestedAt, put(&n),
		put(&q),
		put(b))
	assert.True(t, l.Requested(false, requestedAt)[0].Target.Acts(), "n-1 is down, and n-2 may be")
	l.Apply(requestedAt, put(&m))
	assert.Equal(t, []reason.Code{reason.Budget}, l.Requested(false, requestedAt)[0].Target.Refusals)
}

// A request for a control-plane host that stays behind keeps no check from fencing another one. One
// of another remediator does. // I12
func TestOwnRequestsAreNotInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		power *PowerRequest
		busy  int
	}{"fenced's own": {&PowerRequest{}, 0}, "what another installation holds": {&PowerRequest{FinalizerElsewhere: true}, 1}, "another's": {nil, 1}} {
		w := newTables(Rules{RequestNamespaces: []string{"ns"}})
		w.requests.put(&Request{Namespace: "ns", Name: "cp-1", ControlPlane: true, Power: c.power})
		assert.Len(t, w.controlPlaneInFlight(), c.busy, name)
	}
}

// An annotated Machine of OpenShift is a request where that is wanted.
func TestAnnotatedMachineIsARequest(t *testing.T) {
	l := askedLedger(t)
	n := *l.Node("n-2")
	n.OpenShiftMachine = "ns/o"
	l.Apply(requestedAt, put(&n))
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "o", UID: "ou", NodeName: "n-2", ExternalRemediationRequested: true}
	l.Apply(requestedAt, Change{ID: ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: "o"}, Value: m})
	assert.Empty(t, l.Requested(false, requestedAt))
	list := l.Requested(true, requestedAt)
	require.Len(t, list, 1)
	assert.Equal(t, []string{"ns/o", "n-2", "ou"}, []string{list[0].Target.Machine, list[0].Target.Node, list[0].Request.UID})
	assert.True(t, list[0].Target.Acts())
}

// A request of anybody for anything stands in nobody's way: not as that of another remediator, and not as one for
// a control-plane host, whatever labels and finalizers it has. // I12, I22
func TestForgedRequestsStandInNobodysWay(t *testing.T) {
	check := &Check{Kind: NodeHealthCheckKind, APIVersion: Medik8sAPI, Name: "c", UID: "u", Selector: labels.Everything(), SelectsNodes: true, Evaluator: "x",
		Strategy: CreateRequests, Template: &worldTemplate, MinHealthy: new(intstr.FromString("51%")), Conditions: nodePolicy().Conditions}
	other := nodePolicy()
	other.Name = "other"
	for name, c := range map[string]struct {
		namespace string
		counts    bool
	}{"of a tenant": {"tenant", false}, "where the template is": {worldTemplate.Namespace, true}, "beside the Machine": {"prod", true}, "where the administrator says": {"admins", true}} {
		for kind, q := range map[string]Request{
			"of another remediator":                 {APIVersion: "remediation.example/v1", Kind: "Fix", ControlPlane: true, Finalizer: true},
			"that another installation says it has": {APIVersion: FencedAPI, Kind: FencedRemediationKind, ControlPlane: true, Power: &PowerRequest{FinalizerElsewhere: true}},
		} {
			_, n, _ := prod()
			m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: "w-2", NodeName: "w-2"}
			n.ProviderID, n.ControlPlane = "", true
			l := ledgerWith(Rules{RequestNamespaces: []string{"admins"}, ExternalEtcd: true}, put(check), put(other), put(n), put(m))
			before := resultsOf(t, l)
			q.Namespace, q.Name, q.NodeName = c.namespace, "q", "w-2"
			id := ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}
			l.Apply(ledgerEpoch, Change{ID: id, Value: &q})
			assert.Equal(t, !c.counts, assert.ObjectsAreEqual(before, resultsOf(t, l)), "%s, %s", name, kind)
			gone := q // for another host of the control plane, whose Node is gone
			gone.NodeName = "cp-9"
			l.Apply(ledgerEpoch, Change{ID: id, Value: &gone})
			assert.Equal(t, c.counts && c.namespace != "prod", slices.Contains(resultsOf(t, l)["other w-2"], reason.ControlPlaneBusy), "%s, %s", name, kind)
		}
	}
}

// A namespace of the cluster with the name of one on the management API is not that one: anybody may have created it.
func TestForgedRequestsInANamespaceOfTheManagementAPI(t *testing.T) {
	check := nodePolicy()
	check.Strategy, check.Template = CreateRequests, &worldTemplate
	n := silentNode("w-2")
	n.ClusterMachine, n.ProviderID, n.ControlPlane = "prod/w-2", "metal3://prod/h/m", true
	m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "prod", Name: "w-2", UID: "u", NodeName: "w-2", ProviderID: n.ProviderID, ControlPlane: true}
	for _, there := range []bool{false, true} {
		for _, name := range []string{"", "prod"} {
			l := ledgerWith(Rules{ManagementApart: true, ManagementNamespace: name, ExternalEtcd: true}, put(check), put(n), put(m))
			before := resultsOf(t, l)
			require.NotContains(t, before["nodes w-2"], reason.AlreadyRequested)
			q := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "prod", Name: "w-2", ControlPlane: true, OnManagementAPI: there}
			l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, OnManagementAPI: there}, Value: q})
			assert.Equal(t, !there, assert.ObjectsAreEqual(before, resultsOf(t, l)), "%t %q", there, name)
			assert.Equal(t, there, slices.Contains(l.tables.rules.RequestSpaces([]*Check{check}, there, m, n), "prod"), "%t %q: what a look reads", there, name)
			assert.NotContains(t, l.tables.rules.RequestSpaces([]*Check{check}, false, m, n), "prod")
			if !there {
				assert.Empty(t, l.tables.controlPlaneInFlight())
			}
		}
	}
}

// resultsOf lists what is refused, by check and target.
func resultsOf(t *testing.T, l *Ledger) map[string][]reason.Code {
	t.Helper()
	r := l.Report(ledgerEpoch)
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), r)
	all := map[string][]reason.Code{}
	for _, c := range r.Checks {
		for _, x := range c.Targets {
			all[c.Name+" "+x.Subject()] = x.Refusals
		}
	}
	return all
}

// A forged Machine beside a tenant's request has nobody's host power-cycled, and not that of a Node that is gone.
func TestRequestWithAForgedMachine(t *testing.T) {
	for node, want := range map[string]reason.Code{"n-1": reason.NodeNotOwned, "n-2": reason.NodeNotOwned, "gone": reason.NodeNotOwned} {
		l := askedLedger(t, Request{Name: "x", Namespace: "tenant", Owners: []Owner{{Kind: "Machine", Name: "x", UID: "xu"}}}, Request{Name: node, Namespace: "tenant", NodeName: node})
		m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "tenant", Name: "x", UID: "xu", NodeName: node}
		l.Apply(requestedAt, put(m))
		list := l.Requested(false, requestedAt)
		require.Len(t, list, 2)
		for _, q := range list {
			assert.False(t, q.Target.Acts(), "%s %s", node, q.Request.Name)
		}
		found := list[slices.IndexFunc(list, func(q Requested) bool { return q.Request.Name == "x" })].Target
		assert.Equal(t, []reason.Code{want}, found.Refusals)
		assert.Contains(t, found.Message, "Machine tenant/x names Node "+node)
	}
}

// Whoever makes more requests than fenced looks at is told so, and keeps neither another namespace
// nor what fenced holds from its turn.
func TestRequestsBeyondTheLimitAreRefused(t *testing.T) {
	junk := func(n int, namespace string) (list []Request) {
		for i := range n {
			list = append(list, Request{Name: fmt.Sprintf("%s-%d", namespace, i), Namespace: namespace, NodeName: "n-2", Created: requestedAt.Add(-time.Hour)})
		}
		return list
	}
	mine := []Request{
		{Name: "m-1", Owners: owner("mu"), Created: requestedAt},
		{Name: "held", Namespace: "many", NodeName: "n-1", Created: requestedAt, Power: &PowerRequest{HasFinalizer: true}},
		{Name: "answered", Namespace: "many", NodeName: "n-1", Power: &PowerRequest{Phase: PhaseSucceeded}},
		{Name: "for-nobody", Namespace: "many"},
		{Name: "late", Namespace: "many", NodeName: "n-2", Created: requestedAt},
	}
	rules := Rules{RequestNamespaces: []string{"many", "ns0", "ns1", "ns2", "ns3", "ns4", "ns5"}}
	over := func(requests []Request) (names []string, other int) {
		for _, q := range askedLedgerWith(t, rules, requests...).Requested(false, requestedAt) {
			switch {
			case q.Target.Reason != reason.RequestLimit:
				other++
			case !slices.ContainsFunc(mine, func(m Request) bool { return m.Name == q.Request.Name }):
				names = append(names, "junk")
			default:
				names = append(names, q.Request.Name)
				assert.False(t, q.Target.Acts())
				assert.Contains(t, q.Target.Message, " requests of namespace "+q.Request.Namespace)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), other
	}
	few, _ := over(append(junk(900, "many"), mine...))
	assert.Empty(t, few)
	names, others := over(append(junk(maxRequestsIn, "many"), mine...))
	assert.Equal(t, []string{"answered", "junk", "late"}, names)
	assert.Equal(t, maxRequestsIn+2, others, "those of the namespace with what is held, m-1 of another, and what is for nobody")

	var all []Request
	for i := range 6 {
		all = append(all, junk(maxRequestsIn, fmt.Sprint("ns", i))...)
	}
	names, others = over(append(all, mine...))
	assert.Equal(t, maxRequests+1, others)
	assert.Equal(t, []string{"junk"}, names, "what is held, and every namespace that wants few")
	list := askedLedgerWith(t, rules, append(all, mine...)...).Requested(false, requestedAt)
	require.True(t, slices.IsSortedFunc(list, func(a, b Requested) int { return a.Request.Created.Compare(b.Request.Created) }), "the oldest first, as ever")
}

// Seats are shared by namespace: one that wants few gets them, whatever others want.
func TestSeatsAreSharedByNamespace(t *testing.T) {
	var requests []Request
	rules := Rules{}
	for n, namespace := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		rules.RequestNamespaces = append(rules.RequestNamespaces, namespace)
		for i := range []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 10}[n] {
			requests = append(requests, Request{Name: fmt.Sprint("q-", i), UID: fmt.Sprint(namespace, i), Namespace: namespace, NodeName: "n-2", Created: requestedAt.Add(-time.Hour)})
		}
	}
	seated := map[string]int{}
	for _, q := range askedLedgerWith(t, rules, requests...).Requested(false, requestedAt) {
		if q.Target.Reason != reason.RequestLimit {
			seated[q.Request.Namespace]++
		} else {
			assert.Regexp(t, "^fenced looks at 71[23] requests of namespace "+q.Request.Namespace+":", q.Target.Message)
		}
	}
	assert.Equal(t, 10, seated["h"], "it comes last by name, and makes few")
	for namespace, n := range seated {
		assert.True(t, namespace == "h" || n == 712 || n == 713, "%s: %d", namespace, n)
	}
}

// A request that may not be for its target takes no seat, and one of a tenant's own Machines comes after
// those of the namespaces where the Machines of Nodes are.
func TestUntrustedRequestsTakeNoSeat(t *testing.T) {
	var requests []Request
	for i := range 2 * maxRequests {
		requests = append(requests, Request{Name: fmt.Sprint("q-", i), Namespace: fmt.Sprint("tenant-", i%7), NodeName: "n-1", Created: requestedAt.Add(-time.Hour),
			Power: &PowerRequest{HasFinalizer: i%2 == 0, FinalizerElsewhere: i%3 == 0}})
	}
	l := askedLedger(t, append(requests, Request{Name: "m-1", Owners: owner("mu"), Created: requestedAt})...)
	for _, q := range l.Requested(false, requestedAt) {
		assert.NotEqual(t, reason.RequestLimit, q.Target.Reason)
		if mine := q.Request.Name == "m-1"; mine != q.Target.Acts() || mine == slices.Contains(q.Target.Refusals, reason.RequestNotTrusted) {
			t.Fatalf("%s: %v", q.Request.Name, q.Target.Refusals)
		}
	}
	var own []Request
	var machines []Change
	for i := range 5*maxRequestsIn + 10 {
		m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: fmt.Sprint("a-tenant-", i%6), Name: fmt.Sprint("x-", i), UID: fmt.Sprint(i)}
		machines = append(machines, put(m))
		own = append(own, Request{Name: m.Name, Namespace: m.Namespace, Owners: []Owner{{Kind: "Machine", Name: m.Name, UID: m.UID}}, Created: requestedAt.Add(-time.Hour)})
	}
	l = askedLedger(t, append(own, Request{Name: "m-1", Owners: owner("mu"), Created: requestedAt})...)
	l.Apply(requestedAt, machines...)
	over := 0
	for _, q := range l.Requested(false, requestedAt) {
		if q.Target.Reason == reason.RequestLimit {
			over++
			assert.NotEqual(t, "m-1", q.Request.Name)
		}
	}
	assert.Equal(t, 11, over)
}

// Whoever may write requests can copy fenced's finalizer into them. They take no more seats than others, and none of others.
func TestForgedFinalizersTakeNoMoreSeats(t *testing.T) {
	requests := []Request{{Name: "m-1", Owners: owner("mu"), Created: requestedAt, Power: &PowerRequest{HasFinalizer: true}}}
	var all []string
	for i := range maxRequestsIn + 500 {
		requests = append(requests, Request{Name: fmt.Sprint("q-", i), Namespace: "tenant", Owners: []Owner{{Kind: "Machine", Name: "x", UID: "xu"}}, Created: requestedAt.Add(-time.Hour),
			Power: &PowerRequest{HasFinalizer: true}})
	}
	l := askedLedger(t, requests...)
	l.Apply(requestedAt, put(&Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "tenant", Name: "x", UID: "xu"}))
	for _, q := range l.Requested(false, requestedAt) {
		if q.Target.Reason == reason.RequestLimit {
			all = append(all, q.Request.Namespace)
		}
	}
	assert.Len(t, all, 500)
	assert.Equal(t, []string{"tenant"}, slices.Compact(all))
}
