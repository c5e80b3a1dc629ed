package k8swatch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// What does not come from the API server says nothing: neither that somebody is
// gone, nor that he never renewed a Lease, nor that nobody else is at work.
func TestImpostorOfTheAPIServerIsNoAnswer(t *testing.T) { // I2
	answers := maps.Clone(k8stest.Impostors)
	answers["not found, html"] = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no such site</html>", 404) }
	answers["no such path"] = http.NotFound
	answers["not found, another object"] = func(w http.ResponseWriter, _ *http.Request) { k8stest.Status(w, 404, "NotFound", "else") }
	answers["redirect"] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			c, state := served(t, answer), remediate.APIUnreachable
			if name == "unauthorised" {
				state = remediate.APIForbidden
			}
			for _, step := range []remediate.Step{remediate.PowerOff, remediate.PowerOn} {
				run := aRun
				run.Step, run.ControlPlane = step, true
				l := c.Look(t.Context(), run, [][]byte{})
				require.Error(t, l.Err)
				assert.Equal(t, state, l.Seen.API)
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
			c := served(t, k8stest.Endless(body[0], body[1], &sent))
			began := time.Now()
			_, _, err := c.Backup(t.Context(), aRun.Target)
			assert.Error(t, err)
			assert.LessOrEqual(t, sent.Load(), int64(client.MaxObject+k8stest.Slack))
			run := aRun
			run.Step = remediate.PowerOn
			l := c.Look(t.Context(), run, [][]byte{})
			require.Error(t, l.Err)
			assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)
			assert.Equal(t, remediate.CannotTell, l.Seen.PodsGone)
			assert.LessOrEqual(t, sent.Load(), int64(client.MaxBody+k8stest.Slack))
			assert.Less(t, time.Since(began), 9*client.RequestTimeout, "it ends")
		})
	}
}

// overloaded gives a Node thousands of conditions and addresses, at times that cannot
// be, and a thousand taints.
func overloaded(ctx context.Context, t *testing.T, c *rig.ControlPlane, name string) {
	t.Helper()
	var taints []corev1.Taint
	for i := range 1000 {
		taints = append(taints, corev1.Taint{Key: fmt.Sprint("t-", i), Effect: corev1.TaintEffectNoSchedule})
	}
	must.Do(c.CreateNode(ctx, rig.Node{Name: name, Taints: taints}))(t)
	times := []metav1.Time{{}, metav1.Unix(-1<<35, 0), metav1.Unix(253402300799, 0), metav1.NewTime(time.Now().Add(100 * 365 * 24 * time.Hour))}
	nodes := c.Client().CoreV1().Nodes()
	k8stest.Until(t, "the status is written, past the conflicts with controllers", func() bool {
		n := must.Do(nodes.Get(ctx, name, metav1.GetOptions{}))(t)
		for i := range 3000 {
			at := times[i%len(times)]
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint("C", i)),
				Status: "\x1b[2J", Message: strings.Repeat("m", 100), LastTransitionTime: at, LastHeartbeatTime: at})
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: fmt.Sprint("a-", i, "\r\n")})
		}
		n.Status.NodeInfo = corev1.NodeSystemInfo{}
		_, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err == nil
	})
}

// Objects that somebody filled with all that the API server takes harm neither the view
// of the others nor a look at them.
func TestHostileObjectsHarmNoOther(t *testing.T) { // I16
	c, ctx := rigtest.Own(t, rig.Options{}), rigtest.Context(t, 2*time.Minute) // what it makes would burden other tests
	r := bareMetal(t, c, rig.Host{}, rig.Node{SystemUUID: "su"})
	overloaded(ctx, t, c, "hostile")
	annotations := map[string]string{}
	for i := range 12_000 { // with their keys 256 KiB
		annotations[fmt.Sprintf("%020d", i)] = ""
	}
	machine := must.Do(c.CreateMachine(ctx, rig.Machine{Name: "hostile", NodeName: "../../api/v1/nodes/x\x1b[2J"}))(t)
	machine.SetAnnotations(annotations)
	machines := c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace)
	must.Do(machines.Update(ctx, machine, metav1.UpdateOptions{}))(t)
	must.Do(c.CreateCheck(ctx, rig.Check{Name: "hostile", Strategy: rig.BareMetalStrategy, Conditions: rig.NotReadyFor("1s"), MaxUnhealthy: "100%"}))(t)
	expressions := make([]any, 5000)
	for i := range expressions {
		expressions[i] = map[string]any{"key": fmt.Sprint("k-", i), "operator": "DoesNotExist"}
	}
	checks := c.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace)
	check := must.Do(checks.Get(ctx, "hostile", metav1.GetOptions{}))(t)
	require.NoError(t, unstructured.SetNestedSlice(check.Object, expressions, "spec", "selector", "matchExpressions"))
	must.Do(checks.Update(ctx, check, metav1.UpdateOptions{}))(t)

	k := watching(t, c)
	v := k8stest.Seen(k)
	require.NotNil(t, v.Node(r.Target.Node))
	require.NotNil(t, v.Machine(r.Target.Machine))
	assert.ErrorContains(t, v[policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "hostile"}].Err, "more than 131072")
	assert.Empty(t, v.Machine("hostile").Annotations, "no rule reads them")
	assert.Contains(t, v.Check("hostile").Invalid, "5000 entries")
	l := lookAt(t, k, r)
	assert.Equal(t, remediate.Yes, l.Seen.Node.Exists)

	var s policy.Snapshot
	s.Machines = []policy.Machine{*v.Machine("hostile")}
	s.Checks = []policy.Check{*v.Check("hostile")}
	for _, report := range policy.Decide(s, time.Now()).Checks {
		for _, target := range report.Targets {
			assert.False(t, target.Acts())
		}
	}
	evil := r
	evil.Target.Node, evil.Target.Machine = v.Machine("hostile").NodeName, "hostile"
	assert.Error(t, k.Look(ctx, evil, [][]byte{}).Err, "a name that is a path")
}

// What the API server lets a kubelet say about its role, which is what policy believes of it: the Pods of its own Node and
// the label of MicroK8s, and no other label of the control plane, whether it makes its Node or changes it. // I12
func TestKubeletMayNotLabelItsRole(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true, NodeRestriction: true}), rigtest.Context(t, 2*time.Minute)
	for _, name := range []string{"w-1", "w-2"} {
		must.Do(c.CreateNode(ctx, rig.Node{Name: name}))(t)
	}
	k := must.Do(c.KubeletClient("w-1"))(t)
	other := must.Do(c.KubeletClient("w-3"))(t)
	for _, label := range policy.ControlPlaneLabels {
		mayBeSet := strings.HasPrefix(label, "node.kubernetes.io/")
		_, err := k.CoreV1().Nodes().Patch(ctx, "w-1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, label), metav1.PatchOptions{})
		assert.Equal(t, !mayBeSet, apierrors.IsForbidden(err), "%s: %v", label, err)
		_, err = other.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-3", Labels: map[string]string{label: ""}}}, metav1.CreateOptions{})
		assert.Equal(t, !mayBeSet, apierrors.IsForbidden(err), "%s: %v", label, err)
	}
	n := must.Do(k.CoreV1().Nodes().Get(ctx, "w-1", metav1.GetOptions{}))(t)
	for node, allowed := range map[string]bool{"w-1": true, "w-2": false} {
		_, err := k.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + node, Labels: map[string]string{"component": "etcd"}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID, Controller: new(true)}}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
		}, metav1.CreateOptions{})
		assert.Equal(t, !allowed, apierrors.IsForbidden(err), "%s: %v", node, err)
	}
}
