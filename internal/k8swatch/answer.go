package k8swatch

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenced/fenced/internal/remediate"
)

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
