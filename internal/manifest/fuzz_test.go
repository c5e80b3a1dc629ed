package manifest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// FuzzDecode: whatever the input, decoding and judging end, give the same
// answer twice, and never act on a target of an input that has errors of the
// kind that may hide its Node.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("../policy/testdata/*.txtar")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(txtar.Parse(data).Files[1].Data)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var o manifest.Objects
		if err := o.Add("in", data); err != nil {
			assert.ErrorIs(t, err, manifest.ErrUnreadable)
			return
		}
		s := o.Snapshot()
		r := policy.Decide(s, now)
		assert.Equal(t, r, policy.Decide(o.Snapshot(), now))
		for _, c := range r.Checks {
			assert.LessOrEqual(t, c.Healthy, c.Expected)
			counted := 0
			for _, target := range c.Targets {
				if target.Verdict != policy.Skipped {
					counted++
				}
				if target.Reason == reason.NodeNotFound {
					assert.NotContains(t, s.Undecoded, policy.ObjectKey{}, "a Node was taken for gone in spite of what could not be read")
				}
			}
			assert.Equal(t, counted, c.Expected)
		}
	})
}

func FuzzDecodePolicies(f *testing.F) {
	f.Add([]byte(policyFile))
	f.Add([]byte(ownKinds))
	f.Add([]byte(on(`maintenanceWindows: [{schedule: "CRON_TZ=UTC", duration: 1h}]`)))
	f.Add([]byte(nodeCheckFile))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := manifest.DecodePolicies("in", data)
		if err != nil {
			assert.Empty(t, found)
			return
		}
		for _, b := range found.Budgets {
			assert.Empty(t, b.Invalid)
		}
		for _, c := range found.Checks {
			state, message := c.State()
			assert.Contains(t, []policy.State{policy.StateActive, policy.StatePaused}, state, message)
		}
	})
}
