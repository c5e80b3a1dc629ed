package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
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
			k8stest.Status(w, http.StatusOK, "", "n")
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
		k8stest.Status(w, http.StatusConflict, "Conflict", "h")
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
					k8stest.Status(w, http.StatusTooManyRequests, "TooManyRequests", "n")
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
	backup := fmt.Appendf(nil, strings.Replace(node, "u2", "u1", 1), `,"labels":{"a":"1"},"annotations":{"b":"2"}`)
	run := toDelete
	run.NewNodeUID = "u2"
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"no answer in time": func(w http.ResponseWriter) { k8stest.Status(w, http.StatusGatewayTimeout, "Timeout", "n") },
		"a failed call":     func(w http.ResponseWriter) { k8stest.Status(w, http.StatusInternalServerError, "InternalError", "n") },
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

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// serversAt is one API server as a kubeconfig names it.
func serversAt(t *testing.T, kubeconfig string) *client.Servers {
	t.Helper()
	s := client.NewServer("workload", kubeconfig, false, nil, zap.NewNop())
	require.NoError(t, s.Connect())
	return &client.Servers{Work: s, Manage: s, Served: client.ClusterGVR}
}

// served is an API server that is this handler: only for answers that a real one does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *client.Servers {
	t.Helper()
	return serversAt(t, k8stest.Served(t, h))
}

func runsAt(t *testing.T, h http.HandlerFunc) *Runs {
	t.Helper()
	return NewRuns(served(t, h), nil)
}

func handoversAt(t *testing.T, h http.HandlerFunc) Handovers {
	t.Helper()
	return NewHandovers(served(t, h), func(schema.GroupKind) bool { return false }, func(c *policy.Check) *policy.Check { return c })
}

// dial is a control plane with the rights that the product ships.
func dial(t *testing.T, c *rig.ControlPlane) *client.Servers {
	t.Helper()
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	return serversAt(t, path)
}

func announcerAt(t *testing.T, c *rig.ControlPlane) *Announcer {
	t.Helper()
	return NewAnnouncer(dial(t, c).Work)
}

// The reason of the condition Disabled does not depend on the words of the message.
func TestReasonOfADisabledNodeCheck(t *testing.T) {
	r := policy.CheckReport{State: policy.StateDisabled, Message: "MachineHealthCheck is what its template is called"}
	assert.Equal(t, "RemediationTemplateInvalid", disabledCondition(&r).reason)
	r.Conflicting, r.Message = true, "another check may remediate the same Nodes"
	assert.Equal(t, "ConflictingMachineHealthCheckDetected", disabledCondition(&r).reason)
}

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Hour)
)

func transition(l conditionList, kind string) string {
	_, m := l.find(kind)
	text, _ := m["lastTransitionTime"].(string)
	return text
}

// An older condition's time moves with its message, too; a standard one's only
// with its status.
func TestTransitionTimes(t *testing.T) {
	blocked := condition{kind: "RemediationAllowed", status: "False", severity: "Warning", reason: "TooManyUnhealthy", message: "2 of 3"}
	worse, open := blocked, condition{kind: "RemediationAllowed", status: "True", reason: "RemediationAllowed"}
	worse.message = "3 of 3"
	for which, moves := range map[conditionStyle]bool{severe: true, standard: false} {
		first := conditionList{}.with(which, blocked, noon)
		again := first.with(which, blocked, later)
		assert.Equal(t, first, again, "nothing is written when nothing changed")
		changed := first.with(which, worse, later)
		assert.NotEqual(t, first, changed)
		assert.Equal(t, moves, transition(changed, "RemediationAllowed") == "2026-01-01T13:00:00Z")
		assert.Equal(t, "2026-01-01T13:00:00Z", transition(first.with(which, open, later), "RemediationAllowed"))
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	l := conditionList{map[string]any{"type": "Zeal", "status": "True"}, "nonsense", map[string]any{"type": "Ardour", "status": "True"}}
	got := l.with(severe, condition{kind: "Middle", status: "True"}, noon)
	assert.Len(t, got, 4)
	assert.Len(t, l, 3, "the list that was read is not written")
	for _, kind := range []string{"Zeal", "Ardour", "Middle"} {
		assert.Equal(t, "True", got.status(kind))
	}
}

func TestStatusOfCountsOnly(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "status": map[string]any{
		"expectedMachines": int64(3), "currentHealthy": int64(3), "remediationsAllowed": int64(1),
		"conditions": []any{map[string]any{"type": "RemediationAllowed", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}},
	}}}
	r := policy.CheckReport{APIVersion: policy.OpenShiftMachineAPI, Expected: 3, Healthy: 3, RemediationsAllowed: 1, Allowed: true}
	assert.Empty(t, changedStatus(live, &r, later))
	r.Healthy, r.RemediationsAllowed = 2, 0
	assert.Equal(t, map[string]any{"currentHealthy": int64(2), "remediationsAllowed": int64(0)}, changedStatus(live, &r, later))
}

