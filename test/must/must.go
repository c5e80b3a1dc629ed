// Package must shortens what tests do most: to require that a call succeeds.
package must

import "github.com/stretchr/testify/require"

// Do requires that a call succeeds, and gives what it returned: must.Do(os.ReadFile(path))(t).
func Do[T any](v T, err error) func(require.TestingT) T {
	return func(t require.TestingT) T {
		if h, ok := t.(interface{ Helper() }); ok {
			h.Helper()
		}
		require.NoError(t, err)
		return v
	}
}
