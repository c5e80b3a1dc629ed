package write

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func backupOf(t require.TestingT, n *corev1.Node) []byte {
	return must.Do(json.Marshal(n))(t)
}

func nodeWith(labels, annotations map[string]string, cordoned bool, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{}
	n.Labels, n.Annotations = labels, annotations
	n.Spec.Unschedulable, n.Spec.Taints = cordoned, taints
	return n
}

// apply does to a Node what the API server does with the patch.
func apply(n *corev1.Node, c change) *corev1.Node {
	out := n.DeepCopy()
	out.Labels, out.Annotations = joined(n.Labels, c.labels), joined(n.Annotations, c.annotations)
	if c.taints != nil {
		out.Spec.Taints = c.taints
	}
	out.Spec.Unschedulable = n.Spec.Unschedulable || c.cordon
	return out
}

func joined(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

var (
	someKey = rapid.SampledFrom([]string{"a", "b", "node-role.kubernetes.io/worker", "kubernetes.io/hostname",
		"csi.volume.kubernetes.io/nodeid", "machineconfiguration.openshift.io/state"})
	someMap   = rapid.MapOfN(someKey, rapid.SampledFrom([]string{"", "1", "2"}), 0, 5)
	someTaint = rapid.Custom(func(t *rapid.T) corev1.Taint {
		return corev1.Taint{
			Key: rapid.SampledFrom([]string{"dedicated", "gpu", corev1.TaintNodeNotReady, corev1.TaintNodeUnschedulable,
				corev1.TaintNodeOutOfService, "node.cloudprovider.kubernetes.io/uninitialized"}).Draw(t, "key"),
			Value:  rapid.SampledFrom([]string{"", "nodeshutdown"}).Draw(t, "value"),
			Effect: rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}).Draw(t, "effect"),
		}
	})
	someNode = rapid.Custom(func(t *rapid.T) *corev1.Node {
		taints := rapid.SliceOfNDistinct(someTaint, 0, 4, func(t corev1.Taint) string { return t.Key + string(t.Effect) })
		return nodeWith(someMap.Draw(t, "labels"), someMap.Draw(t, "annotations"), rapid.Bool().Draw(t, "cordoned"), taints.Draw(t, "taints")...)
	})
)

func TestRestoreLaws(t *testing.T) { // I21
	law.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(someNode, 1, 3).Draw(t, "backups")
		var backups [][]byte
		for _, n := range nodes {
			backups = append(backups, backupOf(t, n))
		}
		live := someNode.Draw(t, "live")
		isolation := rapid.SampledFrom([]remediate.Isolation{remediate.IsolateDelete, remediate.IsolateTaint}).Draw(t, "isolation")
		s := must.Do(mergeBackups(backups, nil, "new", nil))(t)
		after := apply(live, missing(s, live, isolation))

		assert.True(t, missing(s, after, isolation).empty(), "restoring once is enough")
		for k, v := range live.Labels {
			assert.Equal(t, v, after.Labels[k], "a live label wins")
		}
		for k, v := range live.Annotations {
			assert.Equal(t, v, after.Annotations[k], "a live annotation wins")
		}
		for _, b := range nodes {
			for k := range b.Labels {
				_, had := live.Labels[k]
				_, has := after.Labels[k]
				assert.Equal(t, had || k != "kubernetes.io/hostname" && k != "csi.volume.kubernetes.io/nodeid", has, "label %s", k)
			}
			for _, taint := range b.Spec.Taints {
				assert.Equal(t, !neverRestore(nil).taint(taint.Key) || client.HasTaint(live.Spec.Taints, taint), client.HasTaint(after.Spec.Taints, taint) ||
					isolation == remediate.IsolateTaint && taint.MatchTaint(&client.OutOfService) && client.HasTaint(live.Spec.Taints, taint), "taint %v", taint)
			}
			if b.Spec.Unschedulable {
				assert.True(t, after.Spec.Unschedulable, "a cordon is restored")
			}
		}
		if isolation == remediate.IsolateTaint {
			assert.False(t, client.HasTaint(after.Spec.Taints, client.OutOfService), "our own taint is gone")
		}
	})
}

