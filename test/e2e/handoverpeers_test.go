package e2e

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

const madeBy = "fenced.io/made-by"

// lifetimes are the requests of several kinds, each from its creation to its end, by the
// resourceVersions of the API server.
type lifetimes struct {
	mu   sync.Mutex
	list map[string][2]uint64 // by UID; an end of 0: it exists
}

// watchLifetimes notes every request that is made from now on.
func watchLifetimes(ctx context.Context, t *testing.T, all ...provider) *lifetimes {
	t.Helper()
	l := &lifetimes{list: map[string][2]uint64{}}
	for _, p := range all {
		w, err := p.requests().Watch(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		t.Cleanup(w.Stop)
		go func() {
			for ev := range w.ResultChan() {
				l.note(ev)
			}
		}()
	}
	return l
}

func (l *lifetimes) note(ev apiwatch.Event) {
	obj, is := ev.Object.(*unstructured.Unstructured)
	if !is {
		return
	}
	version, _ := strconv.ParseUint(obj.GetResourceVersion(), 10, 64) // 0 is found by requireOneAtATime
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := string(obj.GetUID())
	if span := l.list[uid]; ev.Type == apiwatch.Deleted {
		l.list[uid] = [2]uint64{span[0], version}
	} else if span[0] == 0 {
		l.list[uid] = [2]uint64{version, 0}
	}
}

// awaitEnded waits until so many requests have been seen, and the end of each.
func (l *lifetimes) awaitEnded(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		ended := 0
		for _, span := range l.list {
			if span[1] != 0 {
				ended++
			}
		}
		return len(l.list) == n && ended == n
	}, patience, 50*time.Millisecond, "%d requests were made, and have ended", n)
}

// requireOneAtATime requires that no two of them existed at one time.
func (l *lifetimes) requireOneAtATime(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, a := range l.list {
		require.NotZero(t, a[0])
		for other, b := range l.list {
			assert.True(t, uid == other || a[1] <= b[0] || b[1] <= a[0], "%s existed during %v, %s during %v", uid, a, other, b)
		}
	}
}

// Two instances over one etcd, and an escalation of two remediators: the owner asks the first one
// and is killed; the other instance knows of it, gives up on it, waits until it has stopped, and asks
// the second one. That instance is killed, too, and the first one, started again, deletes the request
// when the Node is well. No two requests exist at one time, and both are of one record. // I19, I22
func TestRequestsOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("300s", "2s", "timeout: 10m", "timeout: 60s").Replace(string(documented(t, "fencepolicy")))
	s := set(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{rig.Medik8s, rig.Medik8sRemediators}, Policies: map[string]string{"racks.yaml": text},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	_, shared := shareEtcd(t, s)
	require.NoError(t, s.Cluster.ApplyConfig(ctx, "kubernetes/templates.yaml"))
	template(ctx, t, s.Cluster, rebootRequests.GroupVersion().String(), "SelfNodeRemediationTemplate", "reboot")
	template(ctx, t, s.Cluster, deleteRequests.GroupVersion().String(), "MachineDeletionRemediationTemplate", "delete")
	w, a, b := s.Worker("hung"), provider{on: s.Cluster, kind: rebootRequests}, provider{on: s.Cluster, kind: deleteRequests}
	seen := watchLifetimes(ctx, t, a, b)
	owner, other, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	w.Kubelet.Hang()
	first := a.await(ctx, t, w.Name, "exists", exists)
	owner.Kill()
	a.say(ctx, t, w.Name, "True")
	obj := a.await(ctx, t, w.Name, "is given up by the other instance", timedOut)
	assert.Equal(t, first.GetUID(), obj.GetUID())
	assert.Equal(t, first.GetAnnotations()[madeBy], obj.GetAnnotations()[madeBy])
	now := other.awaitCluster(ctx, t, "it acts", acting)
	assert.Greater(t, now.Epoch, before.Epoch)
	require.Nil(t, b.get(ctx, t, w.Name), "the first remediator is still at work")
	a.say(ctx, t, w.Name, "False")
	second := b.await(ctx, t, w.Name, "exists", exists)
	assert.Equal(t, first.GetAnnotations()[madeBy], second.GetAnnotations()[madeBy], "it is the same record")

	b.say(ctx, t, w.Name, "True")
	other.Kill()
	again := owner.start()
	again.awaitCluster(ctx, t, "it acts again", acting)
	require.Equal(t, second.GetUID(), b.get(ctx, t, w.Name).GetUID())
	reboot(ctx, t, s, w)
	b.awaitGone(ctx, t, w.Name)
	seen.awaitEnded(t, 2)
	seen.requireOneAtATime(t)
	requireNoDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("well"))
}
