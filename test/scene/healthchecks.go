package scene

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/test/rig"
)

// HealthCheckUser is the user of the stand-in for OpenShift's controller of MachineHealthChecks.
const HealthCheckUser = "stand-in-machine-healthcheck"

// RunHealthChecks runs a stand-in for OpenShift's controller of MachineHealthChecks (machine-api-operator 9511961) until the
// scene ends. It holds the controller's leader Lease, leaves paused checks alone, and asks for
// every unhealthy Machine within maxUnhealthy what its check says: an object made from the
// remediation template, with the rights of groups; the annotation for the bare-metal actuator; or
// the deletion of a Machine that a controller owns. It deletes the object when the Machine is
// healthy, and never removes the annotation.
func (s *Scene) RunHealthChecks(ctx context.Context, groups ...string) error {
	if err := s.leads(ctx, "cluster-api-provider-healthcheck-leader", HealthCheckUser); err != nil {
		return err
	}
	return s.runStandIn(HealthCheckUser, groups, func(ctx context.Context, c standIn) {
		checks, err := c.dynamic.Resource(rig.CheckResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}
		for _, check := range checks.Items {
			if _, paused := check.GetAnnotations()["cluster.x-k8s.io/paused"]; !paused {
				c.healthCheck(ctx, check)
			}
		}
	})
}

// leads makes a stand-in hold a leader Lease for longer than any test.
func (s *Scene) leads(ctx context.Context, lease, user string) error {
	return s.Management.PutLease(ctx, rig.Lease{Namespace: rig.Namespace, Name: lease, Holder: user, Duration: time.Hour})
}

// healthCheck is one pass over one check.
func (c standIn) healthCheck(ctx context.Context, check unstructured.Unstructured) {
	machines, ok := c.list(ctx, rig.MachineResource, selectorOf(check))
	if !ok {
		return
	}
	var sick []unstructured.Unstructured
	healthy := 0
	for _, m := range machines {
		unhealthy, known := c.unhealthy(ctx, m, check)
		_, requested := m.GetAnnotations()[Requested]
		switch {
		case !known:
			return // an error other than "not found" ends the pass
		case unhealthy:
			sick = append(sick, m)
		case !requested && m.GetDeletionTimestamp() == nil:
			healthy++
			c.clear(ctx, m, check)
		}
	}
	if len(machines)-healthy > limitOf(check, len(machines)) {
		return
	}
	for _, m := range sick {
		c.remediate(ctx, m, check)
	}
}

// unhealthy reports whether a check wants a Machine remediated now.
func (c standIn) unhealthy(ctx context.Context, m, check unstructured.Unstructured) (unhealthy, known bool) {
	name, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	node, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, true
	}
	return err == nil && unhealthySince(node, check, "timeout"), err == nil
}

// remediate asks for one Machine.
func (c standIn) remediate(ctx context.Context, m, check unstructured.Unstructured) {
	template, found, _ := unstructured.NestedMap(check.Object, "spec", "remediationTemplate")
	switch {
	case found:
		_ = c.clone(ctx, template, m.GetName(), func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(map[string]string{"machine.openshift.io/cloned-from-name": template["name"].(string)})
			obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: m.GetAPIVersion(), Kind: m.GetKind(), Name: m.GetName(), UID: m.GetUID()}})
		})
	case check.GetAnnotations()[rig.StrategyAnnotation] == rig.BareMetalStrategy:
		if _, requested := m.GetAnnotations()[Requested]; !requested {
			_ = annotate(ctx, c.dynamic, rig.MachineResource, m.GetName(), map[string]any{Requested: ""})
		}
	case metav1.GetControllerOf(&m) != nil && m.GetDeletionTimestamp() == nil:
		_ = c.dynamic.Resource(rig.MachineResource).Namespace(rig.Namespace).Delete(ctx, m.GetName(), metav1.DeleteOptions{})
	}
}