func TestNewestBackupWinsAmongBackups(t *testing.T) {
	old := nodeWith(map[string]string{"zone": "a", "only-old": "1"}, nil, true, corev1.Taint{Key: "gpu", Value: "old", Effect: corev1.TaintEffectNoSchedule})
	newer := nodeWith(map[string]string{"zone": "b"}, nil, false, corev1.Taint{Key: "gpu", Value: "new", Effect: corev1.TaintEffectNoSchedule})
	s := must.Do(mergeBackups([][]byte{backupOf(t, old), backupOf(t, newer)}, nil, "new", nil))(t)
	assert.Equal(t, map[string]string{"zone": "b", "only-old": "1"}, s.labels)
	assert.True(t, s.unschedulable, "the newer Node had only not been restored yet")
	require.Len(t, s.taints, 1)
	assert.Equal(t, "new", s.taints[0].Value)
}

func TestRestorePatchBindsToOneVersionOfOneNode(t *testing.T) { // I2
	live := nodeWith(nil, nil, false)
	live.UID, live.ResourceVersion = "u", "7"
	patch := must.Do(change{labels: map[string]string{"a": "1"}, taints: []corev1.Taint{}}.patch(live))(t)
	assert.JSONEq(t, `{"metadata":{"uid":"u","resourceVersion":"7","labels":{"a":"1"}},"spec":{"taints":[]}}`, string(patch))
}

func TestUnreadableBackupIsAnError(t *testing.T) {
	_, err := mergeBackups([][]byte{[]byte("{")}, nil, "new", nil)
	assert.ErrorContains(t, err, "read the backup")
}

// owned is something that its owner set on a Node and takes off again.
type owned struct {
	set, takeOff func(*corev1.Node)
	is           func(*corev1.Node) bool
}

func ownedTaint(key string) owned {
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	return owned{
		set: func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) },
		takeOff: func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		},
		is: func(n *corev1.Node) bool { return client.HasTaint(n.Spec.Taints, taint) },
	}
}

var (
	ownedLabel = owned{
		set:     func(n *corev1.Node) { n.Labels["example.com/state"] = "busy" },
		takeOff: func(n *corev1.Node) { delete(n.Labels, "example.com/state") },
		is:      func(n *corev1.Node) bool { return n.Labels["example.com/state"] != "" },
	}
	ownedAnnotation = owned{
		set:     func(n *corev1.Node) { n.Annotations["example.com/state"] = "busy" },
		takeOff: func(n *corev1.Node) { delete(n.Annotations, "example.com/state") },
		is:      func(n *corev1.Node) bool { return n.Annotations["example.com/state"] != "" },
	}
	ownedCordon = owned{
		set:     func(n *corev1.Node) { n.Spec.Unschedulable = true },
		takeOff: func(n *corev1.Node) { n.Spec.Unschedulable = false },
		is:      func(n *corev1.Node) bool { return n.Spec.Unschedulable },
	}
)

// ownerStory is step 5 of a run whose Node wore something that its owner takes off again, as the
// operator of a network plugin takes off its taint when its agent runs.
type ownerStory struct {
	live          *corev1.Node
	backups       [][]byte
	run           remediate.Run
	answer        []string // of the last restore; lost when fenced is killed
	writes, taken int
}

