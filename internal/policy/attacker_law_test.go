package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

// The laws of this file give one namespace, and the kubelet of one Node, to an attacker. Whoever may write an object
// decides only about what that object owns: what fenced decides about all others is the same with and without the
// attacker's objects.

const (
	attackerNamespace = "evil"
	attackerNode      = "n-0"      // its kubelet is the attacker's
	trustedNamespace  = "requests" // the administrator named it
)

// attackLaws are what the attacker may not change.
var attackLaws = []string{
	"counts",   // what the checks of others count, and what their limits allow
	"targets",  // the verdicts of these checks on the targets of others
	"requests", // what becomes of the requests of others
	"budgets",  // what the administrator's budgets count
	"facts",    // what admission asks about the Nodes of others
	"reach",    // no check and no request of the attacker acts on a Node of others
}

// accepted says which attack still changes something, and why: docs/security.md has both.
var accepted = map[string]map[string]string{
	"check": {
		"counts":  "a MachineHealthCheck of OpenShift, in any namespace, puts all NodeHealthChecks out of force: so does the operator of medik8s",
		"targets": "the same",
	},
	"UUID of a kubelet": {
		"facts":   "a Node with the UUID of another makes both DuplicateUUID, because nothing says which of them is right",
		"targets": "the same",
	},
}

// attacks draw what an attacker may write, by kind, in a world. The objects point at those of everybody.
var attacks = map[string]func(t *rapid.T, world []Change) Change{
	"Machine": func(t *rapid.T, _ []Change) Change {
		m := drawWorldMachine(t, ledgerEpoch)
		m.Namespace = attackerNamespace
		return put(m)
	},
	"undecodable Machine": func(t *rapid.T, _ []Change) Change {
		return Change{ID: ObjectID{APIVersion: of(t, "api", OpenShiftMachineAPI, ClusterAPIV1Beta2), Kind: "Machine", Namespace: attackerNamespace, Name: of(t, "name", worldMachines...)},
			Err: errors.New("status.nodeRef: is wrong")}
	},
	"check": func(t *rapid.T, _ []Change) Change {
		c := drawWorldCheck(t, ledgerEpoch)
		if c.family() == medik8s || c.family() == fenced { // those are of no namespace
			c.APIVersion, c.Kind, c.SelectsNodes, c.Escalation = OpenShiftMachineAPI, MachineHealthCheckKind, false, nil
		}
		c.Namespace, c.Source = attackerNamespace, "cluster"
		return put(c)
	},
	"request": func(t *rapid.T, _ []Change) Change {
		q := drawWorldRequest(t, ledgerEpoch)
		q.Namespace = attackerNamespace
		return put(q)
	},
	"FencedRemediation": func(t *rapid.T, _ []Change) Change { return put(drawPowerRequest(t, attackerNamespace)) },
	"BareMetalHost": func(t *rapid.T, _ []Change) Change {
		h := &Host{Namespace: attackerNamespace, Name: of(t, "name", "h-0", "h-1"), Online: rapid.Bool().Draw(t, "online"), DisablePowerOff: rapid.Bool().Draw(t, "owner"),
			ConsumerKind: machineKind, ConsumerRef: key("a", of(t, "consumer", worldMachines...)), State: "provisioned"}
		return put(h)
	},
	"Cluster": func(t *rapid.T, _ []Change) Change {
		c := &Cluster{Namespace: attackerNamespace, Name: "k", Paused: rapid.Bool().Draw(t, "paused")}
		return put(c)
	},
	"Lease of a kubelet": func(t *rapid.T, _ []Change) Change {
		renewed := of(t, "renewed", ledgerEpoch, ledgerEpoch.AddDate(973, 0, 0), time.Time{})
		return Change{ID: ObjectID{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: "kube-node-lease", Name: attackerNode}, Value: &Lease{RenewTime: renewed}}
	},
	"Node of a kubelet": func(t *rapid.T, world []Change) Change {
		return kubeletsClaims(world, func(n *Node) {
			n.BootID, n.MachineID, n.Addresses = "forged", "forged", []string{"192.0.2.1"}
			n.Annotations = maps.Clone(n.Annotations)
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			for _, k := range []string{"machine.openshift.io/machine", "cluster.x-k8s.io/machine"} {
				n.Annotations[k] = key("a", of(t, "machine", worldMachines...))
			}
		})
	},
	"Pod of a kubelet": func(t *rapid.T, _ []Change) Change {
		return put(&Pod{"kube-system", "forged", attackerNode, rapid.Bool().Draw(t, "member"), rapid.Bool().Draw(t, "ready")})
	},
	"label of a kubelet": func(t *rapid.T, world []Change) Change {
		return kubeletsClaims(world, func(n *Node) {
			n.ControlPlane, n.Labels = true, LabelsOf(labels.Merge(n.Labels.Map(), labels.Set{labelMicroK8s: ""}))
		})
	},
	"UUID of a kubelet": func(t *rapid.T, world []Change) Change {
		return kubeletsClaims(world, func(n *Node) { n.SystemUUID = of(t, "uuid", worldUUIDs...) })
	},
}

