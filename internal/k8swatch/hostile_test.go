package k8swatch

import (
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// What does not come from the API server says nothing: neither that somebody is
// gone, nor that he never renewed a Lease, nor that nobody else is at work.
func TestImpostorOfTheAPIServerIsNoAnswer(t *testing.T) { // I2
	for name, answer := range k8stest.Impostors {
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

// Names come from objects that others write: one that is no name reaches no path.
func TestNameThatIsAPathIsNotFollowed(t *testing.T) {
	var asked atomic.Int32
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "evil") {
			asked.Add(1)
		}
		k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
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

// A redirect leads our token to nobody, whatever was asked for.
func TestTokenDoesNotFollowARedirect(t *testing.T) {
	var met atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		met.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u1","resourceVersion":"1"}}`))
	}))
	t.Cleanup(other.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		c := served(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+r.URL.RequestURI(), code) })
		l := c.Look(t.Context(), aRun, [][]byte{})
		assert.Error(t, l.Err)
		assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)
		_, _, err := c.Backup(t.Context(), aRun.Target)
		assert.Error(t, err)
		for _, a := range []remediate.Action{remediate.SetPowerLock, remediate.IsolateNode, remediate.ClearRequest, remediate.DeleteTargetMachine} {
			assert.Error(t, c.Act(t.Context(), aRun, a, nil, remediate.Backup{UID: "u1", ResourceVersion: "1"}), "%s", a)
		}
		stop := running(t, c)
		time.Sleep(300 * time.Millisecond)
		stop()
	}
	assert.Zero(t, met.Load())
}

// endless answers every request with a beginning, and then with more and more of the
// same until the client goes away.
func endless(begin, more string, sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(begin)); err != nil {
			return
		}
		one := int64(0)
		for chunk := []byte(strings.Repeat(more, 64<<10/len(more))); ; {
			n, err := w.Write(chunk)
			if one += int64(n); one > sent.Load() {
				sent.Store(one)
			}
			if err != nil {
				return
			}
		}
	}
}

// slack is more than what lies in the buffers between a server and a client: those of the kernel
// alone hold up to 40 MiB.
const slack = 64 << 20

// What never ends is read up to a bound, and says nothing.
func TestEndlessAnswersEnd(t *testing.T) {
	for name, body := range map[string][2]string{
		"white space":    {"", " "},
		"text":           {`{"kind":"Node","apiVersion":"v1","metadata":{"name":"`, "n"},
		"a list":         {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`, ",{}"},
		"an error page":  {`<html>`, "<br>"},
		"nested objects": {``, `{"a":`},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			c := served(t, endless(body[0], body[1], &sent))
			began := time.Now()
			_, _, err := c.Backup(t.Context(), aRun.Target)
			assert.Error(t, err)
			assert.LessOrEqual(t, sent.Load(), int64(client.MaxObject+slack))
			run := aRun
			run.Step = remediate.PowerOn
			l := c.Look(t.Context(), run, [][]byte{})
			require.Error(t, l.Err)
			assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)
			assert.Equal(t, remediate.CannotTell, l.Seen.PodsGone)
			assert.LessOrEqual(t, sent.Load(), int64(client.MaxBody+slack))
			assert.Less(t, time.Since(began), 9*client.RequestTimeout, "it ends")
		})
	}
}
