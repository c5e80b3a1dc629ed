package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// gatesOf are the gates of a Node by name.
func gatesOf(t *testing.T, e *engine.Engine, node string) map[string]reason.Gate {
	t.Helper()
	x, err := e.Explain(t.Context(), "c", node)
	require.NoError(t, err)
	byName := map[string]reason.Gate{}
	for _, g := range x.Gates {
		byName[g.Name] = g
	}
	return byName
}

// Before anything was read, explain says so, and does not call a BMC usable that nobody has asked.
func TestExplainSaysWhatWasNotChecked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(5 * time.Second)
		gates := gatesOf(t, e, "n-1")
		for _, name := range []string{"host", "identity", "contested", "powerOwner", "nodeAlive"} {
			g := gates[name]
			assert.True(t, g.Pass && g.Unchecked, "%s: %+v", name, g)
			assert.Contains(t, g.Value, "not checked yet")
		}
		assert.False(t, gates["pause"].Unchecked)
		stop()
	})
}

// Once a probe has read the target, nothing is unchecked. A probe whose BMC does not answer reads
// nothing else.
func TestExplainOfAProbedTarget(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gates := gatesOf(t, e, "n-1")
		assert.Equal(t, reason.Contested, gates["contested"].Reason)
		for name, g := range gates {
			assert.False(t, g.Unchecked, name)
		}
		w.FailReads(noAnswer())
		time.Sleep(2 * time.Minute)
		gates = gatesOf(t, e, "n-1")
		assert.Equal(t, reason.Code("BMCUnreachable"), gates["host"].Reason)
		assert.False(t, gates["host"].Unchecked)
		assert.True(t, gates["identity"].Unchecked)
		assert.True(t, gates["contested"].Unchecked)
		stop()
	})
}

// explain of a host that was not probed agrees with the BMC health check, level by level.
func TestExplainAgreesWithTheHealthCheck(t *testing.T) {
	at := time.Date(2000, 1, 1, 0, 0, 4, 0, time.UTC)
	ok := func(level int) hosts.LastCheck {
		return hosts.LastCheck{Level: level, At: at, Power: bmc.On, Identity: guard.IdentityMatches, UUID: hostUUID}
	}
	failed := func(level int, code reason.Code) hosts.LastCheck {
		return hosts.LastCheck{Level: level, At: at, Reason: code, Problem: "the account is refused"}
	}
	other := ok(0)
	other.Identity, other.UUID = guard.IdentityDiffers, "4c4c4544-0042-3510-8054-ffffffffffff"
	unproven := ok(0)
	unproven.Identity, unproven.UUID = guard.IdentityUnproven, ""
	for name, tc := range map[string]struct {
		last           []hosts.LastCheck
		host, identity reason.Code
		unchecked      bool
		value          string
	}{
		"nothing is known":            {nil, "", "", true, "c/n-1: the BMC is not checked yet"},
		"not checked yet":             {[]hosts.LastCheck{{Level: 0}, {Level: 1}}, "", "", true, "c/n-1: the BMC is not checked yet"},
		"good":                        {[]hosts.LastCheck{ok(0), ok(1)}, "", "", false, "c/n-1: read On by the BMC health check at 2000-01-01T00:00:04Z"},
		"refused account":             {[]hosts.LastCheck{failed(0, "BMCAuth"), failed(1, "BMCUnreachable")}, "BMCAuth", "", true, "the account is refused (BMC health check at 2000-01-01T00:00:04Z)"},
		"the second level is left":    {[]hosts.LastCheck{failed(0, "BMCAuth"), ok(1)}, "", "", false, "c/n-1: read On by"},
		"the second is not checked":   {[]hosts.LastCheck{failed(0, "BMCAuth"), {Level: 1}}, "", "", true, "c/n-1: the BMC is not checked yet"},
		"another machine answers":     {[]hosts.LastCheck{other, ok(1)}, "", reason.IdentityMismatch, false, "c/n-1: read On"},
		"nothing proves the identity": {[]hosts.LastCheck{unproven, ok(1)}, "", reason.IdentityUnknown, false, "c/n-1: read On"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.Recover()
				w.ChangeEntry(func(h *bmc.Host) {
					second := h.Levels[0].Devices[0]
					second.Endpoint.Host = "192.0.2.2"
					h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{second}})
				})
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					o.LastChecks = func(cluster, host string) []hosts.LastCheck {
						assert.Equal(t, "c c/n-1", cluster+" "+host)
						return tc.last
					}
				})
				time.Sleep(5 * time.Second)
				gates := gatesOf(t, e, "n-1")
				assert.Equal(t, tc.host, gates["host"].Reason)
				assert.Contains(t, gates["host"].Value, tc.value)
				assert.Equal(t, tc.identity, gates["identity"].Reason)
				assert.Equal(t, tc.unchecked, gates["identity"].Unchecked)
				stop()
			})
		})
	}
}

// What the health check knows is for people: a run begins on what its own probe reads.
func TestHealthCheckDecidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.LastChecks = func(string, string) []hosts.LastCheck {
				return []hosts.LastCheck{{At: time.Now(), Reason: "BMCAuth", Problem: "refused"}}
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1, "the probe reads for itself")
		assert.Empty(t, refusedNow(e))
		stop()
	})
}