// OwnerRemediated False in either list makes a verdict of ours a deletion.
func TestVerdictThatWouldDeleteTheMachine(t *testing.T) {
	marked := []any{map[string]any{"type": "OwnerRemediated", "status": "False"}}
	waiting := []any{map[string]any{"type": "OwnerRemediated", "status": "True"}}
	for name, c := range map[string]struct {
		version string
		status  map[string]any
		deletes bool
	}{
		"standard":                {"v1beta2", map[string]any{"conditions": marked}, true},
		"old, of v1beta2":         {"v1beta2", map[string]any{"deprecated": map[string]any{"v1beta1": map[string]any{"conditions": marked}}}, true},
		"old, of v1beta1":         {"v1beta1", map[string]any{"conditions": marked}, true},
		"only old is left behind": {"v1beta1", map[string]any{"conditions": marked, "v1beta2": map[string]any{"conditions": waiting}}, true},
		"standard of v1beta1":     {"v1beta1", map[string]any{"v1beta2": map[string]any{"conditions": marked}}, true},
		"owner at work":           {"v1beta2", map[string]any{"conditions": waiting}, false},
		"none":                    {"v1beta2", map[string]any{}, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/" + c.version, "kind": "Machine", "status": c.status}}
		assert.Equal(t, c.deletes, wouldDelete(u), name)
	}
}

// A core provider from before v1beta2 keeps only the old list of a Machine that was handed to its owner: there that list says so, or the run
// would hand the Machine over again and again, and never be done. // I14, L1
func TestMarkedWhereOnlyTheOldListIsKept(t *testing.T) {
	condition := func(kind, status string) map[string]any { return map[string]any{"type": kind, "status": status} }
	both := []any{condition("HealthCheckSucceeded", "False"), condition("OwnerRemediated", "False")}
	for name, c := range map[string]struct {
		version string
		status  map[string]any
		marked  bool
	}{
		"only old of v1beta1":      {"v1beta1", map[string]any{"conditions": both}, true},
		"only half of it":          {"v1beta1", map[string]any{"conditions": both[1:]}, false},
		"old, and the owner began": {"v1beta1", map[string]any{"conditions": both, "v1beta2": map[string]any{"conditions": []any{condition("OwnerRemediated", "True")}}}, false},
		"standard of v1beta1":      {"v1beta1", map[string]any{"v1beta2": map[string]any{"conditions": both}}, true},
		"standard":                 {"v1beta2", map[string]any{"conditions": both}, true},
		"what v1beta2 ignores":     {"v1beta2", map[string]any{"deprecated": map[string]any{"v1beta1": map[string]any{"conditions": both}}}, false},
		"none":                     {"v1beta1", map[string]any{}, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/" + c.version, "kind": "Machine", "status": c.status}}
		assert.Equal(t, c.marked, IsMarked(u), name)
	}
}

// What a kernel has not delivered when an isolation is given up must not be delivered later: when a partition heals, the host may be on again.
// Its connection ends at once and by a reset, so that nothing of it is repeated; over HTTP/2 also that which others share. So it does if only one
// of many writes has no answer. // I1
func TestUnansweredIsolationIsRevoked(t *testing.T) {
	isolated := toDelete
	isolated.Isolated = noon
	for name, c := range map[string]struct {
		http2  bool
		run    remediate.Run
		action remediate.Action
	}{
		"HTTP/1.1":                {false, toDelete, remediate.IsolateNode},
		"HTTP/2":                  {true, toDelete, remediate.IsolateNode},
		"a release beside others": {true, isolated, remediate.ReleasePods},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, c.http2, r.ProtoMajor == 2)
				switch w.Header().Set("Content-Type", "application/json"); r.Method + path.Base(r.URL.Path) {
				case "GETpods":
					_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"d","name":"p","uid":"p"},"spec":{"nodeName":"n"}}]}`)
				case "GETvolumeattachments":
					_, _ = io.WriteString(w, `{"kind":"VolumeAttachmentList","apiVersion":"storage.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"v","uid":"v"},"spec":{"nodeName":"n"}}]}`)
				case "GETn":
					k8stest.Status(w, http.StatusNotFound, "NotFound", "n")
				case "DELETEp":
					k8stest.Status(w, http.StatusForbidden, "Forbidden", "p")
				default:
					_, _ = io.Copy(io.Discard, r.Body) // before that nothing looks whether the client has gone
					cancel()
					<-r.Context().Done()
				}
			}))
			server.Listener = watched{server.Listener, ended}
			if server.EnableHTTP2 = c.http2; c.http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			file := k8stest.Kubeconfig(t, server.URL)
			text := must.Do(os.ReadFile(file))(t)
			require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte("{server:"), []byte("{insecure-skip-tls-verify: true, server:"), 1), 0o600))

			require.ErrorIs(t, NewRuns(serversAt(t, file), nil).Act(ctx, c.run, c.action, nil, saved7), context.Canceled)
			select {
			case err := <-ended:
				assert.ErrorIs(t, err, syscall.ECONNRESET)
			case <-time.After(pace.Hang):
				assert.Fail(t, "the connection lives on")
			}
		})
	}
}

