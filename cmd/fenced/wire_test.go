package main

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
)

// Each guard and deadline that a reload takes in changes what the engine is given; one that
// needs a restart changes nothing then.
func TestLiveGuardsAndDeadlinesReachTheEngine(t *testing.T) {
	was := config.Default()
	live := 0
	for _, section := range []string{"Guards", "Power"} {
		of := reflect.ValueOf(was).FieldByName(section)
		for i := range of.NumField() {
			now := config.Default()
			v := reflect.ValueOf(&now).Elem().FieldByName(section).Field(i)
			switch v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			default:
				v.SetInt(v.Int() + 1)
			}
			changes := config.Changes(was, now)
			next := config.TakeLive(was, now)
			taken := guardLimits(next.Guards) != guardLimits(was.Guards) || runLimits(next) != runLimits(was)
			assert.Equal(t, changes[0].Live, taken, changes[0].Key)
			if changes[0].Live {
				live++
			}
		}
	}
	assert.Greater(t, live, 20)
}

// blind is a watch of an empty cluster.
type blind struct{}

func (blind) Changes() []policy.Change { return nil }

func (blind) Changed() <-chan struct{} { return nil }

func (blind) View() admit.View { return admit.View{Synced: true} }

// others owns nothing: instance two does.
type others struct{}

func (others) Run(ctx context.Context, _ func(context.Context, state.Claim)) error {
	<-ctx.Done()
	return nil
}

func (others) Add(string) {}

func (others) Remove(string) {}

func (others) StepAside(string, bool) bool { return true }

func (others) Owner(string) state.Owner { return state.Owner{Instance: "two", Epoch: 7} }

// The metrics, and the words for systemd, say whether this instance acts on a cluster,
// and in which epoch.
func TestOwnerIsTold(t *testing.T) {
	for _, each := range []struct {
		owners state.Owners
		mode   string
		want   []string
		words  string
	}{
		{nil, guard.ModeObserve, []string{`fenced_owner{cluster="prod"} 1`, `fenced_epoch{cluster="prod"} 1`}, ""},
		{others{}, guard.ModeEvaluate, []string{`fenced_owner{cluster="prod"} 0`, `fenced_epoch{cluster="prod"} 7`}, "prod is with two"},
		{others{}, guard.ModeRespond, []string{`fenced_armed{cluster="prod"} 1`}, "prod is with two"},
		{nil, guard.ModeObserve, []string{`fenced_armed{cluster="prod"} 0`}, "prod only observes"},
	} {
		store, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
		require.NoError(t, err)
		defer store.Close()
		m := newMetrics("1")
		e, err := engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}, Instance: "one",
			Owners: each.owners, Clusters: []engine.ClusterOptions{{Name: "prod", Mode: each.mode, Watch: blind{}}}})
		require.NoError(t, err)
		open := func(bmc.Device) (bmc.Power, error) { return nil, assert.AnError }
		s := sweep.New(sweep.Options{Engine: oneHost{}, Open: open, Urgent: open, LockOut: e.LockOut, ReadTimeout: time.Second, Concurrency: 1,
			OnEvent: func(event.Event) {}, OnLatency: m.measured})
		m.measureState(e, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx, func() {}) }()
		owned := each.owners == nil
		require.Eventually(t, func() bool { return e.Status()[0].Owner == owned }, time.Minute, time.Millisecond)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range each.want {
			assert.Contains(t, answer.Body.String(), want)
		}
		words := statusWords(e.Status())
		assert.Contains(t, words, each.words)
		assert.Equal(t, each.mode != guard.ModeObserve, mayFence(e.Status()), "the watchdog of this host")
		assert.Equal(t, each.mode == guard.ModeObserve, strings.Contains(words, "only observes"), words)
		cancel()
		require.NoError(t, <-ended)
	}
}
