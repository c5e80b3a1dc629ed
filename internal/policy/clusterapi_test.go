package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

const excludeLabel = "remediation.medik8s.io/exclude-from-remediation"

var (
	snr = policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Namespace: "medik8s", Name: "snr"} // which fenced carries out
	far = policy.Template{APIVersion: "fence-agents-remediation.medik8s.io/v1alpha1", Kind: "FenceAgentsRemediationTemplate", Namespace: "medik8s", Name: "far"}
)

func nodeCheck(name string) policy.Check {
	return policy.Check{
		Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: name, UID: "uid-" + name, Source: "cluster",
		Selector: labels.Everything(), SelectsNodes: true, Strategy: policy.CreateRequests, Template: &snr, MinHealthy: new(intstr.FromString("51%")),
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
}

func pool(n, sick int) map[string]*policy.Node {
	nodes := map[string]*policy.Node{}
	for i := range n {
		name, status := fmt.Sprintf("n-%03d", i), "True"
		if i < sick {
			status = "Unknown"
		}
		nodes[name] = &policy.Node{Name: name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: status, LastTransition: epoch.Add(-time.Hour)}})}
	}
	return nodes
}

// TestLawUpAndDown: the same percentage is rounded up here and down in the
// OpenShift family, and both are exact.
func TestLawUpAndDown(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 150).Draw(t, "total")
		sick := rapid.IntRange(0, total).Draw(t, "sick")
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		text := intstr.FromString(fmt.Sprintf("%d%%", percent))
		most, least, down := nodeCheck("most"), nodeCheck("least"), drawCheck(t, 0)
		most.MinHealthy = nil
		most.MaxUnhealthy, least.MinHealthy, down.MaxUnhealthy = &text, &text, &text
		s := policy.Snapshot{Checks: []policy.Check{least, most}, Nodes: pool(total, sick)}
		r := policy.Decide(s, epoch)
		assert.Equal(t, 100*(total-sick) >= percent*total, r.Checks[0].Allowed, "minHealthy")
		assert.Equal(t, total-(percent*total+99)/100, r.Checks[0].MaxUnhealthy, "minHealthy as a number")
		assert.Equal(t, 100*(sick-1) < percent*total, r.Checks[1].Allowed, "maxUnhealthy")

		other := policy.Snapshot{Checks: []policy.Check{down}}
		other.Checks[0].Paused, other.Checks[0].Selector, other.Checks[0].StartupTimeout = false, labels.Everything(), 0
		for i := range total {
			other.Machines = append(other.Machines, policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: fmt.Sprintf("m-%d", i)})
		}
		rounded := policy.Decide(other, epoch).Checks[0].MaxUnhealthy
		assert.Equal(t, percent*total/100, rounded)
		assert.Contains(t, []int{rounded, rounded + 1}, r.Checks[1].MaxUnhealthy)
	})
}

// TestLawStorm feeds what is to be remembered back, as the daemon does: after a
// look that found the limit exceeded nothing is done for the whole cooldown.
func TestLawStorm(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		const cooldown = 10 * time.Minute
		c := nodeCheck("c")
		c.MinHealthy, c.StormCooldown = new(intstr.FromInt32(5)), cooldown
		now, breach := epoch, time.Time{}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 5 * time.Minute, cooldown}).Draw(t, "later"))
			s := policy.Snapshot{Checks: []policy.Check{c}, Nodes: pool(8, rapid.IntRange(0, 6).Draw(t, "sick"))}
			r := policy.Decide(s, now)
			if r.Acts() {
				acted = true
				assert.True(t, breach.IsZero() || !now.Before(breach.Add(cooldown)), "acted %s after a storm", now.Sub(breach))
			}
			if !r.Checks[0].Allowed {
				breach = now
				assert.Equal(t, policy.Storm{Active: true}, r.Checks[0].Storm, "a breach is a storm and ends the cooldown")
			}
			if due := r.Checks[0].Due; !due.IsZero() {
				assert.Equal(t, due, r.Checks[0].Storm.CooldownSince.Add(cooldown))
				s.Checks[0].Storm = r.Checks[0].Storm
				assert.False(t, actsAt(s, due.Add(-1)), "nothing is done before the cooldown is over")
				assert.True(t, actsAt(s, due), "at its end work goes on")
			}
			c.Storm = r.Checks[0].Storm
		}
	})
}

