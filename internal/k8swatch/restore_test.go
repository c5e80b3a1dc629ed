package k8swatch

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/law"
)

func backupOf(t require.TestingT, n *corev1.Node) []byte {
	data, err := json.Marshal(n)
	require.NoError(t, err)
	return data
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
		s, err := mergeBackups(backups, nil, "new", nil)
		require.NoError(t, err)
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
	s, err := mergeBackups([][]byte{backupOf(t, old), backupOf(t, newer)}, nil, "new", nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"zone": "b", "only-old": "1"}, s.labels)
	assert.True(t, s.unschedulable, "the newer Node had only not been restored yet")
	require.Len(t, s.taints, 1)
	assert.Equal(t, "new", s.taints[0].Value)
}

func TestRestorePatchBindsToOneVersionOfOneNode(t *testing.T) { // I2
	live := nodeWith(nil, nil, false)
	live.UID, live.ResourceVersion = "u", "7"
	patch, err := change{labels: map[string]string{"a": "1"}, taints: []corev1.Taint{}}.patch(live)
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"uid":"u","resourceVersion":"7","labels":{"a":"1"}},"spec":{"taints":[]}}`, string(patch))
}

func TestUnreadableBackupIsAnError(t *testing.T) {
	_, err := mergeBackups([][]byte{[]byte("{")}, nil, "new", nil)
	assert.ErrorContains(t, err, "read the backup")
}
