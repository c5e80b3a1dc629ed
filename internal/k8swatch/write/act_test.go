package write

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
)

var (
	toDelete = remediate.Run{Isolation: remediate.IsolateDelete, Target: remediate.Target{Node: "n", NodeUID: "u"}}
	saved7   = remediate.Backup{UID: "u", ResourceVersion: "7"}
)

// A webhook with failurePolicy Ignore, whose backend died with the Node, costs up to 30 s.
func TestDeletionOutlastsADeadWebhook(t *testing.T) {
	t.Parallel()
	webhook := client.RequestTimeout + time.Second // longer than a read may take
	c := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(webhook):
			status(w, http.StatusOK, "", "n")
		}
	})
	require.NoError(t, c.Act(t.Context(), toDelete, remediate.IsolateNode, nil, saved7))
	ctx, cancel := client.WithWriteTimeout(t.Context())
	defer cancel()
	ends, _ := ctx.Deadline()
	require.Greater(t, time.Until(ends), 34*time.Second, "an API server's own limit")
}

// Another BareMetalHost may have taken the name since the last look. Its owner would switch off another
// machine. // I2
func TestPowerLockIsForOneBareMetalHost(t *testing.T) {
	t.Parallel()
	var patch []byte
	c := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
		patch, _ = io.ReadAll(r.Body)
		status(w, http.StatusConflict, "Conflict", "h")
	})
	r := toDelete
	r.Target.BareMetalHost, r.Target.BareMetalHostUID = "ns/h", "hu"
	require.Error(t, c.Act(t.Context(), r, remediate.SetPowerLock, nil, saved7))
	require.JSONEq(t, `{"metadata":{"uid":"hu","annotations":{"reboot.metal3.io/fenced":"{\"mode\":\"hard\"}"}}}`, string(patch))
	require.Error(t, c.Act(t.Context(), r, remediate.ReleasePowerLock, nil, saved7))
	require.JSONEq(t, `{"metadata":{"annotations":{"reboot.metal3.io/fenced":null}}}`, string(patch))
}

// What hurts is sent once: an API server that is too busy for it, and names a time, is not
// asked again by the client, for whoever decided must be. What brings back may be. // I1
func TestThrottledWritesThatHurtAreNotRepeated(t *testing.T) {
	for action, want := range map[remediate.Action]int32{
		remediate.IsolateNode: 1, remediate.SetPowerLock: 1, remediate.DeleteTargetMachine: 1, remediate.ReleasePowerLock: 2,
	} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			c := runsAt(t, func(w http.ResponseWriter, _ *http.Request) {
				if sent.Add(1) == 1 {
					w.Header().Set("Retry-After", "1")
					status(w, http.StatusTooManyRequests, "TooManyRequests", "n")
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"BareMetalHost","apiVersion":"metal3.io/v1alpha1","metadata":{"name":"h"}}`)
			})
			r := toDelete
			r.Target.BareMetalHost, r.Target.Machine, r.Target.MachineUID = "ns/h", "m", "mu"
			err := c.Act(t.Context(), r, action, nil, saved7)
			assert.Equal(t, want, sent.Load())
			assert.Equal(t, want == 1, apierrors.IsTooManyRequests(err), "%v", err)
		})
	}
}

// A restore that a dead webhook keeps from its end as a whole is tried in parts: it may
// only be asked about some of them. // I21
func TestRestoreIsTriedInPartsAfterATimeout(t *testing.T) {
	const node = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u2","resourceVersion":"9"%s}}`
	backup := fmt.Appendf(nil, node, `,"labels":{"a":"1"},"annotations":{"b":"2"}`)
	run := toDelete
	run.NewNodeUID = "u2"
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"no answer in time": func(w http.ResponseWriter) { status(w, http.StatusGatewayTimeout, "Timeout", "n") },
		"a failed call":     func(w http.ResponseWriter) { status(w, http.StatusInternalServerError, "InternalError", "n") },
	} {
		t.Run(name, func(t *testing.T) {
			var patches []string
			c := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					if patches = append(patches, string(body)); strings.Contains(string(body), "annotations") {
						refuse(w)
						return
					}
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, node, "")
			})
			_, err := c.Restore(t.Context(), run, [][]byte{backup})
			require.Error(t, err)
			require.Len(t, patches, 3, "the whole, and its parts")
			assert.Contains(t, patches[1], `"labels":{"a":"1"}`)
			assert.NotContains(t, patches[1], "annotations")
		})
	}
	assert.True(t, mayWriteParts(t.Context(), context.DeadlineExceeded), "our own limit of one write")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, mayWriteParts(over, context.DeadlineExceeded), "the time of all of them is over")
}

// A Node that is larger than what is saved is never isolated: nothing of it would come
// back.
func TestNodeThatCannotBeSavedIsRefused(t *testing.T) { // I21
	for extra, saved := range map[int]bool{-1 << 10: true, 1: false} {
		node := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u1","resourceVersion":"1","annotations":{"a":"` +
			strings.Repeat("a", maxBackup+extra) + `"}}}`
		if saved {
			node = strings.Replace(node, strings.Repeat("a", 1<<10), "", 1)
		}
		c := runsAt(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, node)
		})
		data, b, err := c.Backup(t.Context(), remediate.Target{Node: "n1", NodeUID: "u1"})
		if !saved {
			assert.ErrorContains(t, err, "more than the")
			continue
		}
		require.NoError(t, err)
		assert.Len(t, data, len(node))
		assert.Equal(t, remediate.Backup{UID: "u1", ResourceVersion: "1"}, b)
	}
}
