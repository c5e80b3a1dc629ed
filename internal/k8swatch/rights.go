package k8swatch

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/remediate"
)

// mayIsolate asks the API server whether this user may isolate the Node of a run that waits because
// it could not: the next try powers the host off again, which is in vain without the right. An
// error is one of kind Forbidden if not.
func (l *looker) mayIsolate(ctx context.Context) error {
	r := l.run
	if !r.WaitsToIsolate() {
		return nil
	}
	verb := "delete"
	if r.Isolation == remediate.IsolateTaint {
		verb = "patch"
	}
	review, err := l.work.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Name: r.Target.Node},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask for the right to %s Node %s: %w", verb, r.Target.Node, err)
	}
	if !review.Status.Allowed {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, r.Target.Node, fmt.Errorf("this user may not %s Nodes", verb))
	}
	return nil
}
