package k8swatch

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

var rebootGVR = schema.GroupVersionResource{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Resource: "selfnoderemediations"}

// TestHandovers: a request is made once, by the rules of its API family; fenced changes and deletes it, and never an
// object that somebody else made, that lost its mark, or whose remediator has begun meanwhile.
func TestHandovers(t *testing.T) {
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8sRemediators}}) // it gets more rights
	ctx := rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	k.cfg.StoreID = "store-1"
	h, r := NewHandovers(k), bareMetal(t, c, rig.Host{}, rig.Node{})
	from := policy.Template{APIVersion: rebootGVR.GroupVersion().String(), Kind: "SelfNodeRemediationTemplate", Namespace: rig.Namespace, Name: "t-" + r.Target.Node}
	check := &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p-" + r.Target.Node, Strategy: policy.CreateRequests, SelectsNodes: true, Template: &from}
	missing := func(want string) {
		t.Helper()
		var why string
		require.Eventually(t, func() bool {
			var err error
			why, err = h.Missing(ctx, check, from)
			return err == nil && (want == "" && why == "" || want != "" && strings.Contains(why, want))
		}, time.Minute, 50*time.Millisecond, "last: %s", why)
	}
	unknown := from
	unknown.Kind = "NoSuchTemplate"
	why, err := h.Missing(ctx, check, unknown)
	require.NoError(t, err)
	assert.Contains(t, why, "the kind NoSuchTemplate.self-node-remediation.medik8s.io is not installed")
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/templates.yaml"))
	missing("there is no SelfNodeRemediationTemplate")
	make := func(spec string) {
		t.Helper()
		require.NoError(t, c.Apply(ctx, []byte("apiVersion: "+from.APIVersion+"\nkind: "+from.Kind+"\nmetadata: {name: "+from.Name+", namespace: "+rig.Namespace+"}\nspec: "+spec+"\n")))
	}
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: ` + strings.Repeat("x", maxTemplate) + `}}}`)
	missing("")
	order := 2
	require.ErrorContains(t, h.Create(ctx, check, r.Target, from, &order, true), "more than 262144 bytes")
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: hard}}}`)
	live := func() *unstructured.Unstructured {
		u, err := c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Get(ctx, r.Target.Node, metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	seen := func() *policy.Request {
		q, err := manifest.Request(live().Object)
		require.NoError(t, err)
		return &q
	}
	for range 2 { // again changes nothing
		require.NoError(t, h.Create(ctx, check, r.Target, from, &order, true))
	}
	first := live()
	assert.Equal(t, map[string]string{"own": "1", "remediation.medik8s.io/isControlPlaneNode": ""}, first.GetLabels())
	assert.Equal(t, map[string]string{
		"remediation.medik8s.io/node-name": r.Target.Node, "remediation.medik8s.io/template-name": from.Name,
		"fenced.io/check": check.Mark(), "fenced.io/made-by": "store-1", "fenced.io/order": "2",
	}, first.GetAnnotations())
	owners := first.GetOwnerReferences()
	require.Len(t, owners, 1, "the Machine of the same namespace")
	assert.Equal(t, []string{"Machine", r.Target.Machine, r.Target.MachineUID}, []string{owners[0].Kind, owners[0].Name, string(owners[0].UID)})
	other := 3
	require.ErrorContains(t, h.Create(ctx, check, r.Target, from, &other, true), "fenced did not make it from this template")
	gone := r.Target
	gone.MachineUID = "another"
	require.ErrorContains(t, h.Create(ctx, check, gone, from, &order, true), "was replaced")

	before := seen()
	require.NoError(t, h.TimeOut(ctx, before))
	told := seen().TimedOut
	assert.WithinDuration(t, time.Now(), told, time.Minute)
	require.NoError(t, h.TimeOut(ctx, before))
	assert.Equal(t, told, seen().TimedOut, "once")

	u := live()
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Processing", "status": "True"}}}
	_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, h.Delete(ctx, before))
	_ = live() // its remediator has begun since

	for name, change := range map[string]func(*policy.Request, map[string]string){
		"another object of the name": func(q *policy.Request, _ map[string]string) { q.UID = "another" },
		"the mark is gone":           func(_ *policy.Request, marks map[string]string) { delete(marks, manifest.RequestMadeBy) },
		"of another installation":    func(_ *policy.Request, marks map[string]string) { marks[manifest.RequestMadeBy] = "store-2" },
		"of another check": func(_ *policy.Request, marks map[string]string) {
			marks[manifest.RequestCheck] = "FencePolicy.fenced.io q"
		},
	} {
		q, u := seen(), live()
		good, marks := u.GetAnnotations(), u.GetAnnotations()
		change(q, marks)
		u.SetAnnotations(marks)
		u, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, u, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, h.Delete(ctx, q), name)
		require.Equal(t, u.GetResourceVersion(), live().GetResourceVersion(), name)
		u.SetAnnotations(good)
		_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, u, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, h.Delete(ctx, seen()))
	_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Get(ctx, r.Target.Node, metav1.GetOptions{})
	assert.True(t, isGone(err, r.Target.Node), "%v", err)
	require.NoError(t, h.Delete(ctx, before), "one that is gone is no error")
}