func actsAt(s policy.Snapshot, now time.Time) bool {
	r := policy.Decide(s, now)
	return r.Acts()
}

// drawNodes makes a small world of NodeHealthChecks in which every rule can fire.
func drawNodes(t *rapid.T) policy.Snapshot {
	s := policy.Snapshot{Nodes: map[string]*policy.Node{}, Rules: policy.Rules{NodesCountAsMembers: true}}
	for i := range rapid.IntRange(1, 2).Draw(t, "checks") {
		s.Checks = append(s.Checks, drawNodeCheck(t, i))
	}
	if rapid.IntRange(0, 9).Draw(t, "rival") == 0 {
		s.Checks = append(s.Checks, drawCheck(t, 9))
	}
	if rapid.IntRange(0, 9).Draw(t, "upgrade") == 0 {
		s.Upgrading = "ClusterVersion version is Progressing"
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := drawNode(t, fmt.Sprintf("n-%d", i))
		if rapid.Bool().Draw(t, "long sick") {
			n.Conditions = append(policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: epoch.Add(-time.Hour)}}), n.Conditions[1:]...)
		}
		own := map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}
		if v := rapid.SampledFrom([]string{"", "", "true", "false"}).Draw(t, "exclude"); v != "" {
			own[excludeLabel] = v
		}
		n.Labels = policy.LabelsOf(own)
		n.ControlPlane = rapid.IntRange(0, 3).Draw(t, "role") == 0
		s.Nodes[n.Name] = &n
		for j := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "requests") {
			s.Requests = append(s.Requests, drawRequest(t, &n, j))
		}
		if rapid.IntRange(0, 5).Draw(t, "removed") == 0 {
			s.OpenRuns = append(s.OpenRuns, policy.OpenRun{ID: "r-" + n.Name, Node: n.Name, ControlPlane: n.ControlPlane, NodeLabels: own})
			delete(s.Nodes, n.Name)
		}
	}
	return s
}

func drawNodeCheck(t *rapid.T, i int) policy.Check {
	c := nodeCheck(fmt.Sprintf("c-%d", i))
	if rapid.Bool().Draw(t, "escalates") {
		c.Template, c.Escalation = nil, []policy.Escalation{{Template: snr, Order: 1, Timeout: time.Minute}, {Template: far, Order: 2, Timeout: time.Hour}}
	}
	if rapid.Bool().Draw(t, "selective") {
		c.Selector = labels.SelectorFromSet(labels.Set{"rack": "r1"})
	}
	if limit := rapid.SampledFrom([]string{"51%", "0%", "0%", "40%", "75%", ""}).Draw(t, "limit"); limit != "" {
		c.MinHealthy = new(intstr.FromString(limit))
	} else {
		c.MinHealthy = nil // it is Invalid
	}
	c.HealthyDelay = rapid.SampledFrom([]time.Duration{0, -1, 10 * time.Minute}).Draw(t, "delay")
	if rapid.IntRange(0, 5).Draw(t, "storms") == 0 {
		c.StormCooldown = 10 * time.Minute
		c.Storm = policy.Storm{Active: true, CooldownSince: epoch.Add(-rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "ago"))}
	}
	if rapid.IntRange(0, 9).Draw(t, "paused") == 0 {
		c.PauseRequests = []string{"backup"}
	}
	return c
}

func drawRequest(t *rapid.T, n *policy.Node, j int) policy.Request {
	p := rapid.SampledFrom([]policy.Template{snr, far}).Draw(t, "template")
	q := policy.Request{
		APIVersion: p.APIVersion, Kind: p.Kind[:len(p.Kind)-len("Template")], Namespace: "medik8s", Name: fmt.Sprintf("%s-%d", n.Name, j),
		NodeName: n.Name, ControlPlane: n.ControlPlane, Created: drawTime(t, "created"),
	}
	if owner := rapid.SampledFrom([]string{"c-0", "c-0", "c-0", "c-1", ""}).Draw(t, "owner"); owner != "" {
		q.Owners = []policy.Owner{{Kind: policy.NodeHealthCheckKind, Name: owner, UID: "uid-" + owner}}
	}
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		q.TimedOut = epoch.Add(-time.Second)
	case 1:
		q.Conditions = []policy.Condition{{Type: "Succeeded", Status: "False"}}
	case 2:
		q.HealthyDelaySince = drawTime(t, "delayed")
	}
	return q
}

