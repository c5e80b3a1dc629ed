package k8swatch

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// isGone reports whether the API server itself answered that the object of this
// name does not exist. A 404 from a proxy, or from an API group that is not
// served, says nothing about the object. An error page must never make a Node
// count as deleted. // I2
func isGone(err error, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == name
}

// isRefused reports whether the API server or an admission webhook rejected a
// write because of its content.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// apiState summarizes errors: a refusal by the API is different from no answer.
func apiState(errs []error) remediate.APIState {
	shut := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
	switch {
	case len(errs) == 0:
		return remediate.APIReachable
	case slices.ContainsFunc(errs, shut):
		return remediate.APIForbidden
	}
	return remediate.APIUnreachable
}
