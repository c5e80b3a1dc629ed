package policy

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

var ledgerEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The names are few, so that everything meets everything.
var (
	worldNodes    = []string{"n-0", "n-1", "n-2", "n-3", "m-1"}
	worldMachines = []string{"m-0", "m-1", "m-2", "n-1"}
	worldLabels   = []labels.Set{nil, {"rack": "r1"}, {"rack": "r2", "zone": "z1"}, {"rack": "r1", "zone": "z2", excludeLabel: "true"}}
	worldSelector = []labels.Selector{labels.Everything(), labels.Everything(), labels.Everything(), labels.Everything(), labels.SelectorFromSet(labels.Set{"rack": "r1"}), labels.Nothing(), nil}
	// none, one in three forms, another, and one that vendors give to many machines
	worldUUIDs = []string{"", "33221100-5544-7766-8899-AABBCCDDEEFF", "00112233445566778899aabbccddeeff", "ffeeddcc-bbaa-9988-6677-445500112233",
		"4c4c4544-0051-3010-8052-b4c04f303533", "03000200-0400-0500-0006-000700080009"}
	worldProviders = []string{"", "", "", "p://1", "p://2", "metal3://a/h-0/m-0"}
	worldNamed     = []string{"", "a/m-0", "a/m-1", "b/m-0"}                            // the Machines that Nodes name
	worldConsumers = []string{"", "a/m-0", "a/m-1", "b/m-0", "a/i-0", "a/i-0", "a/i-1"} // Machines, and infrastructure objects of Machines
	worldTemplate  = Template{APIVersion: "remediation.example/v1", Kind: "FixTemplate", Namespace: "a", Name: "fix"}
)

