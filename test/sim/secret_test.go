package sim

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A password is found as it is and in what JSON makes of bytes, wherever it stands in
// them; what holds none is not taken for one.
func TestPasswordsAreFound(t *testing.T) {
	forms := markers(Plan{Seed: 7}.marker())
	found := func(text string) (found bool) {
		for _, form := range forms {
			found = found || strings.Contains(text, form)
		}
		return found
	}
	w := &World{plan: Plan{Seed: 7}}
	for before := range 7 {
		said := strings.Repeat("b", before) + w.password("n-1").Reveal() + "\n"
		record, err := json.Marshal(map[string][]byte{"node": []byte(said)})
		require.NoError(t, err)
		assert.True(t, found(said))
		assert.True(t, found(string(record)), "%d bytes before it", before)
		assert.True(t, found(base64.RawURLEncoding.EncodeToString([]byte(said))))
	}
	other := &World{plan: Plan{Seed: 8}}
	assert.False(t, found(other.password("n-1").Reveal()))
	assert.False(t, found(w.password("n-1").String()))
}
