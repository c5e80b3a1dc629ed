package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// login gives n-1's BMC an account.
func (w *world) login(password string) {
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[0].Devices[0]
		d.Username, d.Password = "fence", bmc.NewSecret(password)
	})
}

// markOf is what is kept of a password of the host's account.
func markOf(w *world, salt, password string) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + w.Entry().Levels[0].Devices[0].Service() + "\x00fence\x00" + password))
	return hex.EncodeToString(sum[:1])
}

// A daemon that restarts often does not lock the account by trying a wrong password at
// each start. A corrected password is tried at once.
func TestRefusedAccountOutlivesRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.login("wrong-4711")
		w.FailReads(refusedAccount())
		_, _, stop := start(t, w, store, nil)
		time.Sleep(70 * time.Second)
		stop()
		first := w.Reads()
		require.Positive(t, first)
		for range 20 {
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Second)
			gate(t, e, "BMCAuth")
			stop()
		}
		assert.Equal(t, first, w.Reads(), "in the 5 minutes after it was refused")
		kept, err := state.LoadRefusedAccounts(t.Context(), store, "")
		require.NoError(t, err)
		require.Len(t, kept.Accounts, 1)
		text, err := json.Marshal(kept)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "4711")
		assert.Len(t, kept.Accounts[0].Mark, 2, "one byte")

		mended := "mended"
		for markOf(w, kept.Accounts[0].Salt, mended) == kept.Accounts[0].Mark { // one in 256 is taken for the old one
			mended += "!"
		}
		w.login(mended)
		w.FailReads(nil)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(20 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// The account is tried again after the pause. A clock that was set back does not extend
// the pause.
func TestRefusedAccountIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.login("wrong")
		service := w.Entry().Levels[0].Devices[0].Service()
		_, err := state.SaveRefusedAccounts(t.Context(), store, state.RefusedAccounts{Accounts: []state.RefusedAccount{{
			Service: service, User: "fence", Kind: string(bmc.KindAuth), Salt: "s", Mark: markOf(w, "s", "wrong"), Until: time.Now().Add(24 * time.Hour),
		}}})
		require.NoError(t, err)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(4 * time.Minute)
		gate(t, e, "BMCAuth")
		require.Empty(t, e.Runs("c"))
		time.Sleep(3 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		stop()
	})
}
