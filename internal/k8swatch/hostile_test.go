package k8swatch

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// page answers everything with one text, as a proxy may.
func page(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}
}

// impostors are answers with which something that is not the API server, or not
// well, may answer any request.
var impostors = map[string]http.HandlerFunc{
	"empty object":   page(200, "application/json", `{}`),
	"health page":    page(200, "application/json", `{"status":"ok"}`),
	"maintenance":    page(200, "application/json", `{"status":{"phase":"maintenance"},"items":[]}`),
	"success":        page(200, "application/json", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`),
	"another kind":   page(200, "application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n1","uid":"u1","resourceVersion":"1"}}`),
	"another name":   page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n2","uid":"u1","resourceVersion":"1"}}`),
	"no identity":    page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`),
	"list of nobody": page(200, "application/json", `{"kind":"PodList","apiVersion":"v1","items":[]}`),
	"null":           page(200, "application/json", `null`),
	"cut off":        page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"`),
	"deep":           page(200, "application/json", strings.Repeat(`{"a":`, 1<<20)),
	"html":           page(200, "text/html", `<html>welcome</html>`),
	"nothing":        page(204, "application/json", ``),
	"empty body":     page(200, "application/json", ``),
	"no type":        page(200, "", `{}`),
	"not protobuf":   page(200, "application/vnd.kubernetes.protobuf", "k8s\x00garbage\xff\xff\xff\xff\xff"),
	"unauthorised":   page(401, "text/html", `<form>`),
}

// What does not come from the API server says nothing: neither that somebody is
// gone, nor that he never renewed a Lease, nor that nobody else is at work.
func TestImpostorOfTheAPIServerIsNoAnswer(t *testing.T) { // I2
	for name, answer := range impostors {
		t.Run(name, func(t *testing.T) {
			c := served(t, answer)
			for _, step := range []remediate.Step{remediate.PowerOff, remediate.PowerOn} {
				run := aRun
				run.Step, run.ControlPlane = step, true
				l := c.Look(t.Context(), run, [][]byte{})
				require.Error(t, l.Err)
				assert.NotEqual(t, remediate.APIReachable, l.Seen.API)
				assert.Equal(t, remediate.Node{}, l.Seen.Node)
				assert.Equal(t, remediate.Lease{}, l.Seen.Lease)
				assert.Equal(t, remediate.CannotTell, l.Seen.Machine.Exists)
				assert.Equal(t, remediate.CannotTell, l.Seen.Machine.Replaceable)
				assert.Equal(t, remediate.CannotTell, l.Seen.Contested)
				assert.Equal(t, remediate.CannotTell, l.Seen.PowerLock)
				assert.Equal(t, remediate.CannotTell, l.Seen.PodsGone)
				assert.Equal(t, remediate.CannotTell, l.Seen.Restored)
				assert.False(t, l.MembersKnown)
				assert.Nil(t, l.FreshMachine)
				assert.Nil(t, l.FreshNode)
			}
			_, _, err := c.Backup(t.Context(), aRun.Target)
			require.Error(t, err)
			_, _, err = c.Credentials(t.Context(), "ns", "s")
			require.Error(t, err)
			binds, _, err := c.Announce(t.Context(), Announcement{Instance: "a", StoreID: "s", Epoch: 1})
			require.Error(t, err)
			assert.Zero(t, binds)
			judged, err := c.ControllerAlive(t.Context(), policy.CheckID{APIVersion: policy.OpenShiftMachineAPI})
			require.Error(t, err)
			assert.Equal(t, remediate.CannotTell, judged)
		})
	}
}

// The view that everything is judged by never comes from an impostor.
func TestImpostorOfTheAPIServerIsNoView(t *testing.T) { // I16
	t.Parallel()
	for name, answer := range impostors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked tally
			c := served(t, asked.counts(answer))
			stop := running(t, c)
			defer stop()
			until(t, time.Minute, "every kind was asked for again after an answer", func() bool { return asked.again(c) })
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
			status(w, 404, "NotFound", path.Base(r.URL.Path))
			return
		}
		n := pages.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"more-%d"},"items":[]}`, n)
	})
	stop := running(t, c)
	defer stop()
	until(t, time.Minute, "the list is given up", func() bool {
		return strings.Contains(c.View().Problem, "objects") || pages.Load() > maxPages+10
	})
	stop()
	assert.LessOrEqual(t, pages.Load(), int64(maxPages))
	assert.False(t, c.View().Synced)
}

// Names come from objects that others write: one that is no name reaches no path.
func TestNameThatIsAPathIsNotFollowed(t *testing.T) {
	var asked atomic.Int32
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "evil") {
			asked.Add(1)
		}
		status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	for _, name := range []string{"../evil", "a/evil", "..", ".", "evil%2f", "/evil"} {
		run := aRun
		run.Target.Node, run.Target.Machine, run.Target.BareMetalHost = name, name, "ns/"+name
		l := c.Look(t.Context(), run, nil)
		assert.Error(t, l.Err, name)
		assert.NotEqual(t, remediate.APIReachable, l.Seen.API, name)
		assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists, name)
		assert.Equal(t, remediate.CannotTell, l.Seen.Machine.Exists, name)
		assert.Equal(t, remediate.CannotTell, l.Seen.PowerLock, name)
	}
	assert.Zero(t, asked.Load())
}