func newOwnerStory(t *testing.T, o owned) *ownerStory {
	old := nodeWith(map[string]string{"rack": "r1"}, map[string]string{"team": "db"}, false, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	old.UID = "u1"
	o.set(old)
	st := &ownerStory{live: nodeWith(map[string]string{}, map[string]string{}, false), backups: [][]byte{backupOf(t, old)}}
	st.live.UID = "u2"
	st.run = remediate.Run{Step: remediate.RestoreNode, Started: storyBegan, StepStarted: storyBegan, OnSeen: storyBegan, NewNodeUID: "u2", Isolation: remediate.IsolateDelete}
	st.run.Target.Node, st.run.Target.NodeUID, st.run.Target.SystemUUID = "w1", "u1", "00000000-0000-4000-8000-000000000001"
	st.run.Limits.RestoreTimeout, st.run.Limits.ReadyTimeout, st.run.Limits.RunTimeout = 10*time.Minute, 15*time.Minute, 2*time.Hour
	return st
}

var storyBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// round is one look, one answer of the step, and what it orders. Its record goes through the store.
func (st *ownerStory) round(t *testing.T, o owned, now time.Time, ready bool) {
	t.Helper()
	s := must.Do(mergeBackups(st.backups, st.run.Restored, st.live.UID, nil))(t)
	var seen remediate.Observation
	seen.API, seen.Power.State = remediate.APIReachable, bmc.On
	seen.Node = remediate.Node{Exists: remediate.Yes, UID: "u2", SystemUUID: st.run.Target.SystemUUID, BootID: "b2", Ready: remediate.AnswerOf(ready)}
	seen.Restored, seen.ReadBack = remediate.AnswerOf(missing(s, st.live, st.run.Isolation).empty()), slices.Concat(s.on(st.live), st.answer)
	next, action, _ := remediate.Next(st.run, seen, now)
	record := must.Do(json.Marshal(next))(t)
	st.run = remediate.Run{}
	require.NoError(t, json.Unmarshal(record, &st.run))
	if action != remediate.RestoreTargetNode {
		return
	}
	s = must.Do(mergeBackups(st.backups, st.run.Restored, st.live.UID, nil))(t)
	had := o.is(st.live)
	st.live = apply(st.live, missing(s, st.live, st.run.Isolation))
	if st.answer = s.on(st.live); !had && o.is(st.live) {
		st.writes++
	}
}

// Whatever a Node wore is written once. Whoever takes it off then is its owner, and the run is Done
// with it off, whether fenced looks before that or not. // I21
func TestOwnerOfASavedKeyIsNotFought(t *testing.T) {
	for name, o := range map[string]owned{
		"taint": ownedTaint("aci-containers-host/unavailable"), "label": ownedLabel, "annotation": ownedAnnotation, "cordon": ownedCordon,
	} {
		for after, tenths := range map[string]int{"before the next look": 1, "after it": 15} {
			for _, readyFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/readyFirst=%t", name, after, readyFirst), func(t *testing.T) {
					st, on := newOwnerStory(t, o), 0
					ready := map[bool]int{true: 0, false: 250}[readyFirst]
					for tenth := 0; tenth < 20*600 && st.run.Step == remediate.RestoreNode; tenth++ {
						if tenth%10 == 0 {
							st.round(t, o, storyBegan.Add(time.Duration(tenth)*time.Second/10), tenth >= ready)
						}
						if on++; !o.is(st.live) {
							on = 0
						} else if on > tenths {
							o.takeOff(st.live)
							st.taken++
						}
					}
					assert.Equal(t, remediate.Done, st.run.Step, "%s: %s", st.run.Reason, st.run.Note)
					assert.Equal(t, 1, st.writes)
					assert.Equal(t, "r1", st.live.Labels["rack"], "nobody else took it off")
					if !readyFirst {
						assert.Equal(t, 1, st.taken)
						assert.False(t, o.is(st.live), "its owner took it off")
					}
				})
			}
		}
	}
}

// A fenced that is killed before it can save what the API server answered writes it once more, and no
// more than that. // I19, I21
func TestKilledRestoreWritesOnceMore(t *testing.T) {
	o := ownedTaint("aci-containers-host/unavailable")
	st := newOwnerStory(t, o)
	for second := range 60 {
		st.round(t, o, storyBegan.Add(time.Duration(second)*time.Second), second > 30)
		if o.takeOff(st.live); st.writes == 1 {
			st.answer = nil // killed; another process goes on with the record
		}
	}
	assert.Equal(t, remediate.Done, st.run.Step)
	assert.Equal(t, 2, st.writes)
}

