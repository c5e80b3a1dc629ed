package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

// drawClusterWorld makes a small world of one Cluster in which every rule of the
// Cluster API can fire.
func drawClusterWorld(t *rapid.T) policy.Snapshot {
	s := policy.Snapshot{Nodes: map[string]*policy.Node{}, Rules: policy.Rules{ClusterRequired: rapid.Bool().Draw(t, "required")}}
	if rapid.IntRange(0, 4).Draw(t, "cluster") > 0 {
		s.Clusters = append(s.Clusters, drawCluster(t))
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "checks") {
		s.Checks = append(s.Checks, drawClusterCheck(t, i))
	}
	for i := range rapid.IntRange(0, 7).Draw(t, "machines") {
		m := drawClusterMachine(t, i)
		s.Machines = append(s.Machines, m)
		if m.NodeName != "" && rapid.IntRange(0, 5).Draw(t, "exists") > 0 {
			n := drawNode(t, m.NodeName)
			s.Nodes[n.Name] = &n
		}
	}
	return s
}

func drawCluster(t *rapid.T) policy.Cluster {
	c := policy.Cluster{Namespace: "ns", Name: "c", Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0}
	if c.ControlPlaneInitialized = rapid.IntRange(0, 3).Draw(t, "initialized") > 0; c.ControlPlaneInitialized {
		c.ControlPlaneSince = drawTime(t, "initialized since")
	}
	if c.InfrastructureReady = rapid.IntRange(0, 3).Draw(t, "infrastructure") > 0; c.InfrastructureReady {
		c.InfrastructureReadySince = drawTime(t, "infrastructure since")
	}
	return c
}

func drawClusterCheck(t *rapid.T, i int) policy.Check {
	c := drawCheck(t, i)
	c.APIVersion = rapid.SampledFrom([]string{policy.ClusterAPIV1Beta1, policy.ClusterAPIV1Beta2}).Draw(t, "version")
	c.ClusterName = "c"
	c.MachineConditions = []policy.UnhealthyCondition{{Type: "EtcdPodHealthy", Status: "False", Timeout: 90 * time.Second}}
	c.Evaluator = rapid.SampledFrom([]string{"", "us"}).Draw(t, "evaluator")
	c.Strategy = policy.MarkOwners
	if rapid.IntRange(0, 3).Draw(t, "template") == 0 {
		c.Strategy, c.Template = policy.CreateRequests, &policy.Template{APIVersion: "x/v1", Kind: "RequestTemplate", Name: "t"}
	}
	c.MaxUnhealthy = nil
	if limit := rapid.SampledFrom([]string{"", "40%", "100%", "10"}).Draw(t, "strict limit"); limit != "" {
		parsed := intstr.FromString(limit)
		c.MaxUnhealthy = &parsed
	}
	return c
}

func drawClusterMachine(t *rapid.T, i int) policy.Machine {
	m := drawMachine(t, i)
	m.APIVersion, m.ClusterName, m.ExternalRemediationRequested = policy.ClusterAPIV1Beta2, "c", false
	m.Created = drawTime(t, "created")
	if m.ControlPlane {
		m.Labels["cluster.x-k8s.io/control-plane"] = ""
		m.ControllerOwner = policy.Owner{Kind: rapid.SampledFrom([]string{"KubeadmControlPlane", "Other"}).Draw(t, "owner")}
	}
	if rapid.Bool().Draw(t, "provisioned") {
		m.InfrastructureReadySince = drawTime(t, "provisioned since")
	}
	if rapid.IntRange(0, 3).Draw(t, "condition") == 0 {
		m.Conditions = []policy.Condition{{Type: "EtcdPodHealthy", Status: "False", LastTransition: drawTime(t, "condition since")}}
	}
	m.OwnerRemediated = rapid.SampledFrom([]string{"", "", "True", "False"}).Draw(t, "marked")
	m.Paused = rapid.IntRange(0, 9).Draw(t, "machine paused") == 0
	m.SkipRemediation = rapid.IntRange(0, 9).Draw(t, "skip") == 0
	m.RemediateRequested = rapid.IntRange(0, 9).Draw(t, "asked") == 0
	return m
}

