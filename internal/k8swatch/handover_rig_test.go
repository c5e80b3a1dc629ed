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

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

var rebootGVR = schema.GroupVersionResource{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Resource: "selfnoderemediations"}

// TestHandovers: a request is made once, by the rules of its API family; fenced changes and deletes it, and never an
// object that somebody else made, that was made for another cluster, that lost its mark, or whose remediator has begun
// meanwhile.
func TestHandovers(t *testing.T) {
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8sRemediators}}) // it gets more rights
	ctx := rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
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
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: ` + strings.Repeat("x", 256<<10) + `}}}`)
	missing("have not been read: not yet")
	h = write.NewHandovers(k.servers, k.CarriesOut, func(c *policy.Check) *policy.Check { return c }) // as if they had been read
	missing("")
	_, err = h.Prepare(ctx, check, r.Target, from, true)
	require.ErrorContains(t, err, "more than 262144 bytes")
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: hard}}}`)
	live := func() *unstructured.Unstructured {
		u, err := c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Get(ctx, r.Target.Node, metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	draft, err := h.Prepare(ctx, check, r.Target, from, true)
	require.NoError(t, err)
	o := draft.Object()
	o.Mark = "store-1/east/r-1"
	system, err := c.Client().CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, escalate.Object{On: string(system.UID), APIVersion: from.APIVersion, Kind: "SelfNodeRemediation", Namespace: rig.Namespace, Name: r.Target.Node, Template: from.Name, Mark: o.Mark}, o)
	seen, err := h.Read(ctx, o)
	require.NoError(t, err)
	assert.Nil(t, seen, "nothing was made yet")
	for range 2 { // the answer to the first may have been lost
		o.UID, err = draft.Create(ctx, o, check.Mark())
		require.NoError(t, err)
		assert.Equal(t, string(live().GetUID()), o.UID)
	}
	first := live()
	assert.Equal(t, map[string]string{"own": "1", "remediation.medik8s.io/isControlPlaneNode": ""}, first.GetLabels())
	assert.Equal(t, map[string]string{
		"remediation.medik8s.io/node-name": r.Target.Node, "remediation.medik8s.io/template-name": from.Name,
		"fenced.io/check": check.Mark(), "fenced.io/made-by": "store-1/east/r-1",
	}, first.GetAnnotations())
	owners := first.GetOwnerReferences()
	require.Len(t, owners, 1, "the Machine of the same namespace")
	assert.Equal(t, []string{"Machine", r.Target.Machine, r.Target.MachineUID}, []string{owners[0].Kind, owners[0].Name, string(owners[0].UID)})
	gone := r.Target
	gone.MachineUID = "another"
	_, err = h.Prepare(ctx, check, gone, from, true)
	require.ErrorContains(t, err, "was replaced")

	// Another cluster, with the same store and the same name of a Node.
	west := o
	west.UID, west.Mark = "", "store-1/west/r-2"
	_, err = draft.Create(ctx, west, check.Mark())
	require.ErrorIs(t, err, escalate.ErrNotMade)
	require.ErrorContains(t, err, "fenced did not make it")
	seen, err = h.Read(ctx, west)
	require.NoError(t, err)
	assert.Nil(t, seen, "not its object")

	wrote := func(want bool, why string) func(bool, error) {
		return func(wrote bool, err error) {
			t.Helper()
			require.NoError(t, err, why)
			require.Equal(t, want, wrote, why)
		}
	}
	before, err := h.Read(ctx, o)
	require.NoError(t, err)
	wrote(true, "told")(h.TimeOut(ctx, o))
	told, err := h.Read(ctx, o)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), told.TimedOut, time.Minute)
	version := live().GetResourceVersion()
	wrote(false, "told already")(h.TimeOut(ctx, o))
	assert.Equal(t, version, live().GetResourceVersion(), "once")

	u := live()
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Processing", "status": "True"}}}
	_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	require.NoError(t, err)
	wrote(false, "it has changed")(h.Delete(ctx, o, before))
	now, err := h.Read(ctx, o)
	require.NoError(t, err)
	require.NotNil(t, now, "its remediator has begun since")

	version = live().GetResourceVersion()
	for name, change := range map[string]func(*escalate.Object){
		"another object of the name": func(o *escalate.Object) { o.UID = "another" },
		"of another installation":    func(o *escalate.Object) { o.Mark = "store-2/east/r-1" },
		"for another cluster":        func(o *escalate.Object) { o.Mark = "store-1/west/r-1" },
		"of another record":          func(o *escalate.Object) { o.Mark = "store-1/east/r-9" },
		"not known to be made":       func(o *escalate.Object) { o.UID = "" },
		"without a mark":             func(o *escalate.Object) { o.Mark = "" },
	} {
		other := o
		change(&other)
		wrote(false, name)(h.Delete(ctx, other, now))
		wrote(false, name)(h.Delay(ctx, other))
		require.Equal(t, version, live().GetResourceVersion(), name)
	}
	unmarked := live()
	marks := unmarked.GetAnnotations()
	delete(marks, manifest.RequestMadeBy)
	unmarked.SetAnnotations(marks)
	_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, unmarked, metav1.UpdateOptions{})
	require.NoError(t, err)
	wrote(false, "without its mark")(h.Delete(ctx, o, now))
	now, err = h.Read(ctx, o)
	require.NoError(t, err)
	require.NotNil(t, now, "it exists without its mark")
	assert.Empty(t, now.MadeBy)
	late := o
	late.UID = ""
	now, err = h.Read(ctx, late)
	require.NoError(t, err)
	require.NotNil(t, now, "it may have been made, and have lost its mark since")
	wrote(false, "it may be somebody else's")(h.Delete(ctx, late, now))
	unmarked = live()
	marks[manifest.RequestMadeBy] = o.Mark
	unmarked.SetAnnotations(marks)
	_, err = c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, unmarked, metav1.UpdateOptions{})
	require.NoError(t, err)

	wrote(true, "deleted")(h.Delete(ctx, o, now))
	now, err = h.Read(ctx, o)
	require.NoError(t, err)
	assert.Nil(t, now)
	wrote(false, "one that is gone is no error")(h.Delete(ctx, o, before))
	for name, change := range map[string]func(*escalate.Object){
		"on the management API": func(o *escalate.Object) { o.OnManagementAPI = true },
		"in another cluster":    func(o *escalate.Object) { o.On = "elsewhere" },
	} {
		strange := o
		change(&strange)
		_, err = h.Read(ctx, strange)
		require.Error(t, err, "%s: nothing is known of it there", name)
	}
	o.Kind = "NoSuchRemediation"
	_, err = h.Read(ctx, o)
	require.ErrorIs(t, err, escalate.ErrNotServed)
	wrote(false, "not served")(h.TimeOut(ctx, o))
	o.On = "elsewhere"
	_, err = h.Read(ctx, o)
	require.ErrorContains(t, err, "give the record up")
}
