package view

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/test/law"
)

// listAll gives every store a full list at this version, proven at that time.
func listAll(t require.TestingT, c *Cache, version uint64, at time.Time) {
	for _, s := range c.allStores() {
		require.NoError(t, s.Replace(nil, strconv.FormatUint(version, 10)))
		s.recordRead(freshRead{at, version})
	}
	c.updateFreshness(at)
}

func TestViewIsProvenByReachingWhatWasRead(t *testing.T) { // I16
	c, now := offline(), time.Now()
	assert.False(t, c.View().Synced)
	listAll(t, c, 10, now)
	require.True(t, c.View().Synced)

	nodes := c.storeOf("Node")
	nodes.recordRead(freshRead{now.Add(time.Second), 12})
	at, _ := nodes.state()
	assert.Equal(t, now, at, "the API is at 12, the view still at 10")
	nodes.UpdateResourceVersion("11")
	at, _ = nodes.state()
	assert.Equal(t, now, at)
	nodes.UpdateResourceVersion("12")
	at, _ = nodes.state()
	assert.Equal(t, now.Add(time.Second), at, "a bookmark is enough")
}

func TestOneStuckKindMakesTheViewOld(t *testing.T) { // I16
	c, long := offline(), time.Now().Add(-40*time.Second)
	listAll(t, c, 10, long)
	for _, s := range c.allStores() {
		s.recordRead(freshRead{time.Now(), 50})
		if s.Kind != "Machine" {
			s.UpdateResourceVersion("50")
		}
	}
	assert.GreaterOrEqual(t, c.View().Age, 40*time.Second)
	for _, s := range c.allStores() {
		s.UpdateResourceVersion("50")
	}
	assert.Less(t, c.View().Age, 40*time.Second, "it was proven again")
}

// Both APIs must be fresh: a management API that is not read hides Machines, a
// workload API that is not read hides Nodes.
func TestEitherAPIMakesTheViewOld(t *testing.T) { // I16
	for _, stuck := range []string{"workload", "management"} {
		slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
			k8stest.Status(w, http.StatusNotFound, "NotFound", "n")
		}))
		t.Cleanup(slow.Close)
		path := k8stest.Kubeconfig(t, slow.URL)
		c := newCache(Config{Kubeconfig: path, Management: ManagementConfig{Kubeconfig: path}}, zap.NewNop())
		listAll(t, c, 10, time.Now().Add(-40*time.Second))
		for _, side := range c.sides() {
			for _, s := range side.watched() {
				s.recordRead(freshRead{time.Now(), 50})
				if side.Name != stuck {
					s.UpdateResourceVersion("50")
				}
			}
		}
		assert.GreaterOrEqual(t, c.View().Age, 40*time.Second, stuck)
		for _, side := range c.sides() {
			if side.Name == stuck {
				side.watched()[0].fail("connection refused")
				assert.Contains(t, c.View().Problem, "on the "+stuck+" API: connection refused")
				assert.False(t, c.View().SkewKnown)
				require.NoError(t, side.Connect())
				_, err := side.API().Node(t.Context(), "n")
				require.Error(t, err)
				assert.InDelta(t, -10*time.Minute, c.View().Skew, float64(2*time.Second), "the worst clock counts")
				assert.False(t, c.View().SkewKnown, "of the other nothing is known")
				side.rewind()
			}
		}
		assert.False(t, c.View().Synced, "one history that is another makes the whole view new")
	}
}

func TestListAloneProvesNothing(t *testing.T) {
	c := offline()
	for _, s := range c.allStores() {
		require.NoError(t, s.Replace(nil, "10"))
	}
	assert.False(t, c.View().Synced, "a list may come from a stale cache of the API server")
}

func TestSinceIsTheEndOfAnOutage(t *testing.T) {
	c, start := offline(), time.Now().Add(-time.Hour)
	c.fresh.start = start
	listAll(t, c, 10, start.Add(time.Second))
	assert.True(t, c.View().Since.IsZero(), "a start is no outage")

	short := start.Add(50 * time.Second)
	listAll(t, c, 11, short)
	assert.True(t, c.View().Since.IsZero(), "nor is a short one")

	back := short.Add(outageAfter + time.Second)
	listAll(t, c, 12, back)
	assert.Equal(t, back, c.View().Since)
}