// What a controller sets by the state of the Node is of the host before its boot. What people set is
// restored, also where it has a similar key. // I21
func TestStateOfTheNodeIsNotRestored(t *testing.T) {
	for _, key := range []string{"node.cilium.io/agent-not-ready", "ebs.csi.aws.com/agent-not-ready", "readiness.k8s.io/network-not-ready",
		"node.cluster.x-k8s.io/uninitialized", "node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/unreachable", "medik8s.io/remediation",
		"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/gpu", "karpenter.sh/disrupted",
		"example.com/slot", "a.example.com/state"} {
		st := newOwnerStory(t, ownedTaint(key))
		s := must.Do(mergeBackups(st.backups, nil, "u2", []string{"example.com/slot", "*.example.com/state"}))(t)
		require.Len(t, s.taints, 1, key)
		assert.Equal(t, "dedicated", s.taints[0].Key)
	}
	people := map[string]string{"node.cluster.x-k8s.io/pool": "a", "node.kubernetes.io/instance-type": "r640", "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
		"example.com/state": "x", "b.a.example.com/x": ""}
	n := nodeWith(people, map[string]string{"readiness.k8s.io/bootstrap-completed-net": "true", "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", "example.com/slot": "3"}, false,
		corev1.Taint{Key: "agent-not-ready", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "a/b-agent-not-ready", Effect: corev1.TaintEffectNoSchedule})
	s := must.Do(mergeBackups([][]byte{backupOf(t, n)}, nil, "u2", []string{"example.com/slot"}))(t)
	assert.Equal(t, people, s.labels)
	assert.Equal(t, map[string]string{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}, s.annotations)
	assert.Len(t, s.taints, 2)
}

// In a later attempt the Node that was read back is the one whose backup counts: what its owner took
// off does not come back, and what the attempt did not get to restore does. // I21
func TestOwnersWordCountsInLaterAttempts(t *testing.T) {
	first := nodeWith(map[string]string{"kept": "1", "taken": "1", "unrestored": "1"}, nil, true)
	second := nodeWith(map[string]string{"kept": "2", "new": "2"}, nil, false) // saved after its owner took "taken" and the cordon off
	first.UID, second.UID = "u1", "u2"
	restored := map[string]string{"label kept": "u2", "label taken": "u2", "cordon": "u2"}
	for _, c := range []struct {
		name    string
		backups []*corev1.Node
		live    types.UID
		labels  map[string]string
		cordon  bool
	}{
		{"the Node that was read back", []*corev1.Node{first}, "u2", map[string]string{"unrestored": "1"}, false},
		{"the next one", []*corev1.Node{first, second}, "u3", map[string]string{"kept": "2", "new": "2", "unrestored": "1"}, false},
		{"the next one, and nobody saved the one that was read back", []*corev1.Node{first}, "u3", map[string]string{"kept": "1", "taken": "1", "unrestored": "1"}, true},
	} {
		var backups [][]byte
		for _, n := range c.backups {
			backups = append(backups, backupOf(t, n))
		}
		s := must.Do(mergeBackups(backups, restored, c.live, nil))(t)
		assert.Equal(t, c.labels, s.labels, c.name)
		assert.Equal(t, c.cordon, s.unschedulable, c.name)
	}
}

// A tainted Node stays, and its host may be off for long. What somebody takes off it meanwhile, a role or a cordon, was not lost by the isolation,
// and does not come back, not even from the backup of an earlier Node. // I21
func TestOwnerTakesOffATaintedNodeWhatWasSaved(t *testing.T) {
	const role = "node-role.kubernetes.io/control-plane"
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	before := nodeWith(map[string]string{role: "", "lost": "1"}, nil, true, gpu)
	saved := nodeWith(map[string]string{role: "", "rack": "r1"}, map[string]string{"team": "db"}, true, gpu)
	live := nodeWith(map[string]string{"rack": "r1"}, nil, false, client.OutOfService)
	before.UID, saved.UID, live.UID = "u0", "u1", "u1"
	for name, c := range map[string]struct {
		backups []*corev1.Node
		labels  map[string]string
	}{
		"one attempt":                            {[]*corev1.Node{saved}, map[string]string{"rack": "r1"}},
		"another one":                            {[]*corev1.Node{saved, saved}, map[string]string{"rack": "r1"}},
		"a Node before was gone before its role": {[]*corev1.Node{before, saved}, map[string]string{"rack": "r1", "lost": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var backups [][]byte
			for _, n := range c.backups {
				backups = append(backups, backupOf(t, n))
			}
			s := must.Do(mergeBackups(backups, nil, live.UID, nil))(t)
			after := apply(live, missing(s, live, remediate.IsolateTaint))
			assert.Equal(t, c.labels, after.Labels)
			assert.Empty(t, after.Annotations)
			assert.Empty(t, after.Spec.Taints, "fenced takes off its own")
			assert.False(t, after.Spec.Unschedulable)
			assert.True(t, missing(s, after, remediate.IsolateTaint).empty())
		})
	}
}

