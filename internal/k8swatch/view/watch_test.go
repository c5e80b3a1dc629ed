package view

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/test/must"
)

// machinesAt serves Machines of the Cluster API at one version, and discovery
// that names these versions.
func machinesAt(served string, listed ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		version, isVersion := strings.CutPrefix(r.URL.Path, "/apis/cluster.x-k8s.io/")
		switch {
		case strings.HasSuffix(r.URL.Path, served+"/machines") && served != "":
			fmt.Fprintf(w, `{"kind":"MachineList","apiVersion":"cluster.x-k8s.io/%s","metadata":{"resourceVersion":"7"},"items":[]}`, served)
		case isVersion && !strings.Contains(version, "/"):
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"cluster.x-k8s.io/%s","resources":[
				{"name":"machines/status","kind":"Machine"},{"name":"machines","kind":"Machine","namespaced":true}]}`, version)
		case r.URL.Path == "/apis/cluster.x-k8s.io" && len(listed) > 0:
			var versions []string
			for _, v := range listed {
				versions = append(versions, fmt.Sprintf(`{"groupVersion":"cluster.x-k8s.io/%s","version":%q}`, v, v))
			}
			fmt.Fprintf(w, `{"kind":"APIGroup","apiVersion":"v1","name":"cluster.x-k8s.io","versions":[%s]}`, strings.Join(versions, ","))
		case r.URL.Path == "/apis":
			fmt.Fprint(w, noGroups)
		default:
			http.NotFound(w, r)
		}
	}
}

const noGroups = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps"}]}`

// listed gives how a list of Machines of the Cluster API went.
func listed(t *testing.T, h http.HandlerFunc) (proven time.Time, problem string) {
	t.Helper()
	s := clusterMachines(served(t, h))
	_, err := s.list(t.Context(), s.side.API(), metav1.ListOptions{Limit: 1})
	require.Error(t, err)
	return s.state()
}

func clusterMachines(c *Cache) *store {
	for _, s := range c.allStores() {
		if s.Group == client.ClusterGroup && s.Kind == "Machine" {
			return s
		}
	}
	return nil
}

// failsToList gives the state of a kind that cannot be listed.
func failsToList(t *testing.T, s *store) (proven time.Time, problem string) {
	t.Helper()
	_, err := s.list(t.Context(), s.side.API(), metav1.ListOptions{Limit: 1})
	require.Error(t, err)
	return s.state()
}

func TestServedVersionIsFollowed(t *testing.T) {
	s := clusterMachines(served(t, machinesAt("v1beta1", "v1beta1")))
	_, err := s.list(t.Context(), s.side.API(), metav1.ListOptions{Limit: 1})
	require.Error(t, err, "it was expected at v1beta2")
	assert.False(t, s.synced, "a kind that moved is not absent")
	list := must.Do(s.list(t.Context(), s.side.API(), metav1.ListOptions{Limit: 1}))(t)
	at := must.Do(listRevision(list))(t)
	assert.EqualValues(t, 7, at)
}

// A version that this program does not know is never taken for absent: the
// Machines are there, and nobody here can read them.
func TestUnknownVersionIsNotAbsent(t *testing.T) {
	s := clusterMachines(served(t, machinesAt("v1beta9", "v1beta9")))
	proven, problem := failsToList(t, s)
	assert.True(t, proven.IsZero())
	assert.Contains(t, problem, "v1beta9")
}

func TestListedButNotServedIsNotAbsent(t *testing.T) {
	s := clusterMachines(served(t, machinesAt("", "v1beta2")))
	proven, problem := failsToList(t, s)
	assert.True(t, proven.IsZero(), "discovery lags behind; it may be coming or going")
	assert.Contains(t, problem, "not served")
}

func TestDiscoveryThatFailsSaysNothing(t *testing.T) {
	s := clusterMachines(served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/cluster.x-k8s.io" {
			k8stest.Status(w, 503, "ServiceUnavailable", "")
			return
		}
		http.NotFound(w, r)
	}))
	proven, _ := failsToList(t, s)
	assert.True(t, proven.IsZero())
}

// The rights of an older release, and a kind that is not installed.
func TestForbiddenKindThatIsNotInstalledIsAbsent(t *testing.T) {
	forbid := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/machines") {
				k8stest.Status(w, 403, "Forbidden", "")
				return
			}
			then(w, r)
		}
	}
	proven, problem := listed(t, forbid(machinesAt("")))
	assert.False(t, proven.IsZero(), problem)
	assert.Empty(t, problem)

	for why, then := range map[string]http.HandlerFunc{
		"it is installed":             machinesAt("v1beta2", "v1beta2"),
		"discovery is forbidden, too": func(w http.ResponseWriter, _ *http.Request) { k8stest.Status(w, 403, "Forbidden", "") },
		"discovery is somebody's 404": http.NotFound,
		"the API lists the group itself": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, strings.Replace(noGroups, "apps", client.ClusterGroup, 1))
		},
	} {
		proven, problem := listed(t, forbid(then))
		assert.True(t, proven.IsZero(), why)
		assert.NotEmpty(t, problem, why)
	}
}

