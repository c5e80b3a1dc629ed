package apiserver

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fenced/fenced/test/must"
)

var nodesGVR = corev1.SchemeGroupVersion.WithResource("nodes")

// node creates a Node.
func (a *api) node(t T, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name("node"), Labels: labels}}
	return must.Do(a.typed.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
}

// namespace creates a namespace.
func (a *api) namespace(t T) string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name("space")}}
	made := must.Do(a.typed.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t).Name
	if a.accounts { // no controller makes them
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: made}}
		must.Do(a.typed.CoreV1().ServiceAccounts(made).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	}
	return made
}

func (a *api) widgets(namespace string) dynamic.ResourceInterface {
	return a.dynamic.Resource(widgets).Namespace(namespace)
}

func widget(spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "conformance.fenced.io/v1", "kind": "Widget", "spec": spec}}
	u.SetName(name("widget"))
	return u
}

func pod(namespace, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name("pod"), Namespace: namespace, Labels: map[string]string{"of": node}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (a *api) pod(t T, namespace, node string) *corev1.Pod {
	return must.Do(a.typed.CoreV1().Pods(namespace).Create(t.Context(), pod(namespace, node), metav1.CreateOptions{}))(t)
}

func status(t T, err error) metav1.Status {
	var s apierrors.APIStatus
	require.ErrorAs(t, err, &s)
	return s.Status()
}

func revision(t T, text string) uint64 { return must.Do(strconv.ParseUint(text, 10, 64))(t) }

var readRows = []row{
	{"the version is that of the real server", func(t T, a *api) {
		assert.Equal(t, Version, must.Do(a.typed.Discovery().ServerVersion())(t).GitVersion)
		_, err := a.typed.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		assert.NoError(t, err)
	}},
	{"discovery lists groups, versions and resources", func(t T, a *api) {
		groups := must.Do(a.typed.Discovery().ServerGroups())(t)
		var found *metav1.APIGroup
		for i := range groups.Groups {
			if groups.Groups[i].Name == widgets.Group {
				found = &groups.Groups[i]
			}
		}
		require.NotNil(t, found)
		assert.Equal(t, "v2", found.PreferredVersion.Version)
		assert.Len(t, found.Versions, 2)
		var one metav1.APIGroup
		require.NoError(t, a.typed.CoreV1().RESTClient().Get().AbsPath("/apis/"+widgets.Group).Do(t.Context()).Into(&one))
		assert.Len(t, one.Versions, 2)
		list := must.Do(a.typed.Discovery().ServerResourcesForGroupVersion(widgets.GroupVersion().String()))(t)
		require.Len(t, list.APIResources, 2)
		assert.Equal(t, "widgets", list.APIResources[0].Name)
		assert.Equal(t, "Widget", list.APIResources[0].Kind)
		assert.True(t, list.APIResources[0].Namespaced)
		assert.Equal(t, "widgets/status", list.APIResources[1].Name)
		core := must.Do(a.typed.Discovery().ServerResourcesForGroupVersion("v1"))(t)
		kinds := map[string]string{}
		for _, r := range core.APIResources {
			kinds[r.Name] = r.Kind
		}
		assert.Equal(t, "Node", kinds["nodes"])
		err := a.typed.CoreV1().RESTClient().Get().AbsPath("/apis/no.such.group").Do(t.Context()).Error()
		assert.True(t, apierrors.IsNotFound(err), err)
	}},
	{"every answer has the time of the server", func(t T, a *api) {
		c := a.config("conformance", AdminGroup)
		client := must.Do(rest.HTTPClientFor(c))(t)
		got := must.Do(client.Get(c.Host + "/version"))(t)
		defer got.Body.Close()
		date := must.Do(http.ParseTime(got.Header.Get("Date")))(t)
		assert.WithinDuration(t, time.Now(), date, time.Minute)
	}},
	{"a missing object is a 404 that names it", func(t T, a *api) {
		_, err := a.typed.CoreV1().Nodes().Get(t.Context(), "nobody", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		assert.EqualError(t, err, `nodes "nobody" not found`)
		assert.Equal(t, "nobody", status(t, err).Details.Name)
		_, err = a.widgets("default").Get(t.Context(), "nobody", metav1.GetOptions{})
		assert.EqualError(t, err, `widgets.conformance.fenced.io "nobody" not found`)
		_, err = a.typed.CoreV1().Nodes().Get(t.Context(), "nobody", metav1.GetOptions{ResourceVersion: "0"})
		assert.True(t, apierrors.IsNotFound(err), err)
	}},
	{"an object may be read as the server's cache has it", func(t T, a *api) {
		n := a.node(t, nil)
		require.Eventually(t, func() bool {
			read, err := a.typed.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{ResourceVersion: "0"})
			return err == nil && read.UID == n.UID
		}, time.Minute, 10*time.Millisecond)
	}},
	{"a missing kind is a 404 that is not of the server's own words", func(t T, a *api) {
		_, err := a.dynamic.Resource(widgets.GroupVersion().WithResource("gadgets")).List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		assert.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
	}},
	{"the cluster has the namespaces of every cluster, with an identity", func(t T, a *api) {
		for _, n := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			until(t, n, func() bool { // the real one makes them in the background
				ns, err := a.typed.CoreV1().Namespaces().Get(t.Context(), n, metav1.GetOptions{})
				return err == nil && ns.UID != "" && ns.Status.Phase == corev1.NamespaceActive
			})
		}
	}},
	{"an object is the same in protobuf and in JSON", func(t T, a *api) {
		n := a.node(t, map[string]string{"a": "b"})
		u := must.Do(a.dynamic.Resource(nodesGVR).Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		assert.Equal(t, "v1", u.GetAPIVersion())
		assert.Equal(t, "Node", u.GetKind())
		assert.Equal(t, n.UID, u.GetUID())
		assert.Equal(t, n.ResourceVersion, u.GetResourceVersion())
		assert.Equal(t, n.Labels, u.GetLabels())
		assert.True(t, n.CreationTimestamp.Time.Equal(u.GetCreationTimestamp().Time))
		var mediaType string
		a.typed.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Name).Do(t.Context()).ContentType(&mediaType)
		assert.Equal(t, runtime.ContentTypeProtobuf, mediaType)
	}},
	{"a list has the version of the whole API, not of its newest object", func(t T, a *api) {
		n, ns := a.node(t, nil), a.namespace(t)
		must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		list := must.Do(a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
		assert.Greater(t, revision(t, list.ResourceVersion), revision(t, n.ResourceVersion))
	}},
	{"a list of one namespace has its objects only, by name", func(t T, a *api) {
		ns, other := a.namespace(t), a.namespace(t)
		var want []string
		for range 3 {
			w := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
			want = append(want, w.GetName())
		}
		must.Do(a.widgets(other).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		list := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{}))(t)
		assert.Equal(t, "WidgetList", list.GetKind())
		assert.ElementsMatch(t, want, namesOf(list.Items))
		assert.IsIncreasing(t, namesOf(list.Items))
	}},
	{"the pages of a list are of one version", func(t T, a *api) {
		ns := a.namespace(t)
		var want []string
		for range 5 {
			w := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
			want = append(want, w.GetName())
		}
		first := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{Limit: 2}))(t)
		require.Len(t, first.Items, 2)
		require.NotEmpty(t, first.GetContinue())
		for _, gone := range namesOf(first.Items) { // what was on it, and what comes later
			want = without(want, gone)
		}
		late := widget(map[string]any{"size": int64(1)})
		late.SetName("zzz")
		must.Do(a.widgets(ns).Create(t.Context(), late, metav1.CreateOptions{}))(t)
		require.NoError(t, a.widgets(ns).Delete(t.Context(), want[1], metav1.DeleteOptions{}))
		var got []string
		for page := first; page.GetContinue() != ""; {
			page = must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page.GetContinue()}))(t)
			assert.Equal(t, first.GetResourceVersion(), page.GetResourceVersion())
			got = append(got, namesOf(page.Items)...)
		}
		assert.ElementsMatch(t, want, got)
	}},
	{"a list can be of an exact version", func(t T, a *api) {
		ns := a.namespace(t)
		first := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		list := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}))(t)
		assert.Equal(t, []string{first.GetName()}, namesOf(list.Items))
	}},
	{"a list that may not be older waits for its version, and says when it is too large", func(t T, a *api) {
		n := a.node(t, nil)
		o := metav1.ListOptions{Limit: 500, ResourceVersion: n.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		list := must.Do(a.typed.CoreV1().Nodes().List(t.Context(), o))(t)
		assert.GreaterOrEqual(t, revision(t, list.ResourceVersion), revision(t, n.ResourceVersion))
		o.ResourceVersion = strconv.FormatUint(revision(t, n.ResourceVersion)+1_000_000, 10)
		request := a.typed.CoreV1().RESTClient().Get().Resource("nodes").VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0)
		err := request.Do(t.Context()).Error()
		assert.True(t, apierrors.IsTimeout(err), err)
		assert.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), err)
	}},
	{"labels select", func(t T, a *api) {
		mark := name("mark")
		a.node(t, nil)
		yes, no := a.node(t, map[string]string{"mark": mark}), a.node(t, map[string]string{"mark": mark, "not": "this"})
		list := must.Do(a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "mark=" + mark}))(t)
		assert.Len(t, list.Items, 2)
		list = must.Do(a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "mark in (" + mark + "),!not", Limit: 1}))(t)
		require.Len(t, list.Items, 1)
		assert.Equal(t, yes.Name, list.Items[0].Name)
		assert.NotEqual(t, no.Name, list.Items[0].Name)
	}},
	{"fields select, and an unknown one is refused", func(t T, a *api) {
		n, ns := a.node(t, nil), a.namespace(t)
		list := must.Do(a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + n.Name}))(t)
		require.Len(t, list.Items, 1)
		p := a.pod(t, ns, n.Name)
		a.pod(t, ns, "another")
		pods := must.Do(a.typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name + ",status.phase!=Succeeded,status.phase!=Failed"}))(t)
		require.Len(t, pods.Items, 1)
		assert.Equal(t, p.Name, pods.Items[0].Name)
		_, err := a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.podCIDR=x"})
		assert.True(t, apierrors.IsBadRequest(err), err)
		assert.ErrorContains(t, err, "field label not supported: spec.podCIDR")
	}},
	{"what an Event is about selects it", func(t T, a *api) {
		about := corev1.ObjectReference{Kind: "Node", Name: name("node"), UID: "u-1"}
		for _, o := range []corev1.ObjectReference{about, {Kind: "Node", Name: about.Name, UID: "u-2"}, {Kind: "Machine", Name: about.Name, UID: "u-1"}} {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name("event"), Namespace: "default"}, InvolvedObject: o}
			must.Do(a.typed.CoreV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{}))(t)
		}
		selected := "involvedObject.kind=Node,involvedObject.namespace=,involvedObject.name=" + about.Name + ",involvedObject.uid=u-1"
		list := must.Do(a.typed.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: selected}))(t)
		require.Len(t, list.Items, 1)
		assert.Equal(t, about, list.Items[0].InvolvedObject)
	}},
	{"the name selects a custom resource, in a list and in a streamed one", func(t T, a *api) {
		ns := a.namespace(t)
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		yes, o := true, metav1.ListOptions{FieldSelector: "metadata.name=" + made.GetName()}
		assert.Equal(t, []string{made.GetName()}, namesOf(must.Do(a.widgets(ns).List(t.Context(), o))(t).Items))
		o.SendInitialEvents, o.ResourceVersionMatch, o.AllowWatchBookmarks = &yes, metav1.ResourceVersionMatchNotOlderThan, true
		w := must.Do(a.widgets(ns).Watch(t.Context(), o))(t)
		defer w.Stop()
		seen(t, w, made.GetName(), watch.Added)
		assert.Equal(t, watch.Bookmark, next(t, w).Type)
	}},
	{"options of a list that contradict each other are refused", func(t T, a *api) {
		_, err := a.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		assert.True(t, apierrors.IsInvalid(err), err)
	}},
}

