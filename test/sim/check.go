package sim

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// The timeouts of every check of the world.
const (
	unknownFor = time.Minute
	falseFor   = 3 * time.Minute
)

// sickness returns the conditions of all checks.
func sickness(timeout string) []any {
	return []any{
		map[string]any{"type": "Ready", "status": "Unknown", timeout: unknownFor.String()},
		map[string]any{"type": "Ready", "status": "False", timeout: falseFor.String()},
	}
}

// newCheck returns the one check of the cluster, decoded as the daemon does. A nil selector selects all.
func (p Plan) newCheck(selector map[string]any) *policy.Check {
	if p.Escalates {
		return p.newEscalation(selector)
	}
	if p.Limit > 0 {
		return p.newLimited(selector)
	}
	annotations, spec := map[string]any{"machine.openshift.io/remediation-strategy": "external-baremetal"}, map[string]any{"nodeStartupTimeout": "0s", "unhealthyConditions": sickness("timeout")}
	if spec["selector"] = selector; selector == nil {
		spec["selector"] = map[string]any{}
	}
	if p.Others {
		annotations, spec["remediationTemplate"] = map[string]any{"cluster.x-k8s.io/paused": "", "fenced.io/evaluator": "fenced"}, templateOf("example.com/v1", "Reboot")
	}
	c := manifest.MachineHealthCheck(map[string]any{
		"apiVersion": policy.OpenShiftMachineAPI, "kind": policy.MachineHealthCheckKind,
		"metadata": map[string]any{"namespace": fake.Namespace, "name": "all", "uid": "check-all", "annotations": annotations}, "spec": spec,
	})
	return &c
}

// newLimited is a NodeHealthCheck with a limit.
func (p Plan) newLimited(selector map[string]any) *policy.Check {
	c := manifest.NodeHealthCheck(map[string]any{
		"apiVersion": policy.Medik8sAPI, "kind": policy.NodeHealthCheckKind,
		"metadata": map[string]any{"name": "all", "uid": "check-all", "annotations": map[string]any{"fenced.io/evaluator": "fenced"}},
		"spec": map[string]any{"selector": named(selector), "maxUnhealthy": int64(p.Limit), "unhealthyConditions": sickness("duration"),
			"remediationTemplate": templateOf(policy.FencedAPI, policy.FencedRemediationKind)},
	})
	return &c
}

// named is the selector of a check of Nodes. A nil selector selects all.
func named(selector map[string]any) map[string]any {
	if selector == nil {
		selector = map[string]any{"matchExpressions": []any{map[string]any{"key": "hostname", "operator": "Exists"}}}
	}
	return selector
}

// newEscalation is a NodeHealthCheck that was handed over, with several templates.
func (p Plan) newEscalation(selector map[string]any) *policy.Check {
	rungs := []any{rung(1, "2m", templateOf("example.com/v1", "Reboot")), rung(2, "3m", templateOf("example.com/v1", "Replace"))}
	if p.FencesLast {
		rungs = append(rungs, rung(3, "10m", templateOf(policy.FencedAPI, policy.FencedRemediationKind)))
	}
	c := manifest.NodeHealthCheck(map[string]any{
		"apiVersion": policy.Medik8sAPI, "kind": policy.NodeHealthCheckKind,
		"metadata": map[string]any{"name": "all", "uid": "check-all", "annotations": map[string]any{"fenced.io/evaluator": "fenced"}},
		"spec":     map[string]any{"selector": named(selector), "minHealthy": "0%", "unhealthyConditions": sickness("duration"), "escalatingRemediations": rungs},
	})
	return &c
}

func rung(order int64, timeout string, template map[string]any) map[string]any {
	return map[string]any{"order": order, "timeout": timeout, "remediationTemplate": template}
}

func templateOf(apiVersion, kind string) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind + "Template", "namespace": fake.Namespace, "name": "t"}
}

// newEmpty is a check of an API family in which an empty selector selects nothing. // I18
func newEmpty() *policy.Check {
	c := manifest.NodeHealthCheck(map[string]any{
		"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": policy.NodeHealthCheckKind,
		"metadata": map[string]any{"name": "empty", "uid": "check-empty"},
		"spec": map[string]any{"selector": map[string]any{}, "minHealthy": "0%", "unhealthyConditions": sickness("duration"),
			"remediationTemplate": templateOf(policy.FencedAPI, policy.FencedRemediationKind)},
	})
	return &c
}

// addCheck creates the check: what is not Ready for a minute is power-cycled. It
// also creates a check that selects nothing.
func (w *World) addCheck() {
	w.check = w.plan.newCheck(nil)
	w.api.ShowCheck(w.check)
	w.api.ShowCheck(newEmpty())
}

// policyFiles is the maximum number of policies that are added to policies.d.
const policyFiles = 3

// mayAddPolicy adds a policy to policies.d, at random, because a host hangs. w.mu
// is held.
func (w *World) mayAddPolicy() {
	if len(w.files) >= policyFiles || w.pen.Float64() >= w.plan.Policies/3600 {
		return
	}
	h, _ := w.pickHosts()
	if h.On && !h.Gone {
		h.Hang(time.Time{})
		w.fault("kernel-hang", h.Name, "and a policy is to be made for it")
	}
	w.after(between(w.pen, 20*time.Second, 2*time.Minute), func() { w.do(func() { w.addPolicy(h) }) })
}

// addPolicy adds a policy for a host, and restarts every fenced. w.mu is
// held. // I18
func (w *World) addPolicy(h *host) {
	name := fmt.Sprintf("more-%d", len(w.files)+1)
	found, err := manifest.DecodePolicies(name+".yaml", fmt.Appendf(nil, `
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: %s}
spec:
  nodeSelector: {matchLabels: {hostname: %s}}
  unhealthyConditions:
    - {type: Ready, status: Unknown, timeout: %s}
    - {type: Ready, status: "False", timeout: %s}
  strategy: PowerCycle
`, name, h.Name, unknownFor, falseFor))
	if err != nil || len(found.Checks) != 1 {
		panic(fmt.Sprintf("sim: a policy does not decode: %v", err)) // a bug of this package
	}
	w.files = append(w.files, found.Checks[0])
	w.fault("policies.d-grows", h.Name, "by %s", name)
	w.reconfigure()
}

// recordPolicies records which policies a fenced that has just started may act
// on. w.mu is held.
func (w *World) recordPolicies(c *incarnation) {
	for _, name := range c.knows.files {
		if w.ledger.scopes[name].IsZero() {
			w.ledger.scopes[name] = c.since
		}
	}
}

// newPolicies returns the policies on which this fenced may act, but no fenced
// could act a quiet period ago. w.mu is held. // I18
func (c *incarnation) newPolicies(now time.Time) string {
	w := c.i.w
	for _, name := range c.knows.files {
		if now.Sub(w.ledger.scopes[name]) < w.plan.guards().QuietPeriod {
			return name
		}
	}
	return ""
}

// fileChecks are those of policies.d as this process has read them. w.mu is held.
func (c *incarnation) fileChecks() (list []policy.Check) {
	return append(list, c.i.w.files[:len(c.knows.files)]...)
}