// TestLawNodeNeverActs: whatever else is true, nothing is done about a Node that
// is excluded, that is not sick, or that somebody else is remedying.
func TestLawNodeNeverActs(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		s := drawNodes(t)
		if rapid.Bool().Draw(t, "acting") { // hardly any of those drawn at random is acted on
			c := nodeCheck("acting")
			c.MinHealthy, c.Selector = new(intstr.FromString("0%")), labels.SelectorFromSet(labels.Set{"pool": "sick"})
			n := pool(1, 1)["n-000"]
			n.Labels = policy.LabelsOf(map[string]string{"pool": "sick"})
			s.Checks, s.Nodes[n.Name] = append(s.Checks, c), n
		}
		r := policy.Decide(s, epoch)
		for _, c := range r.Checks {
			for _, x := range c.Targets {
				if !x.Acts() {
					continue
				}
				acted = true
				n := s.Nodes[x.Node]
				assert.NotEqual(t, "true", n.Labels.Get(excludeLabel))
				assert.False(t, n.Ready())
				assert.Empty(t, s.Upgrading)
				assert.True(t, c.Allowed)
				assert.NotNil(t, x.Template, "there is something to make the request from")
				for _, q := range s.Requests {
					if q.NodeName != n.Name {
						continue
					}
					require.NotEmpty(t, q.Owners, "a request that nobody owns")
					assert.Equal(t, c.UID, q.Owners[0].UID, "a request of another check")
					assert.NotEqual(t, x.Template.Kind, q.Kind+"Template", "a second request from one template")
				}
			}
		}
	})
}

// TestLawNodeOneMoreUnhealthy makes one healthy Node sick: no gate opens, and
// nothing is done about another Node because of it.
func TestLawNodeOneMoreUnhealthy(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawNodes(t)
		before := policy.Decide(s, epoch)
		for name, n := range s.Nodes {
			if !n.Ready() {
				continue
			}
			ill := *n
			ill.Conditions = policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown"}})
			s.Nodes[name] = &ill
			after := policy.Decide(s, epoch)
			s.Nodes[name] = n
			for i, b := range before.Checks {
				a := after.Checks[i]
				assert.LessOrEqual(t, a.RemediationsAllowed, b.RemediationsAllowed)
				assert.False(t, a.Allowed && !b.Allowed, "one more sick Node opened the gate of %s", a.Name)
				for j := range a.Targets {
					if a.Targets[j].Node != name {
						assert.False(t, a.Targets[j].Acts() && !b.Targets[j].Acts(), "%s is acted on because %s fell ill", a.Targets[j].Node, name)
					}
				}
			}
		}
	})
}

// TestLawNodeJudge: the engine's last look at one Node agrees with Decide unless
// something was added that one Node does not show.
func TestLawNodeJudge(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := drawNodes(t)
		s.OpenRuns = nil
		i := slices.IndexFunc(s.Checks, func(c policy.Check) bool { return c.Kind == policy.NodeHealthCheckKind })
		s.Checks = s.Checks[i : i+1]
		around := policy.CheckContext{Rules: s.Rules, Upgrading: s.Upgrading}
		for _, want := range policy.Decide(s, epoch).Checks[0].Targets {
			x := policy.Subject{Node: s.Nodes[want.Node]}
			for j := range s.Requests {
				if s.Requests[j].NodeName == want.Node {
					x.Requests = append(x.Requests, &s.Requests[j])
				}
			}
			got := policy.Evaluate(&s.Checks[0], around, x, epoch)
			assert.Equal(t, want.Verdict, got.Verdict)
			assert.Equal(t, want.Template, got.Template)
			assert.Subset(t, want.Refusals, got.Refusals)
		}
	})
}
