package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// write is a write of fenced that an API server did, by its own audit log.
type write struct{ verb, resource, subresource, name string }

// writes are those of fenced to one resource of one API server, in order.
func writes(t *testing.T, c *rig.ControlPlane, resource string) []write {
	t.Helper()
	log, err := c.AuditLog()
	require.NoError(t, err)
	var found []write
	for line := range bytes.Lines(log) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Name string }
			ResponseStatus struct{ Code int }
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		require.NoError(t, json.Unmarshal(line, &e))
		if e.User.Username == rig.FencedUser && e.ObjectRef.Resource == resource && e.ResponseStatus.Code < 300 {
			found = append(found, write{e.Verb, resource, e.ObjectRef.Subresource, e.ObjectRef.Name})
		}
	}
	return found
}

// writesBut are the writes to all objects but one.
func writesBut(t *testing.T, c *rig.ControlPlane, resource, name string) []write {
	t.Helper()
	return slices.DeleteFunc(writes(t, c, resource), func(w write) bool { return w.name == name })
}

// planned asks for the plan until it says about a node what is wanted, and
// checks the exit status that belongs to such a plan.
func planned(ctx context.Context, t *testing.T, s *scene.Scene, node, refused string, exit int) wire.PlannedAction {
	t.Helper()
	var last scene.Result
	for ctx.Err() == nil {
		r, err := s.Fencectl(ctx, "plan", "-o", "json")
		require.NoError(t, err)
		last = r
		var p wire.Plan
		if r.Exit == 0 || r.Exit == 2 {
			require.NoError(t, json.Unmarshal([]byte(r.Stdout), &p))
		}
		for _, c := range p.Clusters {
			for _, a := range c.Actions {
				if a.Node == node && a.Refused == refused {
					require.Equal(t, exit, r.Exit, "fencectl plan: %s", r.Stdout)
					require.Equal(t, refused == "", a.Gate == nil, "the gate that limits: %s", r.Stdout)
					return a
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.Failf(t, "no such plan", "%q for %s; the last one, exit status %d: %s%s", refused, node, last.Exit, last.Stdout, last.Stderr)
	return wire.PlannedAction{}
}

// covered asks what the checks cover, once the view is whole, by their names.
func covered(ctx context.Context, t *testing.T, s *scene.Scene, exit int) map[string]wire.CheckCoverage {
	t.Helper()
	var v wire.Coverage
	require.Eventually(t, func() bool {
		var err error
		v, err = s.Coverage(ctx)
		if err != nil || len(v.Clusters) != 1 || v.Clusters[0].Problem != "" {
			return false
		}
		invalid := slices.ContainsFunc(v.Clusters[0].Checks, func(k wire.CheckCoverage) bool { return k.State == "Invalid" })
		return exit != 0 || !invalid // until its template is read, a check is
	}, patience, 100*time.Millisecond, "the view is whole")
	fencectl(ctx, t, s, exit, "check-config")
	checks := map[string]wire.CheckCoverage{}
	for _, k := range v.Clusters[0].Checks {
		checks[k.Name] = k
	}
	return checks
}

// gateOf is the first gate of an explanation that is closed for a reason.
func gateOf(t *testing.T, x wire.Explanation, code string) (name, value, threshold, source string) {
	t.Helper()
	for _, g := range x.Gates {
		if !g.Pass && string(g.Reason) == code {
			return g.Name, g.Value, g.Threshold, g.Source
		}
	}
	require.Failf(t, "no such gate", "%s is not closed: %+v", code, x.Gates)
	return "", "", "", ""
}

// taintWatch notes when a Node carries the out-of-service taint.
type taintWatch struct{ seen chan time.Time }

// watchTaint watches a Node until the test ends.
func watchTaint(t *testing.T, s *scene.Scene, w *scene.Worker) *taintWatch {
	t.Helper()
	events, err := s.Cluster.Client().CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + w.Name})
	require.NoError(t, err)
	tw := &taintWatch{seen: make(chan time.Time, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && outOfService(n) {
				select {
				case tw.seen <- time.Now():
				default: // the first is what counts
				}
			}
		}
	}()
	t.Cleanup(func() { events.Stop(); <-done })
	return tw
}

// first is when the taint was first seen; the run must be over.
func (w *taintWatch) first(t *testing.T) time.Time {
	t.Helper()
	select {
	case at := <-w.seen:
		return at
	default:
		require.Fail(t, "the Node was never tainted")
		return time.Time{}
	}
}

func outOfService(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// requireRebooted checks that a Node is the same as before after another boot,
// with all it wore and without the taint that fenced it.
func requireRebooted(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	assert.Equal(t, w.Registered.UID, n.UID, "the same Node")
	assert.NotEqual(t, w.Registered.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID)
	assert.Empty(t, w.Undressed(n), "all that the Node wore is there")
	assert.False(t, outOfService(n), "the out-of-service taint is gone")
	requireNoDeletion(t, s, w)
}

// requireNotAsked checks that nobody said anything to the BMCs of workers, and
// that nothing happened to their Nodes.
func requireNotAsked(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	for _, name := range names {
		w := s.Worker(name)
		assert.True(t, w.BMC.Power(), "%s is on", name)
		assert.Zero(t, w.FirstAsked(), "the BMC of %s was asked", name)
		untouched(ctx, t, s, w)
	}
}
