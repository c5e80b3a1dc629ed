package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/law"
)

// The law of this file gives one namespace and the kubelet of one Node to an attacker, as the laws of internal/policy do (attacker_law_test.go), and
// follows what it may write through admission to the BMCs: the hosts of others are switched exactly as without it.

// victims are worlds without the attacker.
var victims = map[string]func(w *world) func(*engine.Options){
	"a sick Node without a Machine under a policy": func(w *world) func(*engine.Options) {
		w.dropMachines()
		return withPolicy(w, nodePolicy())
	},
	"a sick control-plane host under a check": func(w *world) func(*engine.Options) {
		labelledControlPlane(w)
		return nil
	},
	"a sick Node under a NodeHealthCheck": func(w *world) func(*engine.Options) {
		w.changeCheck(func(c *policy.Check) {
			*c = policy.Check{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "nhc", UID: "nhc-uid", Selector: labels.Everything(), SelectsNodes: true,
				Strategy: policy.CreateRequests, Template: &policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Namespace: "medik8s", Name: "t"},
				MinHealthy: new(intstr.FromString("51%")),
				Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
		})
		return nil
	},
	"a sick host under a check": func(*world) func(*engine.Options) { return nil },
	"a sick host that a request is for": func(w *world) func(*engine.Options) {
		ask(w, nil)
		return responding(w)
	},
	"a sick control-plane host that a request is for": func(w *world) func(*engine.Options) {
		labelledControlPlane(w)
		ask(w, nil)
		return responding(w)
	},
	"a sick host that nobody asks for": func(w *world) func(*engine.Options) {
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		return nil
	},
	"the same, where requests count": func(w *world) func(*engine.Options) { return responding(w) },
	"healthy hosts": func(w *world) func(*engine.Options) {
		w.Recover()
		return nil
	},
}

// labelledControlPlane is controlPlaneOf with the labels that no kubelet can set.
func labelledControlPlane(w *world) {
	controlPlaneOf(w, true)
	w.Do(func(s *fake.State) {
		for _, name := range []string{"n-1", "other-0", "other-1"} {
			s.ChangeNode(name, func(n *fake.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
		}
	})
}

// writes draw what the attacker may write, by kind.
var writes = map[string]func(t *rapid.T) policy.Change{
	"Machine": func(t *rapid.T) policy.Change {
		m := &policy.Machine{APIVersion: drawFrom(t, "api", policy.OpenShiftMachineAPI, policy.ClusterAPIV1Beta2), Namespace: "evil", Name: drawFrom(t, "name", "m-1", "m-2"), UID: "evil",
			NodeName: drawFrom(t, "node", "", "n-1", "other-0", "none"), Phase: drawFrom(t, "phase", "Running", "Failed"), ControlPlane: rapid.Bool().Draw(t, "role"),
			ProviderID: drawFrom(t, "provider", "", "x"), ExternalRemediationRequested: rapid.Bool().Draw(t, "annotated"), ClusterName: "c", Deleting: rapid.Bool().Draw(t, "deleting")}
		return policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Value: m}
	},
	"undecodable Machine": func(t *rapid.T) policy.Change {
		return policy.Change{ID: policy.ObjectID{APIVersion: policy.OpenShiftMachineAPI, Kind: "Machine", Namespace: "evil", Name: drawFrom(t, "name", "m-1", "m-2")}, Err: errors.New("it is wrong")}
	},
	"check": func(t *rapid.T) policy.Change {
		c := &policy.Check{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "evil", Name: "workers", Source: "cluster",
			Selector: labels.Everything(), Strategy: drawFrom(t, "strategy", policy.PowerCycleHosts, policy.DeleteMachines),
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: drawFrom(t, "status", "Unknown", "True"), Timeout: time.Second}}}
		return policy.Change{ID: policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: c}
	},
	"FencedRemediation": func(t *rapid.T) policy.Change {
		q := &policy.Request{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind, Namespace: "evil", Name: drawFrom(t, "name", "m-1", "n-1", "other-0"), UID: "evil",
			NodeName: drawFrom(t, "node", "", "n-1", "other-0"), Created: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), ControlPlane: rapid.Bool().Draw(t, "role"), Finalizer: rapid.Bool().Draw(t, "finalizer"),
			Power: &policy.PowerRequest{HasFinalizer: rapid.Bool().Draw(t, "held"), ReadyNodes: rapid.Bool().Draw(t, "ready")}}
		if rapid.Bool().Draw(t, "owned") {
			q.Owners = []policy.Owner{{Kind: "Machine", Name: "m-1", UID: drawFrom(t, "owner", "m-m-1", "evil")}}
		}
		return policy.Change{ID: policy.ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}, Value: q}
	},
	"Pod of a kubelet": func(t *rapid.T) policy.Change {
		p := &policy.Pod{Namespace: "kube-system", Name: drawFrom(t, "name", "p-1", "p-2"), Node: "other-2", Member: rapid.Bool().Draw(t, "member"), Ready: rapid.Bool().Draw(t, "ready")}
		return policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, Value: p}
	},
	"BareMetalHost": func(t *rapid.T) policy.Change {
		h := &policy.Host{Namespace: "evil", Name: "h-1", UID: "evil", Address: drawFrom(t, "address", "ipmi://192.0.2.1", "ipmi://192.0.2.66"), CredentialsName: "stolen", Online: true,
			ConsumerRef: drawFrom(t, "consumer", "ns/m-1", "evil/m-1"), ConsumerKind: "Machine.machine.openshift.io", State: "provisioned", Serial: "ABC1234"}
		return policy.Change{ID: policy.ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}, Value: h}
	},
}

