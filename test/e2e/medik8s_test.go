package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// requestsFor are the requests of fenced's kind for a Node.
func requestsFor(ctx context.Context, t *testing.T, s *scene.Scene, node string) (all []unstructured.Unstructured) {
	t.Helper()
	l, err := s.Cluster.Dynamic().Resource(requestResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, r := range l.Items {
		if r.GetAnnotations()["remediation.medik8s.io/node-name"] == node {
			all = append(all, r)
		}
	}
	return all
}

// awaitPhase waits until the one request for a Node has this phase, Processing and Succeeded.
func awaitPhase(ctx context.Context, t *testing.T, s *scene.Scene, node, phase, processing, succeeded string) unstructured.Unstructured {
	t.Helper()
	var last []unstructured.Unstructured
	ok := assert.Eventually(t, func() bool {
		if last = requestsFor(ctx, t, s, node); len(last) != 1 {
			return false
		}
		got, _, _ := unstructured.NestedString(last[0].Object, "status", "phase")
		return got == phase && conditionIn(&last[0], "Processing", "status", "conditions") == processing &&
			conditionIn(&last[0], "Succeeded", "status", "conditions") == succeeded
	}, patience, 50*time.Millisecond)
	require.True(t, ok, "the request for %s is %s, Processing=%s, Succeeded=%s; last: %v", node, phase, processing, succeeded, last)
	return last[0]
}

// NodeHealthCheck evaluates, and fenced executes. The Node is deleted after the proof, so the check
// deletes its request in mid-run: fenced's finalizer keeps it until the host is On. A stand-in for the
// check's controller evaluates the documented check, takes medik8s' Lease, and makes the request with
// the rights of configs/crds/rbac.yaml.
func TestNodeHealthCheckAsksFenced(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Machines: scene.NoMachines, Mode: "respond", CRDs: []rig.CRDs{rig.Medik8s, rig.Fenced},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.Redfish}, {Name: "well", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "node-health-check")))
	require.NoError(t, s.RunNodeHealthChecks(requesters))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	ignoreOn(w, true) // it stays off until it was looked at
	w.Kubelet.Hang()
	awaitOff(t, w)
	require.Eventually(t, func() bool {
		made := requestsFor(ctx, t, s, w.Name)
		return len(made) == 1 && made[0].GetDeletionTimestamp() != nil
	}, patience, 50*time.Millisecond, "the check deletes its request once the Node is gone")
	obj := awaitPhase(ctx, t, s, w.Name, "Running", "True", "Unknown")
	assert.True(t, held(&obj), "the host is off")
	assert.Equal(t, "False", conditionIn(&obj, "PermanentNodeDeletionExpected", "status", "conditions"))

	ignoreOn(w, false)
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Contains(t, r.Trigger, "requested by FencedRemediation "+rig.Namespace+"/hung-")
	requester{s.Cluster}.awaitGone(ctx, t, obj.GetName())
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireNotAsked(ctx, t, s, "well", "healthy")
}

// A host that fenced cannot reach: its request waits, and after the template's time the check marks it.
// fenced says that it failed, and the check goes on to MachineDeletionRemediation, which deletes the
// Machine. fenced deletes neither Machine nor Node. Stand-ins are the check's controller, with the
// rights of configs/crds/rbac.yaml, and MachineDeletionRemediation.
func TestNodeHealthCheckEscalates(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Mode: "respond", CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s, rig.Fenced}, Checks: []rig.Check{},
		Workers: []scene.Spec{{Name: "dead", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "node-health-check-escalating")))
	require.NoError(t, s.RunNodeHealthChecks(requesters))
	require.NoError(t, s.RunMachineDeletions())
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	dead := s.Worker("dead")
	dead.KillBMC()
	dead.Kubelet.Hang()
	awaitPhase(ctx, t, s, dead.Name, "Pending", "Unknown", "Unknown")
	awaitPhase(ctx, t, s, dead.Name, "Failed", "False", "False")
	require.Eventually(t, func() bool {
		d, err := s.Cluster.Deletions("machines", dead.Name)
		return err == nil && len(d) > 0
	}, patience, 100*time.Millisecond, "the Machine is deleted")
	time.Sleep(3 * time.Second) // what should not happen has time to
	d, err := s.Cluster.Deletions("machines", dead.Name)
	require.NoError(t, err)
	require.Len(t, d, 1)
	assert.Equal(t, scene.MachineDeletionUser, d[0].User)
	requireNoDeletion(t, s, dead)
	requireNotAsked(ctx, t, s, "well", "healthy")
}
