package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// atStart is what an engine that is started now says of its scope, and whether it
// began with a quiet period. It is left running for long enough to remember it.
func atStart(t *testing.T, w *world, store state.Store, change func(*engine.Options)) (quiet bool, told string) {
	t.Helper()
	e, events, stop := start(t, w, store, func(o *engine.Options) {
		o.Guards.QuietPeriod = 5 * time.Minute
		change(o)
	})
	time.Sleep(2 * time.Second)
	x, err := e.Explain(t.Context(), "c", "n-1")
	require.NoError(t, err)
	for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Internal }) {
		told += ev.Message + "\n"
	}
	time.Sleep(6 * time.Minute)
	stop()
	return refusing(x.Gates, reason.QuietPeriod), told
}

// A restart after the order to arm does not shorten the quiet period. // I16
func TestQuietPeriodAfterArmOutlivesARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		observe := func(o *engine.Options) { o.Clusters[0].Mode, o.Guards.QuietPeriod = guard.ModeObserve, 5*time.Minute }
		e, _, stop := start(t, w, store, observe)
		time.Sleep(10 * time.Minute)
		_, err := e.Arming.Arm(t.Context(), byHand)
		require.NoError(t, err)
		stop()
		e, _, stop = start(t, w, store, observe)
		time.Sleep(4 * time.Minute)
		require.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.Len(t, e.Runs("c"), 1)
		stop()
	})
}

// A start that may act on more than the one before begins with a quiet period, and says
// why. One that may act on the same or less does not. // I18
func TestLargerScopeBeginsAQuietPeriod(t *testing.T) {
	in := func(mode string, checks ...policy.Check) func(*engine.Options) {
		return func(o *engine.Options) { o.Clusters[0].Mode, o.Clusters[0].FileChecks = mode, checks }
	}
	named := func(name string, selector labels.Set) policy.Check {
		p := nodePolicy()
		p.Name, p.Selector = name, labels.SelectorFromSet(selector)
		return p
	}
	a, b := named("a", labels.Set{"x": "1"}), named("b", labels.Set{"x": "1"})
	paused := named("c", labels.Set{"x": "1"})
	paused.Paused = true
	handedOver := paused
	handedOver.Evaluator = "us"
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		for _, c := range []struct {
			start func(*engine.Options)
			want  string // what is told; "" = it is not quiet
		}{
			{in(guard.ModeObserve, a), "the store has no record of this cluster"},
			{in(guard.ModeObserve, a), ""},
			{in(guard.ModeEvaluate, a), "mode was observe and is evaluate"},
			{in(guard.ModeEvaluate, a), ""},
			{in(guard.ModeEvaluate, a, b), "FencePolicy b is new"},
			{in(guard.ModeEvaluate, b), ""},
			{in(guard.ModeEvaluate, named("b", labels.Set{"x": "2"})), "FencePolicy b selects something else"},
			{in(guard.ModeEvaluate, paused), "FencePolicy c is new"},
			{in(guard.ModeEvaluate, handedOver), "FencePolicy c selects something else"},
			{in(guard.ModeObserve), ""},
			{in(guard.ModeEvaluate), "mode was observe and is evaluate"},
		} {
			quiet, told := atStart(t, w, store, c.start)
			assert.Equal(t, c.want != "", quiet, "%s", told)
			if c.want == "" {
				assert.Empty(t, told)
			} else {
				assert.Contains(t, told, c.want)
			}
		}
	})
}

// A start that ends during its quiet period saves no scope, nor does a start that is
// paused during it. // I16
func TestScopeIsSavedAfterTheQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(time.Minute)
		_, err := e.Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "look"})
		require.NoError(t, err)
		stop()
		quiet, told := atStart(t, w, store, func(*engine.Options) {})
		assert.True(t, quiet)
		assert.Contains(t, told, "not on record")
	})
}

// The scope of a cluster in which nothing happens is saved, too.
func TestScopeOfAClusterWithoutEventsIsSaved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(5*time.Minute + time.Second)
		stop()
		quiet, told := atStart(t, w, store, func(*engine.Options) {})
		assert.False(t, quiet)
		assert.Empty(t, told)
	})
}

// If the store has lost that a cluster was armed, the cluster is only observed, and this
// is reported.
func TestLostArmingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		observe := func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve }
		e, events, stop := start(t, w, store, observe)
		time.Sleep(5 * time.Minute)
		lost := eventsOf(t, events, func(ev event.Event) bool { return strings.Contains(ev.Message, "run fencectl arm") })
		require.Len(t, lost, 1)
		assert.Equal(t, string(reason.Observing), string(lost[0].Reason))
		assert.Equal(t, "c", lost[0].Cluster)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		stop()
	})
}