// acceptedSwitched says why objects of a kind still change what is switched in a world: docs/security.md has it.
var acceptedSwitched = map[string]map[string]string{
	"check": {"a sick Node under a NodeHealthCheck": "a MachineHealthCheck of OpenShift in any namespace puts all NodeHealthChecks out of force: so does the operator of medik8s"},
}

func drawFrom[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// outcome runs a world for some minutes, and says what was switched.
func outcome(t *testing.T, victim string, attack []policy.Change) (found string) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t, dir)
		w := newWorld()
		change := victims[victim](w)
		_, _, stop := start(t, w, store, func(o *engine.Options) {
			if change != nil {
				change(o)
			}
			told := false
			o.Clusters[0].Watch = seenThrough{o.Clusters[0].Watch, func(list []policy.Change) []policy.Change {
				if !told {
					told, list = true, append(list, attack...)
				}
				return list
			}}
		})
		time.Sleep(4 * time.Minute)
		for _, name := range []string{"n-1", "other-0", "other-1", "other-2"} {
			h := w.Cluster.Handle(name)
			found += fmt.Sprintf("%s: off %d, isolated %d; ", name, h.Count(bmc.CommandOff), h.Isolations())
		}
		stop()
		require.NoError(t, store.Close())
	})
	return found
}

// TestLawAttackerSwitchesNothing: with the attacker's objects the same hosts are switched, and the same Nodes are isolated.
// A soak also draws worlds with objects of one kind alone. What is compared does not depend on the order in which the Go
// scheduler does what happens at the same instant.
func TestLawAttackerSwitchesNothing(t *testing.T) {
	kinds := map[string][]string{"all": slices.Sorted(maps.Keys(writes))}
	if dice.Soak() {
		for kind := range writes {
			kinds[kind] = []string{kind}
		}
	}
	normal := map[string]string{}
	for victim := range victims {
		normal[victim] = outcome(t, victim, nil)
	}
	for name, kinds := range kinds {
		t.Run(name, func(t *testing.T) {
			law.Check(t, func(r *rapid.T) {
				victim := drawFrom(r, "victim", slices.Sorted(maps.Keys(victims))...)
				var attack []policy.Change
				for range rapid.IntRange(1, 3).Draw(r, "objects") {
					kind := drawFrom(r, "kind", kinds...)
					if _, open := acceptedSwitched[kind][victim]; !open {
						attack = append(attack, writes[kind](r))
					}
				}
				require.Equal(r, normal[victim], outcome(t, victim, attack), "%s, beside %+v", victim, attack)
			})
		})
	}
}