// clear deletes the object that was made for a Machine that is healthy.
func (c standIn) clear(ctx context.Context, m, check unstructured.Unstructured) {
	template, found, _ := unstructured.NestedMap(check.Object, "spec", "remediationTemplate")
	if !found {
		return
	}
	request := resourceOf(template["apiVersion"].(string), strings.TrimSuffix(template["kind"].(string), "Template"))
	_ = c.requests.Resource(request).Namespace(rig.Namespace).Delete(ctx, m.GetName(), metav1.DeleteOptions{})
}

// limitOf is maxUnhealthy of a check with so many Machines.
func limitOf(check unstructured.Unstructured, machines int) int {
	value, _, _ := unstructured.NestedFieldNoCopy(check.Object, "spec", "maxUnhealthy")
	switch v := value.(type) {
	case int64:
		return int(v)
	case string:
		number, percent := strings.CutSuffix(v, "%")
		n, err := strconv.Atoi(number)
		if err == nil && percent {
			return n * machines / 100
		}
		return n
	}
	return machines
}

// NodeHealthCheckUser is the user of the stand-in for medik8s' controller of NodeHealthChecks.
const NodeHealthCheckUser = "stand-in-node-healthcheck"

// What NodeHealthCheck writes on a request.
const (
	ofNode   = "remediation.medik8s.io/node-name"
	timedOut = "remediation.medik8s.io/nhc-timed-out"
)

// RunNodeHealthChecks runs a stand-in for medik8s' controller of NodeHealthChecks until the scene
// ends. While enough Nodes are healthy, it takes medik8s' Lease on an unhealthy Node, and makes a
// request from the first template, with the rights of groups. It goes on to the next template when a
// request says that it failed, or after the template's time, and then marks the request as timed out.
// It deletes the requests of a Node that is healthy, and those of a Node that is gone, unless its remediator
// says PermanentNodeDeletionExpected and has not succeeded yet; a Node that is gone counts nowhere, and is
// never escalated (node-healthcheck-operator dd44432). It needs medik8s' namespace of Leases.
func (s *Scene) RunNodeHealthChecks(groups ...string) error {
	return s.runStandIn(NodeHealthCheckUser, groups, func(ctx context.Context, c standIn) {
		checks, _ := c.list(ctx, rig.NodeCheckResource, labels.Everything())
		for _, check := range checks {
			c.nodeHealthCheck(ctx, check)
		}
	})
}

// escalation is one of the templates of a NodeHealthCheck.
type escalation struct {
	order    int64
	template map[string]any
	timeout  time.Duration // 0: none
}

func escalations(check unstructured.Unstructured) (all []escalation) {
	if one, found, _ := unstructured.NestedMap(check.Object, "spec", "remediationTemplate"); found {
		return []escalation{{template: one}}
	}
	list, _, _ := unstructured.NestedSlice(check.Object, "spec", "escalatingRemediations")
	for _, item := range list {
		m := item.(map[string]any) // the API server refuses anything else
		timeout, _ := time.ParseDuration(m["timeout"].(string))
		all = append(all, escalation{m["order"].(int64), m["remediationTemplate"].(map[string]any), timeout})
	}
	slices.SortFunc(all, func(a, b escalation) int { return cmp.Compare(a.order, b.order) })
	return all
}

// nodeHealthCheck is one pass over one check.
func (c standIn) nodeHealthCheck(ctx context.Context, check unstructured.Unstructured) {
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selectorOf(check).String()})
	if err != nil {
		return
	}
	requests, ok := c.requestsOf(ctx, check)
	if !ok {
		return
	}
	var sick []*corev1.Node
	wanted, exists, healthy := map[string]bool{}, map[string]bool{}, 0
	for i := range nodes.Items {
		exists[nodes.Items[i].Name] = true
		switch n := &nodes.Items[i]; {
		case unhealthySince(n, check, "duration"):
			wanted[n.Name] = true
			sick = append(sick, n)
		case !IsReady(n): // it may get unhealthy: its request stays
			wanted[n.Name] = true
		case len(requests[n.Name]) == 0:
			healthy++
		}
	}
	for node, its := range requests {
		for _, r := range its {
			awaited := !exists[node] && conditionOf(r, "PermanentNodeDeletionExpected") == "True" && conditionOf(r, "Succeeded") != "True"
			if !wanted[node] && !awaited && r.GetDeletionTimestamp() == nil {
				_ = c.requests.Resource(resourceOf(r.GetAPIVersion(), r.GetKind())).Namespace(rig.Namespace).Delete(ctx, r.GetName(), metav1.DeleteOptions{})
			}
		}
	}
	for _, n := range sick {
		if enough := healthy >= minHealthy(check, len(nodes.Items)); enough || len(requests[n.Name]) > 0 {
			c.escalate(ctx, check, n, requests[n.Name])
		}
	}
}