func of[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// odds is true once in n.
func odds(t *rapid.T, label string, n int) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// around draws an instant near now; sometimes none.
func around(t *rapid.T, label string, now time.Time) time.Time {
	ago := of(t, label, -2*time.Minute, 0, time.Second, 59*time.Second, time.Minute, 61*time.Second, 10*time.Minute, time.Hour, 0)
	if ago == 0 && odds(t, label+" none", 3) {
		return time.Time{}
	}
	return now.Add(-ago)
}

func drawWorldCheck(t *rapid.T, now time.Time) *Check {
	c := &Check{Namespace: of(t, "namespace", "a", "a", "b"), Name: of(t, "name", "c-0", "c-1"), UID: "u", Source: "cluster",
		Selector: of(t, "selector", worldSelector...), Paused: odds(t, "paused", 12)}
	switch of(t, "lineage", openShift, clusterAPI, medik8s, fenced, openShift, clusterAPI, medik8s, fenced, unknownFamily) {
	case openShift:
		c.APIVersion, c.Kind = OpenShiftMachineAPI, MachineHealthCheckKind
		c.Strategy = of(t, "strategy", DeleteMachines, PowerCycleHosts, PowerCycleHosts, CreateRequests)
		c.Evaluator = of(t, "evaluator", "", "me")
	case clusterAPI:
		c.APIVersion, c.Kind = of(t, "api", ClusterAPIV1Beta1, ClusterAPIV1Beta2), MachineHealthCheckKind
		c.Strategy, c.ClusterName = of(t, "strategy", MarkOwners, CreateRequests), "k"
		c.MachineConditions = []UnhealthyCondition{{"Sound", "False", time.Minute}}
		c.UnhealthyRange, c.Evaluator = of(t, "range", "", "", "[1-2]", "[2-5]"), of(t, "evaluator", "", "me")
	case medik8s:
		c.APIVersion, c.Kind, c.Namespace, c.SelectsNodes, c.Strategy = Medik8sAPI, NodeHealthCheckKind, "", true, CreateRequests
		drawMedik8s(t, c, now)
	case fenced:
		c.APIVersion, c.Kind, c.Namespace = FencedAPI, FencePolicyKind, ""
		c.Source, c.SelectsNodes = of(t, "source", "p.yaml:1", "p.yaml:9"), rapid.Bool().Draw(t, "nodes")
		c.Strategy = of(t, "strategy", PowerCycleHosts, DeleteMachines, CountOnly)
		c.UnhealthyRange, c.ShortenOnEvidence = of(t, "range", "", "", "[0-2]", "[2-5]"), rapid.Bool().Draw(t, "shorten")
		if odds(t, "windows", 3) {
			c.Windows = []Window{{Text: "hourly", Starts: hourly{}, Duration: 20 * time.Minute}}
		}
	default:
		c.APIVersion, c.Kind = "machine.openshift.io/v2", MachineHealthCheckKind
	}
	if odds(t, "file", 5) {
		c.Source = "p.yaml:5"
	}
	if c.Strategy == CreateRequests && c.Escalation == nil {
		c.Template = of(t, "template", &worldTemplate, &Template{FencedAPI, FencedRemediationKind + "Template", "a", "own"})
	}
	drawRules(t, c)
	return c
}

func drawRules(t *rapid.T, c *Check) {
	c.Conditions = []UnhealthyCondition{{"Ready", "Unknown", time.Minute}, {"Ready", "False", 10 * time.Minute}}
	if odds(t, "terminating", 8) {
		c.Conditions = []UnhealthyCondition{{terminating, "True", 0}}
	}
	c.StartupTimeout = of(t, "startup", 0, 10*time.Minute)
	if limit := of(t, "limit", "", "", "", "100%", "100%", "0", "1", "40%", "150%", "-1", "x"); limit != "" {
		c.MaxUnhealthy = new(intstr.Parse(limit))
	}
	if odds(t, "invalid", 12) {
		c.Invalid = "spec.x: is wrong"
	}
	if odds(t, "disabled", 12) {
		c.Disabled = "no template"
	}
}

func drawMedik8s(t *rapid.T, c *Check, now time.Time) {
	if odds(t, "minHealthy", 2) {
		c.MinHealthy = new(intstr.FromString(of(t, "min", "0%", "40%", "51%")))
	}
	if odds(t, "pauseRequests", 8) {
		c.PauseRequests = []string{"upgrade"}
	}
	c.HealthyDelay = of(t, "delay", 0, -1, 10*time.Minute)
	c.StormCooldown = of(t, "cooldown", 0, 0, 5*time.Minute)
	if odds(t, "escalates", 2) {
		c.Escalation = []Escalation{{worldTemplate, 1, time.Minute}, {Template{FencedAPI, FencedRemediationKind + "Template", "a", "o"}, 2, time.Hour}}
		if odds(t, "tried", 3) {
			c.Attempts = map[string][]Attempt{"n-0": {{APIVersion: "remediation.example/v1", Kind: "Fix", TemplateName: "fix", Started: around(t, "started", now)}}}
		}
	}
}

// hourly is a schedule.
type hourly struct{}

func (hourly) Next(t time.Time) time.Time { return t.Truncate(time.Hour).Add(time.Hour) }

func drawWorldMachine(t *rapid.T, now time.Time) *Machine {
	m := &Machine{
		APIVersion: of(t, "api", OpenShiftMachineAPI, ClusterAPIV1Beta1, ClusterAPIV1Beta2),
		Namespace:  of(t, "namespace", "a", "a", "b"), Name: of(t, "name", worldMachines...),
		UID: of(t, "uid", "u1", "u2"), ProviderID: of(t, "provider", worldProviders...),
		Labels: of(t, "labels", worldLabels...), Phase: of(t, "phase", "Running", "Running", "Failed"), Deleting: odds(t, "deleting", 6),
		NodeName: of(t, "node", append([]string{"", "gone"}, worldNodes...)...), Created: around(t, "created", now), LastUpdated: around(t, "updated", now),
		ControlPlane: odds(t, "role", 2), ExternalRemediationRequested: odds(t, "requested", 6), ClusterName: "k",
		Conditions:      []Condition{{"Sound", of(t, "sound", "True", "True", "False"), around(t, "since", now)}},
		OwnerRemediated: of(t, "remediated", "", "", "False"), Paused: odds(t, "paused", 8), SkipRemediation: odds(t, "skip", 8),
		RemediateRequested: odds(t, "remediate", 8), InfrastructureReadySince: around(t, "infrastructure", now),
	}
	m.NodeUID = of(t, "node uid", "", "", "", "u1", "u2")
	if m.Group() == group(OpenShiftMachineAPI) {
		m.Authoritative = odds(t, "authoritative", 4)
		if odds(t, "suspended", 6) {
			m.Suspended, m.Authoritative = "the Cluster API is authoritative", false
		}
	} else {
		m.Infrastructure = InfrastructureRef{Kind: of(t, "infrastructure kind", metal3Kind, metal3Kind, "Other.group"), Name: of(t, "infrastructure name", "", "i-0", "i-1")}
		if odds(t, "by UID", 4) {
			m.ProviderID = of(t, "host UID", "metal3://h-uid-0", "metal3://before") // the second is that of before a move
		}
	}
	if odds(t, "failed", 8) {
		m.Failure = "CreateError"
	}
	if odds(t, "host", 2) {
		m.Annotations = map[string]string{HostAnnotation: of(t, "host name", "a/h-0", "a/h-1", "a/h-9")}
	}
	if !odds(t, "orphan", 4) {
		m.ControllerOwner = Owner{Kind: of(t, "owner", "MachineSet", "KubeadmControlPlane"), Name: "o", UID: "o"}
	}
	return m
}

func drawWorldNode(t *rapid.T, now time.Time) *Node {
	n := &Node{
		Name: of(t, "name", worldNodes...), UID: of(t, "uid", "u1", "u2"), Labels: LabelsOf(of(t, "labels", worldLabels...)),
		SystemUUID:       of(t, "uuid", worldUUIDs...),
		ProviderID:       of(t, "provider", worldProviders...),
		OpenShiftMachine: of(t, "machine of OpenShift", worldNamed...), ClusterMachine: of(t, "machine of the Cluster API", worldNamed...),
		ControlPlane: odds(t, "role", 2), Deleting: odds(t, "deleting", 8),
		Conditions: ConditionsOf([]Condition{{"Ready", of(t, "ready", "True", "True", "True", "Unknown", "Unknown", "False"), around(t, "since", now)}}),
	}
	if odds(t, "terminating", 6) {
		n.Conditions = append(n.Conditions, ConditionsOf([]Condition{{terminating, "True", around(t, "terminating since", now)}})...)
	}
	if n.ControlPlane && odds(t, "labelled", 2) {
		n.Labels = LabelsOf(labels.Merge(n.Labels.Map(), labels.Set{of(t, "label", labelEtcd, labelMicroK8s): "true"}))
	}
	if odds(t, "confirmed", 6) {
		n.Annotations = map[string]string{confirmAnnotation: ""}
	}
	if odds(t, "rolling", 8) {
		n.Annotations = map[string]string{currentConfig: "a", desiredConfig: "b"}
	}
	return n
}

func drawWorldRequest(t *rapid.T, now time.Time) *Request {
	r := &Request{
		APIVersion: "remediation.example/v1", Kind: of(t, "kind", "Fix", "Fix", "Other"), Namespace: of(t, "namespace", "a", "b"),
		Name: of(t, "name", append(worldMachines, worldNodes...)...), NodeName: of(t, "node", append([]string{"", ""}, worldNodes...)...),
		TemplateName: of(t, "template", "", "fix", "o"), Created: around(t, "created", now), ControlPlane: odds(t, "role", 6),
	}
	if odds(t, "strange", 8) { // its kind is the choice of a check's author
		r.APIVersion, r.Kind = of(t, "api", OpenShiftMachineAPI, "v1", "example.com/v1"), of(t, "kind", "Machine", "Node", "Cluster")
	}
	if odds(t, "owned", 2) {
		r.Owners = []Owner{{Kind: NodeHealthCheckKind, Name: of(t, "owner", "c-0", "c-1"), UID: "u"}}
	}
	if odds(t, "timed out", 5) {
		r.TimedOut = now
	}
	if odds(t, "recovered", 3) {
		r.HealthyDelaySince = around(t, "recovered since", now)
	}
	return r
}

var worldKinds = []string{"Node", "Node", "Machine", "Machine", "Check", "Request", "Lease", "Cluster", "Budget", "Pod", "Host", "Upgrade"}

// drawOf draws one object of a kind, with the name that a change has.
func drawOf(t *rapid.T, kind string, now time.Time) (ObjectID, any) {
	switch kind {
	case "Node":
		n := drawWorldNode(t, now)
		return ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, n
	case "Machine":
		m := drawWorldMachine(t, now)
		return ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, m
	case "Check":
		c := drawWorldCheck(t, now)
		return ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, c
	case "Request":
		r := drawWorldRequest(t, now)
		return ObjectID{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}, r
	case "Lease":
		return ObjectID{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-node-lease", Name: of(t, "name", worldNodes...)}, &Lease{RenewTime: around(t, "renewed", now)}
	case "Cluster":
		c := &Cluster{Namespace: "a", Name: "k", Paused: odds(t, "paused", 5), ControlPlaneInitialized: !odds(t, "new", 4),
			InfrastructureReady: !odds(t, "bare", 4), ControlPlaneSince: around(t, "since", now)}
		return ObjectID{APIVersion: ClusterAPIV1Beta2, Kind: "Cluster", Namespace: "a", Name: "k"}, c
	case "Budget":
		b := &DisruptionBudget{Name: of(t, "name", "b-0", "b-1"), Selector: of(t, "selector", worldSelector...),
			SelectsMachines: odds(t, "machines", 2), MaxUnavailable: intstr.Parse(of(t, "max", "0", "1", "3", "50%", "100%", "x")), Source: of(t, "source", "p.yaml:3", "p.yaml:7")}
		if odds(t, "invalid", 6) {
			b.Invalid = "wrong"
		}
		return ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: b.Name}, b
	case "Pod":
		p := &Pod{"kube-system", of(t, "name", "e-0", "e-1", "e-2"), of(t, "node", worldNodes...), !odds(t, "API server", 3), !odds(t, "sick", 3)}
		return ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, p
	case "Host":
		h := &Host{Namespace: "a", Name: of(t, "name", "h-0", "h-1"), UID: of(t, "uid", "h-uid-0", "h-uid-1"), Online: rapid.Bool().Draw(t, "online"),
			State: of(t, "state", "", "provisioned"), ConsumerRef: of(t, "consumer", worldConsumers...), ConsumerKind: of(t, "consumer kind", machineKind, metal3Kind)}
		if odds(t, "locked", 3) {
			h.Annotations = map[string]string{of(t, "lock", PowerLockAnnotation, "reboot.metal3.io/capm3"): ""}
		}
		return ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}, h
	}
	return ObjectID{APIVersion: "config.openshift.io/v1", Kind: "ClusterVersion", Name: "version"}, &Upgrade{Why: of(t, "why", "", "it is Progressing")}
}

// drawCluster draws objects that make a whole cluster.
func drawCluster(t *rapid.T, now time.Time) []Change {
	list := []Change{}
	for _, kind := range []string{"Check", "Check", "Check", "Node", "Node", "Node", "Node", "Node", "Machine", "Machine", "Machine", "Machine",
		"Machine", "Request", "Cluster", "Lease"} {
		id, value := drawOf(t, kind, now)
		list = append(list, Change{ID: id, Value: value})
	}
	return list
}

// drawChange draws an object that came or changed, went, or could not be read.
func drawChange(t *rapid.T, now time.Time) Change {
	id, value := drawOf(t, of(t, "kind", worldKinds...), now)
	switch rapid.IntRange(0, 9).Draw(t, "change") {
	case 0, 1:
		return Change{ID: id}
	case 2:
		if odds(t, "no name", 8) {
			id.Name = ""
		}
		return Change{ID: id, Err: errors.New(of(t, "error", "one", "two\nthree"))}
	}
	return Change{ID: id, Value: value}
}