// ofKubelets are the attacks by way of a Node that takes part in what all share. What makes its own case better or worse
// may change whose turn it is.
var ofKubelets = []string{"Lease of a kubelet", "Node of a kubelet", "UUID of a kubelet"}

// ofRole are the attacks of a kubelet that says that its Node is of the control plane. They take nobody's turn; only a
// budget may have room, because the attacker's own case waits for the quorum.
var ofRole = []string{"Pod of a kubelet", "label of a kubelet"}

// labelledWorld is a world in which the administrator labels the control plane, and the attacker's Node is a worker; ok is
// false if a Machine says otherwise. What a kubelet says in another one counts.
func labelledWorld(rules Rules, world []Change) (list []Change, ok bool) {
	worker := kubeletsClaims(world, func(n *Node) { n.ControlPlane, n.Labels = false, nil })
	if worker.Value == nil {
		return nil, false
	}
	server := controlPlaneOf(readyNode("server"))
	server.Labels = LabelsOf(map[string]string{labelEtcd: ""})
	list = append(slices.Clone(world), worker, put(server), member("server"))
	for _, name := range []string{"e-0", "e-1", "e-2"} { // nor does it have such Pods already
		list = append(list, Change{ID: ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "kube-system", Name: name}})
	}
	l := NewLedger(rules)
	l.Apply(ledgerEpoch, list...)
	return list, !l.tables.isOfAll(l.Node(attackerNode))
}

// kubeletsClaims is the Node of the attacker with other claims about its machine. How healthy it says it is stays as it
// was: that counts in the limits of all, as it must. So does its providerID, which the API server lets nobody change.
func kubeletsClaims(world []Change, claim func(*Node)) Change {
	id := ObjectID{APIVersion: "v1", Kind: "Node", Name: attackerNode}
	var last Change
	for _, c := range world {
		if c.ID == id {
			last = c
		}
	}
	now, ok := last.Value.(*Node)
	if !ok {
		return Change{ID: id, Err: last.Err} // there is none, or none that can be decoded
	}
	n := *now
	claim(&n)
	return Change{ID: id, Value: &n}
}

// drawPowerRequest draws a FencedRemediation: for what has its name, for a Node that it names, or for the Machine or the
// Node of the NodeHealthCheck that it says owns it.
func drawPowerRequest(t *rapid.T, namespace string) *Request {
	q := &Request{APIVersion: FencedAPI, Kind: FencedRemediationKind, Namespace: namespace, Name: of(t, "name", append(worldMachines, worldNodes...)...), UID: "q",
		NodeName: of(t, "node", append([]string{"", ""}, worldNodes...)...), TemplateName: of(t, "template", "", "own", "o"), Created: around(t, "created", ledgerEpoch),
		ControlPlane: odds(t, "role", 3), Finalizer: rapid.Bool().Draw(t, "finalizer"), Begun: rapid.Bool().Draw(t, "begun"),
		Power: &PowerRequest{HasFinalizer: odds(t, "held", 3), FinalizerElsewhere: odds(t, "elsewhere", 3), ReadyNodes: odds(t, "ready", 3)}}
	switch of(t, "owner", "", "Machine", NodeHealthCheckKind) {
	case "Machine":
		q.Owners = []Owner{{Kind: "Machine", Name: of(t, "machine", worldMachines...), UID: "u1"}}
	case NodeHealthCheckKind:
		q.Owners = []Owner{{Kind: NodeHealthCheckKind, Name: of(t, "check", "c-0", "c-1"), UID: "u"}}
	}
	return q
}

// drawVictims draws a cluster without the attacker, with requests of its own.
func drawVictims(t *rapid.T) (rules Rules, list []Change) {
	rules = Rules{ZoneKey: "zone", NodesCountAsMembers: rapid.Bool().Draw(t, "stand in"), ClusterRequired: rapid.Bool().Draw(t, "required"),
		DeleteControlPlaneMachines: rapid.Bool().Draw(t, "delete"), RequestNamespaces: []string{trustedNamespace}}
	list = append(drawCluster(t, ledgerEpoch), drawActing(t)...)
	for range rapid.IntRange(0, 6).Draw(t, "more") {
		list = append(list, drawChange(t, ledgerEpoch))
	}
	for range rapid.IntRange(0, 3).Draw(t, "requests") {
		list = append(list, put(drawPowerRequest(t, of(t, "namespace", "a", trustedNamespace))))
	}
	return rules, list
}

// attacker says what is the attacker's: the objects of an API group in a namespace, and requests.
type attacker struct {
	may  func(apiVersion, namespace string) bool
	made func(q *Request) bool
}