// requestsOf are the requests of a check by Node, the oldest first.
func (c standIn) requestsOf(ctx context.Context, check unstructured.Unstructured) (map[string][]unstructured.Unstructured, bool) {
	all := map[string][]unstructured.Unstructured{}
	for _, e := range escalations(check) {
		kind := strings.TrimSuffix(e.template["kind"].(string), "Template")
		list, err := c.requests.Resource(resourceOf(e.template["apiVersion"].(string), kind)).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, false
		}
		for _, r := range list.Items {
			if node := r.GetAnnotations()[ofNode]; len(r.GetOwnerReferences()) > 0 && r.GetOwnerReferences()[0].UID == check.GetUID() {
				all[node] = append(all[node], r)
			}
		}
	}
	return all, true
}

// escalate makes the first request for a Node, or the one that follows the last one.
func (c standIn) escalate(ctx context.Context, check unstructured.Unstructured, n *corev1.Node, made []unstructured.Unstructured) {
	steps := escalations(check)
	if len(made) > 0 {
		last := made[len(made)-1]
		e := steps[len(made)-1]
		late := e.timeout > 0 && time.Since(last.GetCreationTimestamp().Time) > e.timeout
		if last.GetDeletionTimestamp() != nil || !late && conditionOf(last, "Succeeded") != "False" {
			return
		}
		if conditionOf(last, "Succeeded") != "True" && last.GetAnnotations()[timedOut] == "" {
			_ = annotate(ctx, c.requests, resourceOf(last.GetAPIVersion(), last.GetKind()), last.GetName(),
				map[string]any{timedOut: time.Now().UTC().Format(time.RFC3339)})
			return
		}
	}
	if len(made) == len(steps) || !c.lease(ctx, check, n) {
		return
	}
	e := steps[len(made)]
	_ = c.clone(ctx, e.template, n.Name+"-"+string(n.UID)[:5], func(obj *unstructured.Unstructured) {
		obj.SetAnnotations(map[string]string{ofNode: n.Name, "remediation.medik8s.io/template-name": e.template["name"].(string)})
		obj.SetLabels(map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"})
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: check.GetAPIVersion(), Kind: check.GetKind(), Name: check.GetName(), UID: check.GetUID()}})
	})
}

// lease takes medik8s' Lease on a Node, unless another holds it. The Node owns the Lease.
func (c standIn) lease(ctx context.Context, check unstructured.Unstructured, n *corev1.Node) bool {
	holder, seconds, now := "NodeHealthCheck-"+check.GetName(), int32(660), metav1.NewMicroTime(time.Now())
	leases := c.typed.CoordinationV1().Leases("medik8s-leases")
	_, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err == nil
	}
	has, err := leases.Get(ctx, "node-"+n.Name, metav1.GetOptions{})
	return err == nil && has.Spec.HolderIdentity != nil && *has.Spec.HolderIdentity == holder
}

// minHealthy is spec.minHealthy of a check with so many Nodes: a percentage is rounded up.
func minHealthy(check unstructured.Unstructured, nodes int) int {
	text, _, _ := unstructured.NestedString(check.Object, "spec", "minHealthy")
	n, _ := strconv.Atoi(strings.TrimSuffix(text, "%"))
	return (n*nodes + 99) / 100
}

// conditionOf is the status of a condition of a request.
func conditionOf(obj unstructured.Unstructured, kind string) string {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		if m, _ := item.(map[string]any); m["type"] == kind {
			status, _ := m["status"].(string)
			return status
		}
	}
	return ""
}
