package k8swatch

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/remediate"
)

// gone says whether the API server itself answered that the object of this name
// does not exist. A 404 from a proxy or from an API group that is not served
// says nothing about the object, and a Node must never be taken for deleted on
// the word of an error page. // I2
func gone(err error, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == name
}

// refused says whether the API server, or who admits writes for it, will not have a
// write as it is.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// apiState condenses what went wrong: a refusal of the API is another case
// than its silence.
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