// inNamespace is who has one namespace, of whatever API.
var inNamespace = attacker{
	may:  func(_, namespace string) bool { return namespace == attackerNamespace },
	made: func(q *Request) bool { return q.Namespace == attackerNamespace },
}

// decisions are what fenced decides about everybody but the attacker, by law, sorted. Sentences are left out: they may
// name what the attacker wrote.
type decisions map[string][]string

func (d decisions) add(law string, what ...any) { d[law] = append(d[law], fmt.Sprint(what...)) }

func decide(rules Rules, by attacker, turns []reason.Code, changes ...[]Change) decisions {
	l := NewLedger(rules)
	for _, list := range changes {
		l.Apply(ledgerEpoch, list...)
	}
	d := decisions{}
	r := l.Report(ledgerEpoch)
	for i := range r.Checks {
		c := &r.Checks[i]
		own := by.may(c.APIVersion, c.Namespace)
		if !own {
			d.add("counts", c.ID(), c.State, c.Expected, c.Healthy, c.MaxUnhealthy, c.Allowed, c.RemediationsAllowed, c.gate)
		}
		for j := range c.Targets {
			d.addTarget("targets", by, turns, own, c.ID(), &c.Targets[j])
		}
	}
	for _, q := range l.Requested(true, ledgerEpoch) {
		d.addTarget("requests", by, turns, by.made(q.Request), q.Request.key(), &q.Target)
	}
	d.add("budgets", r.Budgets)
	d.add("facts", l.tables.controlPlaneSize(), l.Fleet("z1"))
	for n := range l.Nodes() {
		if n.Name != attackerNode {
			m := l.MachineOf(n.Name)
			d.add("facts", n.Name, m != nil, m, l.Doubt(m, n).Reason, l.NodeWithSameUUID(n.Name, n.SystemUUID))
		}
	}
	for _, list := range d {
		slices.Sort(list)
	}
	return d
}

// addTarget adds what somebody's check or request asks for. What the attacker's own ask for counts only if it acts on a
// Node of others, and what others decide about the attacker's Machine and Node does not count.
func (d decisions) addTarget(law string, by attacker, turns []reason.Code, own bool, who any, x *TargetReport) {
	namespace, _ := splitKey(x.Machine)
	switch {
	case own:
		if x.Acts() && x.Node != "" && x.Node != attackerNode {
			d.add("reach", who, x.Action, x.Node)
		}
	case x.Node != attackerNode && !by.may(x.MachineAPIVersion, namespace):
		refusals := slices.DeleteFunc(slices.Clone(x.Refusals), func(code reason.Code) bool { return slices.Contains(turns, code) })
		d.add(law, who, x.Machine, x.Node, x.Verdict, x.Reason, x.Action, refusals)
	}
}

// attackOf checks the laws that hold already against attacks of these kinds.
func attackOf(kinds ...string) func(*rapid.T) {
	return func(t *rapid.T) {
		rules, world := drawVictims(t)
		if slices.ContainsFunc(ofRole, func(kind string) bool { return slices.Contains(kinds, kind) }) {
			var ok bool
			if world, ok = labelledWorld(rules, world); !ok {
				return
			}
		}
		var objects []Change
		used := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "objects") {
			kind := of(t, "kind", kinds...)
			used[kind] = true
			objects = append(objects, attacks[kind](t, world))
		}
		var turns []reason.Code // the refusals that say that others have their turn before the target, where that may change
		switch {
		case slices.ContainsFunc(ofKubelets, func(kind string) bool { return used[kind] }):
			turns = []reason.Code{reason.ControlPlaneBusy, reason.Budget}
		case slices.ContainsFunc(ofRole, func(kind string) bool { return used[kind] }):
			turns = []reason.Code{reason.Budget}
		}
		before, after := decide(rules, inNamespace, turns, world), decide(rules, inNamespace, turns, world, objects)
		for _, law := range attackLaws {
			if !slices.ContainsFunc(kinds, func(kind string) bool { return used[kind] && accepted[kind][law] != "" }) {
				require.Equal(t, before[law], after[law], "%s changed by %v of %q", law, slices.Sorted(maps.Keys(used)), attackerNamespace)
			}
		}
	}
}

// TestLawsAttackerOfANamespace: nothing that the attacker writes changes what is decided about others.
func TestLawsAttackerOfANamespace(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(attacks))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { law.Check(t, attackOf(kind)) })
	}
	others := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(ofRole, kind) }) // in any world
	t.Run("all", func(t *testing.T) { law.Check(t, attackOf(others...)) })
	t.Run("all, where the control plane has labels", func(t *testing.T) { law.Check(t, attackOf(kinds...)) })
}

// FuzzAttackerOfANamespace is the same, in worlds that the coverage chooses.
func FuzzAttackerOfANamespace(f *testing.F) {
	f.Add(make([]byte, 16<<10))
	f.Fuzz(rapid.MakeFuzz(attackOf(slices.Sorted(maps.Keys(attacks))...)))
}