// TestClusterAPIOneMoreUnhealthy: without a range, whatever makes one more
// target unhealthy opens no gate.
func TestClusterAPIOneMoreUnhealthy(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawClusterWorld(t)
		if len(s.Machines) == 0 {
			t.Skip("nobody to fall ill")
		}
		before := policy.Decide(s, epoch)
		s.Machines = slices.Clone(s.Machines)
		ill := rapid.IntRange(0, len(s.Machines)-1).Draw(t, "ill")
		s.Machines[ill].RemediateRequested = true
		after := policy.Decide(s, epoch)
		for i := range before.Checks {
			b, a := before.Checks[i], after.Checks[i]
			assert.False(t, a.Allowed && !b.Allowed, "one more unhealthy target opened the gate of %s", a.Name)
			assert.LessOrEqual(t, a.Healthy, b.Healthy)
			for j := range a.Targets {
				if a.Targets[j].Machine != s.Machines[ill].Key() {
					assert.False(t, a.Targets[j].Acts() && !b.Targets[j].Acts())
				}
			}
		}
	})
}

// TestClusterAPIPauses: a paused Cluster, and a paused check that nobody was
// handed, do nothing at all.
func TestClusterAPIPauses(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawClusterWorld(t)
		s.Rules.Instance = "someone else"
		if rapid.Bool().Draw(t, "by cluster") {
			s.Clusters = []policy.Cluster{{Namespace: "ns", Name: "c", Paused: true, ControlPlaneInitialized: true, InfrastructureReady: true}}
		} else {
			for i := range s.Checks {
				s.Checks[i].Paused = true
			}
		}
		r := policy.Decide(s, epoch)
		assert.False(t, r.Acts())
		for _, c := range r.Checks {
			assert.NotEqual(t, policy.StateActive, c.State)
			assert.Empty(t, c.Targets)
		}
	})
}

// TestOpenShiftInstance: a check of OpenShift that was handed over is evaluated by
// the instance that it names, and by no other.
func TestOpenShiftInstance(t *testing.T) { // I22
	c := policy.Check{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "c",
		Selector: labels.Everything(), Paused: true, Evaluator: "us", Strategy: policy.PowerCycleHosts,
	}
	for instance, want := range map[string]policy.State{"us": policy.StateActive, "them": policy.StatePaused, "": policy.StateActive} {
		r := policy.Decide(policy.Snapshot{Checks: []policy.Check{c}, Rules: policy.Rules{Instance: instance}}, epoch)
		assert.Equal(t, want, r.Checks[0].State, "instance %q", instance)
	}
}

// TestClusterAPIInstance: a check that was handed over is judged by the instance
// that it names, and by no other.
func TestClusterAPIInstance(t *testing.T) {
	c := policy.Check{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2, Namespace: "ns", Name: "c",
		ClusterName: "c", Selector: labels.Everything(), Paused: true, Evaluator: "us", Strategy: policy.MarkOwners,
	}
	for instance, want := range map[string]policy.State{"us": policy.StateActive, "them": policy.StatePaused, "": policy.StateActive} {
		r := policy.Decide(policy.Snapshot{Checks: []policy.Check{c}, Rules: policy.Rules{Instance: instance}}, epoch)
		assert.Equal(t, want, r.Checks[0].State, "instance %q", instance)
	}
	r := policy.Decide(policy.Snapshot{Checks: []policy.Check{c}, Rules: policy.Rules{ClusterRequired: true}}, epoch)
	assert.Equal(t, policy.StateInvalid, r.Checks[0].State)
	assert.Equal(t, "Cluster ns/c does not exist", r.Checks[0].Message)
}

// TestClusterAPIOpenRun: a run that is open on a target is all there is to say.
func TestClusterAPIOpenRun(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawClusterWorld(t)
		for i, m := range s.Machines {
			s.OpenRuns = append(s.OpenRuns, policy.OpenRun{ID: fmt.Sprint("r", i), Machine: m.Key(), MachineAPI: m.APIVersion})
		}
		for _, c := range policy.Decide(s, epoch).Checks {
			for _, target := range c.Targets {
				assert.Equal(t, reason.UnderRemediation, target.Reason)
				assert.Equal(t, policy.None, target.Action)
			}
		}
	})
}
