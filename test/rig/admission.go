package rig

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Forbid makes the API server refuse every change that gives a Node an annotation, as an
// administrator's policy may. It returns when the server does so. allow ends that.
func (c *ControlPlane) Forbid(ctx context.Context, node, annotation, message string) (allow func(context.Context) error, err error) {
	name := "forbid-" + node
	policies, bindings := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), c.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{node},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("!has(object.metadata.annotations) || !(%q in object.metadata.annotations)", annotation), Message: message,
			}},
		},
	}
	if _, err := createWhileBusy(ctx, func() (*admissionv1.ValidatingAdmissionPolicy, error) {
		return policies.Create(ctx, policy, metav1.CreateOptions{})
	}, func() (*admissionv1.ValidatingAdmissionPolicy, error) {
		return policies.Get(ctx, name, metav1.GetOptions{})
	}); err != nil {
		return nil, fmt.Errorf("create the policy %s: %w", name, err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := createWhileBusy(ctx, func() (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
		return bindings.Create(ctx, binding, metav1.CreateOptions{})
	}, func() (*admissionv1.ValidatingAdmissionPolicyBinding, error) {
		return bindings.Get(ctx, name, metav1.GetOptions{})
	}); err != nil {
		return nil, fmt.Errorf("bind the policy %s: %w", name, err)
	}
	allow = func(ctx context.Context) error {
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("unbind the policy %s: %w", name, err)
		}
		return c.awaitAdmission(ctx, node, annotation, false)
	}
	return allow, c.awaitAdmission(ctx, node, annotation, true)
}

// awaitAdmission waits until the API server refuses, or accepts, the annotation on a Node.
func (c *ControlPlane) awaitAdmission(ctx context.Context, node, annotation string, refused bool) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"tried"}}}`, annotation)
	for {
		_, err := c.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != refused && (err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for what Node %s may be given: %w", node, ctx.Err())
		}
	}
}