// The answer of the API server to a restore shows what was read back, also where it refused a part. // I21
func TestRestoreTellsWhatWasReadBack(t *testing.T) {
	const node = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u2","resourceVersion":"9"%s}}`
	backup := fmt.Appendf(nil, strings.Replace(node, "u2", "u1", 1), `,"labels":{"a":"1","dropped":"1"},"annotations":{"b":"2"}`)
	run, patches, refuse := toDelete, 0, false
	run.NewNodeUID = "u2"
	c := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
		shown := ""
		if r.Method == http.MethodPatch {
			patches++
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			var p struct {
				Metadata struct{ Labels, Annotations map[string]string }
			}
			assert.NoError(t, json.Unmarshal(body, &p))
			if refuse && p.Metadata.Annotations != nil {
				k8stest.Status(w, http.StatusForbidden, "Forbidden", "n")
				return
			}
			if shown = `,"labels":{"a":"1"}`; p.Metadata.Annotations != nil {
				shown += `,"annotations":{"b":"2"}`
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, node, shown)
	})
	keys := must.Do(c.Restore(t.Context(), run, [][]byte{backup}))(t)
	assert.Equal(t, []string{"annotation b", "label a"}, keys, "a webhook dropped the other label")

	refuse = true
	keys, err := c.Restore(t.Context(), run, [][]byte{backup})
	require.Error(t, err)
	assert.Equal(t, []string{"label a"}, keys)

	patches, run.Restored = 0, map[string]string{"annotation b": "u2", "label a": "u2", "label dropped": "u2"}
	must.Do(c.Restore(t.Context(), run, [][]byte{backup}))(t)
	assert.Zero(t, patches)
}

// A change is bound to the Node that it was worked out from: what somebody else wrote since then makes it fail. // I2, I21
func TestRestoreOfAStaleNodeConflicts(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	nodes, name := c.Client().CoreV1().Nodes(), rigtest.Name("node")
	old := must.Do(c.CreateNode(ctx, rig.Node{Name: name}))(t)
	must.Do(nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"count":"1"}}}`), metav1.PatchOptions{}))(t)
	s := must.Do(mergeBackups([][]byte{fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":"before","labels":{"rack":"r1"}}}`, name)}, nil, old.UID, nil))(t)
	_, err := patchNode(ctx, dial(t, c).Work.API(), old, missing(s, old, remediate.IsolateDelete), "restore")
	require.True(t, apierrors.IsConflict(err), "%v: what it was worked out from is no more", err)
	require.NotContains(t, must.Do(nodes.Get(ctx, name, metav1.GetOptions{}))(t).Labels, "rack")
}

// A restore that fails only because the Node changed meanwhile says so. One that was refused, and whose parts fail because the
// Node changed meanwhile, says what was refused.
func TestRestoreTellsAConflictFromARefusal(t *testing.T) {
	const node = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u2","resourceVersion":"9"}}`
	backup := []byte(`{"metadata":{"name":"n","uid":"u1","labels":{"a":"1"},"annotations":{"b":"2"}}}`)
	run := toDelete
	run.NewNodeUID = "u2"
	for name, c := range map[string]struct {
		first  int // the status of the first write, which is the whole
		reason metav1.StatusReason
	}{
		"only changed":       {http.StatusConflict, metav1.StatusReasonConflict},
		"refused, then that": {http.StatusForbidden, metav1.StatusReasonForbidden},
	} {
		writes := 0
		runs := runsAt(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodPatch:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, node)
			case writes == 0:
				writes++
				k8stest.Status(w, c.first, string(c.reason), "n")
			default:
				k8stest.Status(w, http.StatusConflict, "Conflict", "n")
			}
		})
		_, err := runs.Restore(t.Context(), run, [][]byte{backup})
		assert.Equal(t, c.reason, apierrors.ReasonForError(err), name)
		assert.Equal(t, c.reason == metav1.StatusReasonConflict, errors.Is(err, remediate.ErrChanged), name)
	}
}
