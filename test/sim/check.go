package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
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

// asker is a controller in the cluster that finds sick Machines and asks fenced to power-cycle
// them: one FencedRemediation for each, deleted when the Node is Ready again. It also changes its
// mind in mid-run, and asks anew. Guarded by the world's mutex.
type asker struct {
	silent  map[string]time.Time // by host: it does not ask before
	deleted map[string]time.Time // by UID
	told    map[string]time.Time // by UID: when a request was first seen answered
	lost    map[string]bool      // by UID: fenced says that it does not know the run that held it
}

func newAsker() asker {
	return asker{silent: map[string]time.Time{}, deleted: map[string]time.Time{}, told: map[string]time.Time{}, lost: map[string]bool{}}
}

// answeredFor is how long an answered request stays if its Node does not become Ready.
const answeredFor = 2 * time.Minute

// tickAsks lets the controller look at every host. w.mu is held.
func (w *World) tickAsks(now time.Time) {
	if !w.plan.Requests {
		return
	}
	for _, h := range w.hosts {
		name := "m-" + h.Name
		q := w.api.Asked[name]
		switch {
		case q == nil && w.needsHelp(h, now):
			w.api.Ask(name, nil)
			w.note(h.Name, "request %s asks for it", w.api.Asked[name].UID)
			w.outcome.Actions["requests"]++
		case q != nil && !q.Deleting:
			w.mayWithdraw(h, q, now)
		}
	}
}

// needsHelp says whether the controller asks for a host. w.mu is held.
func (w *World) needsHelp(h *host, now time.Time) bool {
	if h.Gone || w.api.Machines[h.Name] == nil || now.Before(w.asks.silent[h.Name]) {
		return false
	}
	n := w.api.Nodes[h.Name]
	if n == nil {
		return !w.plan.Forgets || w.calm // in the calm a person asks for what was forgotten
	}
	return n.Ready != "True" && now.Sub(n.Since) > map[string]time.Duration{"Unknown": unknownFor, "False": falseFor}[n.Ready]
}

// mayWithdraw deletes a request that is no longer needed, and in the storm one that is, or gives
// it up. w.mu is held.
func (w *World) mayWithdraw(h *host, q *policy.Request, now time.Time) {
	n, answered := w.api.Nodes[h.Name], q.Power.Answered()
	if answered && w.asks.told[q.UID].IsZero() {
		w.asks.told[q.UID] = now
	}
	changes := !w.calm && !answered && w.rng.Float64() < w.plan.Withdraws/3600
	switch {
	case w.api.Machines[h.Name] == nil, n != nil && n.Ready == "True" && !changes:
		w.withdraw(h, q, 0)
	case n == nil && w.plan.Forgets && !w.calm:
		w.outcome.Actions["requests deleted with their Node"]++
		w.withdraw(h, q, 0)
	case w.calm && !q.TimedOut.IsZero() && now.Sub(q.TimedOut) > answeredFor: // it asks anew: nobody has repaired the host
		w.withdraw(h, q, 0)
	case answered && now.Sub(w.asks.told[q.UID]) > answeredFor:
		w.withdraw(h, q, between(w.rng, time.Second, 3*time.Minute))
	case changes && w.rng.IntN(3) == 0 && q.TimedOut.IsZero():
		w.fault("request-given-up", h.Name, "%s", q.UID)
		w.api.ChangeRequest(q.Name, func(q *policy.Request) { q.TimedOut = now })
	case changes:
		w.fault("request-withdrawn", h.Name, "%s", q.UID)
		w.withdraw(h, q, between(w.rng, 0, 8*time.Minute))
	}
}

// withdraw deletes a request; the controller does not ask again for a while. w.mu is held.
func (w *World) withdraw(h *host, q *policy.Request, silent time.Duration) {
	w.note(h.Name, "request %s is deleted", q.UID)
	w.asks.silent[h.Name] = time.Now().Add(silent)
	w.asks.deleted[q.UID] = time.Now()
	w.api.Withdraw(q.Name)
}

// requests is what one fenced writes to the requests; it implements engine.Requests. A write may
// be lost, or carried out without an answer.
type requests struct{ kube }

// SetFinalizer implements engine.Requests.
func (r requests) SetFinalizer(ctx context.Context, ref remediate.Request, run string) error {
	w := r.inc.i.w
	return r.exchange(ctx, "hold", func(s *fake.State) error {
		if w.defect.HoldsNoRequests {
			return nil
		}
		return s.HoldRequest(ref, run)
	})
}

// TemplateAttempts implements engine.Requests: no check of the simulation has a template of fenced.
func (requests) TemplateAttempts(context.Context, *policy.Check, policy.Template, remediate.Target) (int, error) {
	return 0, nil
}

// RemoveFinalizer implements engine.Requests.
func (r requests) RemoveFinalizer(ctx context.Context, ref remediate.Request, heldBy string) error {
	return r.exchange(ctx, "release", func(s *fake.State) error {
		r.inc.i.w.auditReleased(r.inc, ref)
		s.ReleaseRequest(ref, heldBy)
		return nil
	})
}

// Report implements engine.Requests.
func (r requests) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	return r.exchange(ctx, "report", func(s *fake.State) error {
		r.inc.i.w.auditReported(r.inc, ref, told)
		r.inc.i.w.asks.lost[ref.UID] = told.Lost
		s.ReportRequest(ref, told)
		return nil
	})
}

// ClearStale implements engine.Requests.
func (r requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	err = r.exchange(ctx, "clear", func(s *fake.State) error { removed = s.ClearStaleRequest(t); return nil })
	return removed, err
}