func TestStartDuringAnOutageCounts(t *testing.T) {
	c, start := offline(), time.Now().Add(-time.Hour)
	c.fresh.start = start
	listAll(t, c, 10, start.Add(outageAfter+time.Second))
	assert.False(t, c.View().Since.IsZero())
}

func TestHistoryThatWentBackIsForgotten(t *testing.T) {
	c, at := offline(), time.Now()
	c.fresh.start = at
	listAll(t, c, 10, at)
	c.work.rewind()
	v := c.View()
	assert.False(t, v.Synced)
	assert.Contains(t, v.Problem, "back in time")
	assert.True(t, v.Since.IsZero(), "it is not whole yet")
	listAll(t, c, 3, at.Add(time.Second))
	assert.True(t, c.View().Synced)
	assert.Equal(t, at.Add(time.Second), c.View().Since, "a quiet period follows")
}

// All objects of a kind at once: that is a definition which is being replaced as
// often as one that is done with.
func TestKindThatVanishesIsFollowedByQuiet(t *testing.T) { // I16
	for _, had := range []bool{true, false} {
		c, at := offline(), time.Now()
		c.fresh.markStart(at)
		listAll(t, c, 10, at)
		machines := c.storeOf("Machine")
		if had {
			require.NoError(t, machines.Add(apiObject("Machine", "m", "11", nil)))
		}
		c.storeOf("BareMetalHost").recordNotInstalled(at) // with its last object gone
		require.False(t, c.View().Since.IsZero(), "before anybody is told")
		listAll(t, c, 12, at.Add(time.Second))
		before := c.View().Since
		require.Equal(t, at.Add(time.Second), before, "until the view is whole again")

		machines.recordNotInstalled(at.Add(time.Second))
		after := c.View().Since
		assert.True(t, after.After(at), had)
		machines.recordNotInstalled(at.Add(2 * time.Second))
		assert.Equal(t, after, c.View().Since, "what stays away disturbs once")
	}
}

func TestKindThatNeverWasIsNotMissed(t *testing.T) {
	c, at := offline(), time.Now()
	c.fresh.markStart(at)
	for _, s := range c.allStores() {
		s.recordNotInstalled(at)
	}
	assert.True(t, c.View().Synced)
	assert.True(t, c.View().Since.IsZero())
}

func TestProblemEndsWithTheNextProof(t *testing.T) {
	c, at := offline(), time.Now()
	listAll(t, c, 10, at)
	c.storeOf("Node").fail("connection refused")
	assert.Contains(t, c.View().Problem, "watch Node: connection refused")
	c.storeOf("Node").recordRead(freshRead{at.Add(time.Second), 10})
	assert.Empty(t, c.View().Problem)
}

// Whatever the order of reads and events, the view is never called fresher
// than the newest read whose version it has reached.
func TestProofLaw(t *testing.T) {
	start := time.Now()
	law.Check(t, func(t *rapid.T) {
		s := offline().storeOf("Node")
		require.NoError(t, s.Replace(nil, "1"))
		var api, have uint64 = 1, 1
		type read struct{ at, version uint64 }
		var reads []read
		for i := range rapid.Uint64Range(1, 3*maxFreshReads).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"write", "read", "event"}).Draw(t, "step") {
			case "write":
				api++
			case "read":
				reads = append(reads, read{i + 1, api})
				s.recordRead(freshRead{start.Add(time.Duration(i+1) * time.Second), api})
			case "event":
				have = rapid.Uint64Range(have, api).Draw(t, "version")
				s.UpdateResourceVersion(strconv.FormatUint(have, 10))
			}
			var best uint64
			for _, r := range reads {
				if r.version <= have {
					best = max(best, r.at)
				}
			}
			proven, _ := s.state()
			if best == 0 {
				assert.True(t, proven.IsZero())
			} else {
				assert.False(t, proven.After(start.Add(time.Duration(best)*time.Second)))
				if len(reads) <= maxFreshReads {
					assert.Equal(t, start.Add(time.Duration(best)*time.Second), proven)
				}
			}
		}
	})
}
