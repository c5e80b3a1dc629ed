package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

func TestPlanNamesWhatLimits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setUnsynced(true)
		w.setOthersDown(true)
		w.setContested(remediate.Yes) // only a probe shows the rival
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		_, err := e.Plan(t.Context(), "c")
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reason.NotSynced, refusal.Reason, "nothing was seen yet")
		w.setUnsynced(false)
		time.Sleep(2 * time.Minute)
		p, err := e.Plan(t.Context(), "c")
		require.NoError(t, err)
		require.Len(t, p.Items, 2)
		assert.Equal(t, []string{"n-1", "other-0"}, []string{p.Items[0].Node, p.Items[1].Node}, "in the order of the report")
		assert.Equal(t, reason.Observing, p.Items[0].Gate.Reason)
		assert.Zero(t, w.Reads(), "a plan asks no BMC")
		armed, err := e.Arming.Plan(t.Context(), "c")
		require.NoError(t, err)
		assert.Nil(t, armed.Items[0].Gate, "it would be fenced as soon as the cluster is armed")
		assert.Equal(t, reason.NoHost, armed.Items[1].Gate.Reason)
		_, err = e.Arming.Arm(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "go"})
		require.NoError(t, err)
		synctest.Wait()
		p, err = e.Plan(t.Context(), "c")
		require.NoError(t, err)
		assert.Equal(t, reason.Contested, p.Items[0].Gate.Reason, "as the probe found")
		assert.Equal(t, reason.NoHost, p.Items[1].Gate.Reason)
		stop()
	})
}

func TestCoverageOfTheLiveCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, little := nodePolicy(), intstr.FromString("20%")
		p.MaxUnhealthy = &little
		e, _, stop := start(t, w, store, withPolicy(w, p))
		time.Sleep(time.Second)
		all, err := e.Coverage("c")
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.Equal(t, policy.FencePolicyKind, all[0].Check.Kind)
		assert.Equal(t, 4, all[0].Targets)
		assert.Equal(t, policy.FoundLimitIsZero, all[0].Findings[0].Code)
		assert.Equal(t, policy.FoundNotEvaluated, all[1].Findings[0].Code)
		stop()
	})
}

// An object that is missing from an incomplete view may exist. // I16
func TestUnsyncedViewIsNotEvaluated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(1500 * time.Millisecond) // no decision runs at this moment
		w.setUnsynced(true)
		w.RemoveNode()
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		time.Sleep(time.Minute)
		x, err := e.Explain(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, policy.Healthy, x.Verdict, "as last seen")
		assert.Empty(t, w.Commands())
		w.setUnsynced(false)
		time.Sleep(5 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// If a check has its own zone label, that label defines the zone of its targets.
func TestBreakerCountsByTheChecksOwnZoneKey(t *testing.T) {
	for _, key := range []string{"rack", ""} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.setOthersDown(true)
			p := nodePolicy()
			p.ZoneKey = key
			e, _, stop := start(t, w, store, func(o *engine.Options) {
				withPolicy(w, p)(o)
				o.Guards.ZoneBreakerPercent, o.Guards.ZoneBreakerMin = 50, 2
			})
			time.Sleep(2 * time.Minute)
			if key == "" {
				assert.NotEmpty(t, e.Runs("c"))
			} else {
				assert.Empty(t, e.Runs("c"))
				assert.Equal(t, "2 of 4 of zone r1 not ready", gate(t, e, reason.ZoneBreaker).Value)
			}
			stop()
		})
	}
}

// One event never causes an evaluation of all targets: only the ledger evaluates.
func TestEngineNeverEvaluatesAllTargets(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if !strings.HasSuffix(f, "_test.go") {
			assert.NotContains(t, string(text), "policy.Decide(", f)
		}
	}
}

// The plan of a large outage looks up only as many targets as can start soon, and none
// where the result does not depend on it.
func TestPlanOfALargeOutageLooksUpLittle(t *testing.T) {
	for mode, lookups := range map[string]int{guard.ModeEvaluate: 50, guard.ModeObserve: 0} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			crowd := inCrowd(w, 80)
			crowd.hangs = true // no probe comes to an end
			e, _, stop := start(t, w, store, func(o *engine.Options) {
				withPolicy(w, nodePolicy())(o)
				crowd.options(o)
				o.Guards.MaxInFlight, o.Clusters[0].Mode = 100, mode
			})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			_, before := crowd.counted()
			crowd.mu.Lock()
			crowd.hangs = false
			crowd.mu.Unlock()
			p, err := e.Plan(t.Context(), "c")
			require.NoError(t, err)
			assert.Len(t, p.Items, 81)
			_, after := crowd.counted()
			assert.Equal(t, lookups, after-before, mode)
			stop()
		})
	}
}