// A kubeconfig may lead to another cluster since the look, where no Node of that name says nothing about its host. A deletion of the
// Node names its UID; pods and VolumeAttachments are found by the name of the Node. // I1, I27
func TestReleaseInAnotherClusterDeletesNothing(t *testing.T) {
	for cluster, deletes := range map[string]int32{"c1": 2, "c2": 0} {
		var deleted atomic.Int32
		c := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
			switch w.Header().Set("Content-Type", "application/json"); r.Method + path.Base(r.URL.Path) {
			case "GETpods":
				_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"d","name":"p","uid":"p"},"spec":{"nodeName":"n"}}]}`)
			case "GETvolumeattachments":
				_, _ = io.WriteString(w, `{"kind":"VolumeAttachmentList","apiVersion":"storage.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"v","uid":"v"},"spec":{"nodeName":"n"}}]}`)
			case "GET" + client.IdentityNamespace:
				_, _ = fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q,"resourceVersion":"1"}}`, cluster)
			case "GETn":
				k8stest.Status(w, http.StatusNotFound, "NotFound", "n")
			default:
				deleted.Add(1)
				k8stest.Status(w, http.StatusOK, "", path.Base(r.URL.Path))
			}
		})
		run := toDelete
		run.Isolated, run.Target.ClusterUID = noon, "c1"
		err := c.Act(t.Context(), run, remediate.ReleasePods, nil, saved7)
		assert.Equal(t, deletes == 0, err != nil, "%s: %v", cluster, err)
		assert.Equal(t, deletes, deleted.Load(), cluster)
	}
}

// watched tells how the other side ended a connection.
type watched struct {
	net.Listener
	ended chan error
}

func (l watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return watchedConn{c, l.ended}, err
}

type watchedConn struct {
	net.Conn
	ended chan error
}

func (c watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(err)
	return n, err
}

// Write may be told of a reset in place of Read, which then finds a mere end.
func (c watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(err)
	return n, err
}

func (c watchedConn) note(err error) {
	if timeout := net.Error(nil); err == nil || errors.As(err, &timeout) && timeout.Timeout() { // the server ends its own reads so
		return
	}
	select {
	case c.ended <- err:
	default:
	}
}

// A request for another remediator is not made by a process that was frozen meanwhile: whoever leads the cluster now may have found that it
// was never made, and act itself. // I19, I22
func TestRequestWhoseTimeIsOverIsNotMade(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	c := runsAt(t, func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		k8stest.Status(w, http.StatusForbidden, "Forbidden", "n")
	})
	d := prepared{&unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.io/v1", "kind": "Repair", "metadata": map[string]any{"name": "n", "annotations": map[string]any{}}}},
		c.servers.Work.API().Dynamic.Resource(schema.GroupVersionResource{Group: "x.io", Version: "v1", Resource: "repairs"}).Namespace("ns")}
	over := bmc.Until(t.Context(), func() time.Time { return time.Now().Add(-time.Second) })
	_, err := d.create(over, request.Object{Kind: "Repair", Name: "n", Mark: "s/c/r"}, "check")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, sent.Load())
	_, err = d.create(t.Context(), request.Object{Kind: "Repair", Name: "n", Mark: "s/c/r"}, "check")
	require.ErrorIs(t, err, request.ErrNotMade)
	require.EqualValues(t, 1, sent.Load())
}