// While the API server is away, or does not let fenced see what it serves, only the kinds that every
// cluster has are warned about: a kind that may not exist would be a false alarm.
func TestKindThatMayNotExistIsNoWarning(t *testing.T) {
	forbidden := func(w http.ResponseWriter, _ *http.Request) { k8stest.Status(w, 403, "Forbidden", "") }
	away := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	unreadable := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/machines") {
			forbidden(w, r)
			return
		}
		machinesAt("v1beta2", "v1beta2")(w, r)
	}
	for _, k := range []struct {
		kind  string
		api   http.HandlerFunc
		level zapcore.Level
	}{
		{"Node", forbidden, zapcore.WarnLevel},
		{"Node", away, zapcore.WarnLevel},
		{"Machine", unreadable, zapcore.WarnLevel}, // it exists, and may not be read
		{"Machine", forbidden, zapcore.InfoLevel},
		{"Machine", away, zapcore.InfoLevel},
	} {
		c := served(t, k.api)
		s := c.storeOf("Node")
		if k.kind == "Machine" {
			s = clusterMachines(c)
		}
		core, logs := observer.New(zapcore.DebugLevel)
		s.log = zap.New(core)
		_, err := s.list(t.Context(), s.side.API(), metav1.ListOptions{Limit: 1})
		require.Error(t, err)
		require.Equal(t, 1, logs.Len())
		assert.Equal(t, k.level, logs.All()[0].Level, k.kind)
	}
}

// A proxy whose backend is away must not look like an API without Machines.
func TestErrorPagesOfAProxyAreNoAbsence(t *testing.T) { // I16
	for _, page := range []http.HandlerFunc{
		http.NotFound,
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis" {
				fmt.Fprint(w, "<html>welcome</html>")
				return
			}
			http.NotFound(w, r)
		},
	} {
		proven, problem := listed(t, page)
		assert.True(t, proven.IsZero())
		assert.Contains(t, problem, "API groups")
	}
}

func TestKindUnknownToDiscoveryIsAbsent(t *testing.T) {
	s := clusterMachines(served(t, machinesAt("")))
	proven, problem := failsToList(t, s)
	assert.False(t, proven.IsZero())
	assert.Empty(t, problem)
}

// hungStream is a stream on which nothing comes. Reading it fails when it is closed, as with HTTP/2.
type hungStream struct {
	closed chan struct{}
	once   sync.Once
}

func (h *hungStream) Decode() (watch.EventType, runtime.Object, error) {
	<-h.closed
	return "", nil, errors.New("http2: response body closed")
}

func (h *hungStream) Close() { h.once.Do(func() { close(h.closed) }) }

// AsObject implements watch.Reporter.
func (h *hungStream) AsObject(error) runtime.Object { return &metav1.Status{} }

// countEvents stops watches of the client, and counts what they still send.
func countEvents(wrap func(watch.Interface) watch.Interface) (n int) {
	for range 200 {
		h := &hungStream{closed: make(chan struct{})}
		w := wrap(watch.NewStreamWatcher(h, h))
		go w.Stop()
		for range w.ResultChan() {
			n++
		}
	}
	return n
}

// A watch that fenced stops is no failed watch: after that a reflector would list all objects again.
func TestStoppedWatchEndsWithoutAnError(t *testing.T) {
	assert.NotZero(t, countEvents(func(w watch.Interface) watch.Interface { return w }), "the client's own sends an error now and then")
	assert.Zero(t, countEvents(func(w watch.Interface) watch.Interface { return newStoppedWatch(w) }))
}

// Every watch that a reflector gets ends so, over a real connection, too.
func TestWatchesThatAreStoppedEndWithoutAnError(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for _, kind := range []string{"Node", "Pod"} { // the kinds that need no discovery
		s := c.storeOf(kind)
		require.NoError(t, s.Replace(nil, "1"))
		lw := s.listWatch(s.side.API())
		for range 50 {
			w := must.Do(lw.WatchFuncWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))(t)
			go w.Stop()
			for e := range w.ResultChan() {
				assert.Fail(t, "an event after the stop", "%s %v", e.Type, e.Object)
			}
		}
	}
}

// What comes before the stop is passed on in order, and an error of the server too.
func TestStoppedWatchPassesEventsOn(t *testing.T) {
	f := watch.NewFakeWithChanSize(3, false)
	f.Add(&metav1.Status{Message: "a"})
	f.Modify(&metav1.Status{Message: "b"})
	f.Error(&metav1.Status{Message: "410"})
	w := newStoppedWatch(f)
	var got []string
	for range 3 {
		e := <-w.ResultChan()
		got = append(got, string(e.Type)+" "+e.Object.(*metav1.Status).Message)
	}
	assert.Equal(t, []string{"ADDED a", "MODIFIED b", "ERROR 410"}, got)
	f.Stop() // as when the server ends it
	_, open := <-w.ResultChan()
	assert.False(t, open)
	w.Stop()
	w.Stop()
}
