package bmctest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// Read returns a reading that must succeed.
func Read(t *testing.T, p bmc.Power) bmc.Reading {
	t.Helper()
	r, err := p.Read(t.Context())
	require.NoError(t, err)
	return r
}

// Failed asserts that err is a typed error of this kind, and returns it. The passwords of the tests
// contain "secret", and no error may. // I25
func Failed(t *testing.T, err error, kind bmc.Kind) *bmc.Error {
	t.Helper()
	require.Error(t, err)
	e, ok := errors.AsType[*bmc.Error](err)
	require.True(t, ok, "%T is not a *bmc.Error", err)
	assert.Equal(t, kind, e.Kind, "%v", err)
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		assert.NotContains(t, cause.Error(), "secret", "I25")
	}
	return e
}
