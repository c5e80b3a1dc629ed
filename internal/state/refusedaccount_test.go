package state_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
)

// A record that cannot be read does not stop the start of a daemon, and is overwritten.
func TestRefusalsThatCannotBeRead(t *testing.T) {
	s := openStore(t)
	saved, err := state.SaveRefusedAccounts(t.Context(), s, state.RefusedAccounts{Instance: "a", Accounts: []state.RefusedAccount{{Service: "x", User: "u"}}})
	require.NoError(t, err)
	loaded, err := state.LoadRefusedAccounts(t.Context(), s, "a")
	require.NoError(t, err)
	assert.Equal(t, saved, loaded)

	meta, err := s.List(t.Context(), state.KindMeta)
	require.NoError(t, err)
	for _, r := range meta {
		if r.Version == saved.Version {
			r.Data = []byte("?")
			_, err := s.Put(t.Context(), r)
			require.NoError(t, err)
		}
	}
	loaded, err = state.LoadRefusedAccounts(t.Context(), s, "a")
	require.NoError(t, err)
	assert.Empty(t, loaded.Accounts)
	assert.NotEqual(t, saved.Version, loaded.Version)
	_, err = state.SaveRefusedAccounts(t.Context(), s, loaded)
	require.NoError(t, err)
}
