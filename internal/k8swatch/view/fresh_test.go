package view

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
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

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// served is a Cache whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Cache {
	t.Helper()
	return must.Do(New(Config{Name: "test", Kubeconfig: k8stest.Served(t, h), FreshEvery: time.Second}, zap.NewNop()))(t)
}

// running runs a Cache until stop, which may be called again.
func running(t *testing.T, c *Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// tally counts the requests that were answered, by path, other than those of freshness.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
}

func (a *tally) counts(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if r.URL.Query().Get("limit") == "1" {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.answers == nil {
			a.answers = map[string]int{}
		}
		a.answers[r.URL.Path]++
	}
}

// again says whether every kind that a Cache watches was asked for three times: as a
// stream, as a list, and after the answer to that was taken in.
func (a *tally) again(c *Cache) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	stores := c.work.watched()
	for _, s := range stores {
		path := "/api/v1/nodes"
		switch {
		case s.pods():
			path = "/api/v1/namespaces/" + s.namespace + "/pods"
		case !s.builtIn():
			path = "/apis/" + s.Group + "/" + s.gvr.Version + "/" + s.gvr.Resource // no impostor moves it
		}
		if a.answers[path] < 3 {
			return false
		}
	}
	return len(stores) > 0
}

// The view that everything is judged by never comes from an impostor.
func TestImpostorOfTheAPIServerIsNoView(t *testing.T) { // I16
	t.Parallel()
	for name, answer := range k8stest.Impostors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked tally
			c := served(t, asked.counts(answer))
			stop := running(t, c)
			defer stop()
			k8stest.Until(t, "every kind was asked for again after an answer", func() bool { return asked.again(c) })
			stop()
			assert.False(t, c.View().Synced)
			assert.Empty(t, c.Changes())
		})
	}
}

// A list that never ends is given up, and what was read of it is not the view.
func TestListWithoutEndIsGivenUp(t *testing.T) {
	t.Parallel()
	var pages atomic.Int64
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) != "nodes" || r.URL.Query().Get("watch") != "" || r.URL.Query().Get("limit") == "1" {
			k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
			return
		}
		n := pages.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"more-%d"},"items":[]}`, n)
	})
	stop := running(t, c)
	defer stop()
	k8stest.Until(t, "the list is given up", func() bool {
		return strings.Contains(c.View().Problem, "objects") || pages.Load() > maxPages+10
	})
	stop()
	assert.LessOrEqual(t, pages.Load(), int64(maxPages))
	assert.False(t, c.View().Synced)
}

// A frame of a watch that never ends is given up, too, and is no view.
func TestEndlessFrameOfAWatchEnds(t *testing.T) {
	var sent atomic.Int64
	givenUp := make(chan struct{}, 1)
	frame := k8stest.Endless(`{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"`, "n", &sent)
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			frame(w, r)
			select {
			case givenUp <- struct{}{}:
			default:
			}
			return
		}
		k8stest.Status(w, 404, "NotFound", "x")
	})
	stop := running(t, c)
	select {
	case <-givenUp:
	case <-time.After(pace.Tries): // 12 MiB go through a reader with the race detector
		assert.Fail(t, "the watch was not given up")
	}
	stop()
	assert.LessOrEqual(t, sent.Load(), int64(client.MaxObject+k8stest.Slack))
	assert.False(t, c.View().Synced)
	assert.Empty(t, c.Changes())
}