func namesOf(list []unstructured.Unstructured) (found []string) {
	for i := range list {
		found = append(found, list[i].GetName())
	}
	return found
}

func without(list []string, gone string) (left []string) {
	for _, s := range list {
		if s != gone {
			left = append(left, s)
		}
	}
	return left
}

var writeRows = []row{
	{"a created object gets a UID, a version and a time, whatever the client says", func(t T, a *api) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name("node"), UID: "mine", CreationTimestamp: metav1.Unix(1, 0)}}
		made := must.Do(a.typed.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
		assert.NotEqual(t, types.UID("mine"), made.UID)
		assert.Len(t, made.UID, 36)
		assert.NotZero(t, revision(t, made.ResourceVersion))
		assert.WithinDuration(t, time.Now(), made.CreationTimestamp.Time, time.Minute)
	}},
	{"a name is generated", func(t T, a *api) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}
		made := must.Do(a.typed.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
		assert.Regexp(t, `^made-[a-z0-9]{5}$`, made.Name)
	}},
	{"an object is created once", func(t T, a *api) {
		n := a.node(t, nil)
		_, err := a.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, metav1.CreateOptions{})
		assert.True(t, apierrors.IsAlreadyExists(err), err)
		assert.EqualError(t, err, `nodes "`+n.Name+`" already exists`)
	}},
	{"a new object has no version", func(t T, a *api) {
		_, err := a.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name("node"), ResourceVersion: "1"}}, metav1.CreateOptions{})
		assert.ErrorContains(t, err, "resourceVersion should not be set on objects to be created")
	}},
	{"a name must be valid", func(t T, a *api) {
		_, err := a.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "Not_Valid"}}, metav1.CreateOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
		assert.ErrorContains(t, err, `Node "Not_Valid" is invalid: metadata.name: Invalid value: "Not_Valid": a lowercase RFC 1123 subdomain must consist of`)
	}},
	{"the namespace must exist", func(t T, a *api) {
		_, err := a.widgets("nowhere").Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		assert.EqualError(t, err, `namespaces "nowhere" not found`)
	}},
	{"the namespace and the name of a request are those of its object", func(t T, a *api) {
		ns := a.namespace(t)
		w := widget(map[string]any{"size": int64(1)})
		w.SetNamespace("default")
		_, err := a.widgets(ns).Create(t.Context(), w, metav1.CreateOptions{})
		assert.True(t, apierrors.IsBadRequest(err), err)
		assert.ErrorContains(t, err, "the namespace of the provided object does not match the namespace sent on the request")
		n := a.node(t, nil)
		err = a.typed.CoreV1().RESTClient().Put().Resource("nodes").Name("other").Body(n).Do(t.Context()).Error()
		assert.True(t, apierrors.IsBadRequest(err), err)
		assert.ErrorContains(t, err, "the name of the object ("+n.Name+") does not match the name on the URL (other)")
	}},
	{"what is not the kind is refused", func(t T, a *api) {
		err := a.typed.CoreV1().RESTClient().Post().Resource("nodes").Body(pod("default", "")).Do(t.Context()).Error()
		assert.True(t, apierrors.IsBadRequest(err), err)
		err = a.typed.CoreV1().RESTClient().Post().Resource("nodes").SetHeader("Content-Type", "application/json").Body([]byte("nonsense")).Do(t.Context()).Error()
		assert.True(t, apierrors.IsBadRequest(err), err)
		err = a.typed.CoreV1().RESTClient().Post().Resource("nodes").SetHeader("Content-Type", "text/plain").Body([]byte("{}")).Do(t.Context()).Error()
		assert.True(t, apierrors.IsUnsupportedMediaType(err), err)
		err = a.typed.CoreV1().RESTClient().Post().Resource("nodes").SetHeader("Content-Type", "application/json").Body([]byte(strings.Repeat(" ", 3<<20+1))).Do(t.Context()).Error()
		assert.True(t, apierrors.IsRequestEntityTooLargeError(err), err)
	}},
	{"an update of an old version is a conflict", func(t T, a *api) {
		n := a.node(t, nil)
		first := n.DeepCopy()
		first.Labels = map[string]string{"by": "first"}
		must.Do(a.typed.CoreV1().Nodes().Update(t.Context(), first, metav1.UpdateOptions{}))(t)
		n.Labels = map[string]string{"by": "second"}
		_, err := a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		assert.True(t, apierrors.IsConflict(err), err)
		assert.EqualError(t, err, `Operation cannot be fulfilled on nodes "`+n.Name+`": the object has been modified; please apply your changes to the latest version and try again`)
	}},
	{"an update without a version is for some kinds", func(t T, a *api) {
		n, ns := a.node(t, nil), a.namespace(t)
		n.ResourceVersion, n.Labels = "", map[string]string{"a": "b"}
		must.Do(a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"a": "b"}}}
		assert.Equal(t, "b", must.Do(a.typed.CoreV1().Namespaces().Update(t.Context(), space, metav1.UpdateOptions{}))(t).Labels["a"])
		w := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		w.SetResourceVersion("")
		_, err := a.widgets(ns).Update(t.Context(), w, metav1.UpdateOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
		assert.ErrorContains(t, err, "metadata.resourceVersion: Invalid value: 0")
		assert.ErrorContains(t, err, "must be specified for an update")
	}},
	{"an update that changes nothing keeps the version", func(t T, a *api) {
		n := a.node(t, map[string]string{"a": "b"})
		same := must.Do(a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		assert.Equal(t, n.ResourceVersion, same.ResourceVersion)
		same = must.Do(a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))(t)
		assert.Equal(t, n.ResourceVersion, same.ResourceVersion)
	}},
	{"an update is of the object with its UID", func(t T, a *api) {
		n := a.node(t, nil)
		n.UID = "00000000-0000-0000-0000-000000000000"
		_, err := a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		assert.True(t, apierrors.IsConflict(err), err)
		assert.ErrorContains(t, err, "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, UID in object meta: ")
		_, err = a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"uid":"other"}}`), metav1.PatchOptions{})
		assert.True(t, apierrors.IsConflict(err) || apierrors.IsInvalid(err), err)
	}},
	{"the status is written by its subresource, and by nothing else", func(t T, a *api) {
		n := a.node(t, nil)
		n.Spec.Unschedulable, n.Status.NodeInfo.BootID = true, "ignored"
		n = must.Do(a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		assert.True(t, n.Spec.Unschedulable)
		assert.Empty(t, n.Status.NodeInfo.BootID)
		n.Spec.Unschedulable, n.Status.NodeInfo.BootID, n.Labels = false, "boot", map[string]string{"by": "kubelet"}
		n = must.Do(a.typed.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
		assert.True(t, n.Spec.Unschedulable)
		assert.Equal(t, "boot", n.Status.NodeInfo.BootID)
		assert.Equal(t, "kubelet", n.Labels["by"], "the status of a Node takes its metadata along")
	}},
	{"a merge patch sets and removes", func(t T, a *api) {
		n := a.node(t, map[string]string{"keep": "1", "drop": "1"})
		n = must.Do(a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"drop":null,"new":"1"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`), metav1.PatchOptions{}))(t)
		assert.Equal(t, map[string]string{"keep": "1", "new": "1"}, n.Labels)
		assert.Equal(t, []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints)
	}},
	{"a patch with an old version is a conflict", func(t T, a *api) {
		n := a.node(t, nil)
		with := func(version string) error {
			_, err := a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"`+version+`","labels":{"`+name("l")+`":"1"}}}`), metav1.PatchOptions{})
			return err
		}
		require.NoError(t, with(n.ResourceVersion))
		assert.True(t, apierrors.IsConflict(with(n.ResourceVersion)))
	}},
	{"a strategic patch merges lists by their key", func(t T, a *api) {
		n := a.node(t, nil)
		patch := func(text string) *corev1.Node {
			return must.Do(a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, "status"))(t)
		}
		patch(`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Odd","status":"False"}]}}`)
		n = patch(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)
		found := map[corev1.NodeConditionType]corev1.ConditionStatus{}
		for _, c := range n.Status.Conditions {
			found[c.Type] = c.Status
		}
		assert.Equal(t, map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "Unknown", "Odd": "False"}, found)
	}},
	{"a JSON patch tests first", func(t T, a *api) {
		n := a.node(t, map[string]string{"a": "1"})
		patch := func(was string) (*corev1.Node, error) {
			text := `[{"op":"test","path":"/metadata/labels/a","value":"` + was + `"},{"op":"replace","path":"/metadata/labels/a","value":"2"}]`
			return a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.JSONPatchType, []byte(text), metav1.PatchOptions{})
		}
		assert.Equal(t, "2", must.Do(patch("1"))(t).Labels["a"])
		_, err := patch("1")
		assert.Equal(t, int32(http.StatusUnprocessableEntity), status(t, err).Code, err)
	}},
	{"an Event is in the namespace of what it is about", func(t T, a *api) {
		ns := a.namespace(t)
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name("event"), Namespace: ns}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n"}}
		_, err := a.typed.CoreV1().Events(ns).Create(t.Context(), e, metav1.CreateOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
		assert.ErrorContains(t, err, `involvedObject.namespace: Invalid value: "": does not match event.namespace`)
		e.Namespace = "default"
		must.Do(a.typed.CoreV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{}))(t)
		patched := must.Do(a.typed.CoreV1().Events("default").Patch(t.Context(), e.Name, types.StrategicMergePatchType, []byte(`{"count":2,"message":"again"}`), metav1.PatchOptions{}))(t)
		assert.EqualValues(t, 2, patched.Count)
	}},
	{"a Lease lasts a second or more", func(t T, a *api) {
		seconds := int32(0)
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name("lease"), Namespace: "default"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
		_, err := a.typed.CoordinationV1().Leases("default").Create(t.Context(), l, metav1.CreateOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
		assert.ErrorContains(t, err, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0")
	}},
	{"a Lease is renewed, keeps its owner, and an old version of it is a conflict", func(t T, a *api) {
		n, seconds, now := a.node(t, nil), int32(40), metav1.NowMicro()
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
		leases := a.typed.CoordinationV1().Leases("default")
		made := must.Do(leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds},
		}, metav1.CreateOptions{}))(t)
		old := made.DeepCopy()
		made.Spec.RenewTime = &now
		renewed := must.Do(leases.Update(t.Context(), made, metav1.UpdateOptions{}))(t)
		assert.WithinDuration(t, now.Time, renewed.Spec.RenewTime.Time, time.Microsecond)
		assert.Equal(t, []metav1.OwnerReference{owner}, renewed.OwnerReferences)
		assert.NotEqual(t, old.ResourceVersion, renewed.ResourceVersion)
		_, err := leases.Update(t.Context(), old, metav1.UpdateOptions{})
		assert.True(t, apierrors.IsConflict(err), err)
	}},
	{"the text of a Secret becomes its data", func(t T, a *api) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name("secret"), Namespace: "default"}, StringData: map[string]string{"k": "v"}}
		made := must.Do(a.typed.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{}))(t)
		assert.Equal(t, map[string][]byte{"k": []byte("v")}, made.Data)
		assert.Empty(t, made.StringData)
		assert.Equal(t, corev1.SecretTypeOpaque, made.Type)
	}},
	{"a new pod is pending", func(t T, a *api) {
		p := pod(a.namespace(t), "n")
		p.Status.Phase = corev1.PodRunning
		made := must.Do(a.typed.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}))(t)
		assert.Equal(t, corev1.PodPending, made.Status.Phase)
		made.Status.Phase = corev1.PodRunning
		made = must.Do(a.typed.CoreV1().Pods(p.Namespace).UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
		assert.Equal(t, corev1.PodRunning, made.Status.Phase)
	}},
	{"a VolumeAttachment is of its Node", func(t T, a *api) {
		pv := "pv"
		v := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name("va")}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		v.Status.Attached = true
		made := must.Do(a.typed.StorageV1().VolumeAttachments().Create(t.Context(), v, metav1.CreateOptions{}))(t)
		assert.False(t, made.Status.Attached, "its status is written by its subresource")
		list := must.Do(a.typed.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{Limit: 500}))(t)
		assert.NotEmpty(t, list.Items)
		require.NoError(t, a.typed.StorageV1().VolumeAttachments().Delete(t.Context(), v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}))
	}},
}

func decodeJSON(raw []byte, into any) error { return json.Unmarshal(raw, into) }
