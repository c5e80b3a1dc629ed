package scene

import (
	"context"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