// One read of the API groups answers for all kinds that a cluster does not have. Their lists and watches are not asked again until
// the groups say that one may have been added, or say nothing.
func TestAbsentKindsCostOneRead(t *testing.T) {
	var groups atomic.Pointer[string]
	var rounds, others atomic.Int64
	say := func(names string) {
		text := `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + names + `]}`
		groups.Store(&text)
	}
	const leases, machines = `{"name":"coordination.k8s.io"}`, `{"name":"machine.openshift.io"}`
	say(leases)
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			rounds.Add(1)
			k8stest.Page(http.StatusOK, "application/json", *groups.Load())(w, r)
		case strings.HasPrefix(r.URL.Path, "/apis/"):
			others.Add(1)
			http.NotFound(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	side, machine := c.work, c.storeOf("Machine")
	side.readAllFresh(t.Context())
	require.True(t, machine.absence.lasts())
	found := others.Load()
	require.Positive(t, found, "the absence is found by all that can be asked")
	rounds.Store(0)

	before, _ := machine.state()
	watching, stop := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() { machine.absence.await(watching); close(returned) }()
	side.readAllFresh(t.Context())
	after, problem := machine.state()
	assert.True(t, after.After(before), "the view stays fresh")
	assert.Empty(t, problem)
	assert.Equal(t, found, others.Load(), "nothing is asked but the groups")
	assert.EqualValues(t, 1, rounds.Load())
	select {
	case <-returned:
		t.Error("the watch of an absent kind must wait")
	default:
	}
	stop()
	<-returned

	for what, names := range map[string]string{"the group was added": leases + "," + machines, "not the answer of an API server": "", "nor this": machines} {
		say(names)
		others.Store(0)
		side.readAllFresh(t.Context())
		assert.Positive(t, others.Load(), what)
	}
	machine.fail("another answer")
	assert.False(t, machine.absence.lasts(), "the watch may try again")
	machine.absence.await(t.Context())
}

// A kind of which nothing was known for a while is listed anew. Its watch went on from where it was, and never told again what had not changed.
func TestKindThatComesBackIsListedAnew(t *testing.T) { // I16
	t.Parallel()
	const machine = `{"kind":"Machine","apiVersion":"machine.openshift.io/v1beta1","metadata":{"namespace":"ns","name":"m","uid":"u","resourceVersion":"5"}}`
	const bookmark = `{"type":"BOOKMARK","object":{"kind":"Machine","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"9"%s}}}`
	var away atomic.Bool
	var turns atomic.Int64
	back := make(chan struct{}) // closed when the kind is back: the first watch lasts until then
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"coordination.k8s.io"}`+map[bool]string{false: `,{"name":"machine.openshift.io"}`}[away.Load()]+`]}`)
		case r.URL.Path != "/apis/machine.openshift.io/v1beta1/machines" || away.Load():
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") == "":
			fmt.Fprintf(w, `{"kind":"MachineList","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"9"},"items":[%s]}`, machine)
		default:
			ends := r.Context().Done()
			if r.URL.Query().Get("sendInitialEvents") != "" {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+bookmark, machine, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
			} else if turns.Add(1) == 1 {
				ends = back
			}
			fmt.Fprintf(w, bookmark, "") // client-go lists anew after a short watch without events
			assert.NoError(t, http.NewResponseController(w).Flush())
			select {
			case <-r.Context().Done():
			case <-ends:
			}
		}
	})
	stop := running(t, c)
	defer stop()
	machines := c.storeOf("Machine")
	has := func() bool {
		machines.mu.Lock()
		defer machines.mu.Unlock()
		return len(machines.items) == 1
	}
	k8stest.Until(t, "the Machine is seen and watched", func() bool { return has() && turns.Load() > 0 })
	away.Store(true)
	k8stest.Until(t, "the Machine is gone", func() bool { return !has() })
	away.Store(false)
	close(back)
	k8stest.Until(t, "the Machine is seen again", has)
}

// The API may have gone back in time, and all kinds may have been listed anew before any was compared with it: the lists tell it.
func TestListOfAnEarlierHistoryIsFollowedByQuiet(t *testing.T) { // I16
	c, at := offline(), time.Now()
	c.fresh.markStart(at)
	listAll(t, c, 10, at)
	listAll(t, c, 12, at.Add(time.Second))
	require.True(t, c.View().Since.IsZero())
	listAll(t, c, 3, at.Add(2*time.Second))
	assert.True(t, c.View().Synced)
	assert.False(t, c.View().Since.IsZero(), "a quiet period follows")

	c = offline()
	c.fresh.markStart(at)
	listAll(t, c, 10, at)
	c.storeOf("Node").UpdateResourceVersion("4")
	assert.False(t, c.View().Since.IsZero(), "nor does a watch go back")
}
