package apiserver

import (
	"context"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fenced/fenced/internal/k8swatch"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

var deleteRows = []row{
	{"a deletion is of the UID and the version in its preconditions", func(t T, a *api) {
		n := a.node(t, nil)
		uid, version := types.UID("00000000-0000-0000-0000-000000000000"), "1"
		nodes := a.typed.CoreV1().Nodes()
		err := nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		assert.True(t, apierrors.IsConflict(err), err)
		assert.ErrorContains(t, err, "the UID in the precondition (00000000-0000-0000-0000-000000000000) does not match the UID in record ("+string(n.UID)+"). The object might have been deleted and then recreated")
		err = nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &version}})
		assert.True(t, apierrors.IsConflict(err), err)
		assert.ErrorContains(t, err, "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("+n.ResourceVersion+"). The object might have been modified")
		must.Do(nodes.Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		require.NoError(t, nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}}))
		_, err = nodes.Get(t.Context(), n.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		err = nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	}},
	{"a deletion is answered with what was deleted", func(t T, a *api) {
		n := a.node(t, nil)
		var s metav1.Status
		require.NoError(t, a.typed.CoreV1().RESTClient().Delete().Resource("nodes").Name(n.Name).Do(t.Context()).Into(&s))
		assert.Equal(t, metav1.StatusSuccess, s.Status)
		require.NotNil(t, s.Details)
		assert.Equal(t, metav1.StatusDetails{Name: n.Name, Kind: "nodes", UID: n.UID}, *s.Details)
		p := a.pod(t, a.namespace(t), "")
		var last corev1.Pod
		require.NoError(t, a.typed.CoreV1().RESTClient().Delete().Namespace(p.Namespace).Resource("pods").Name(p.Name).Do(t.Context()).Into(&last))
		assert.Equal(t, p.UID, last.UID)
	}},
	{"a finalizer keeps an object until it is removed", func(t T, a *api) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name("node"), Finalizers: []string{"fenced.io/test"}}}
		nodes := a.typed.CoreV1().Nodes()
		made := must.Do(nodes.Create(t.Context(), n, metav1.CreateOptions{}))(t)
		require.NoError(t, nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion}}))
		marked := must.Do(nodes.Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		require.NotNil(t, marked.DeletionTimestamp)
		require.NoError(t, nodes.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
		again := must.Do(nodes.Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		assert.Equal(t, marked.ResourceVersion, again.ResourceVersion, "a second deletion changes nothing")
		again.Finalizers = nil
		must.Do(nodes.Update(t.Context(), again, metav1.UpdateOptions{}))(t)
		_, err := nodes.Get(t.Context(), n.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	}},
	{"a pod on a node goes when its kubelet has stopped it, or at once with a grace of zero", func(t T, a *api) {
		p := a.pod(t, a.namespace(t), "n")
		pods := a.typed.CoreV1().Pods(p.Namespace)
		require.NoError(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
		marked := must.Do(pods.Get(t.Context(), p.Name, metav1.GetOptions{}))(t)
		require.NotNil(t, marked.DeletionTimestamp)
		require.NotNil(t, marked.DeletionGracePeriodSeconds)
		assert.EqualValues(t, 30, *marked.DeletionGracePeriodSeconds)
		assert.True(t, marked.DeletionTimestamp.After(time.Now().Add(time.Second)))
		zero := int64(0)
		require.NoError(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}}))
		_, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		p = a.pod(t, p.Namespace, "")
		require.NoError(t, pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
		_, err = pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "no kubelet has it: %v", err)
	}},
	{"a namespace that is being deleted takes nothing new", func(t T, a *api) {
		ns := a.namespace(t)
		require.NoError(t, a.typed.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
		until(t, "the end of the namespace", func() bool { // the real one reads it from a cache
			_, err := a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{})
			return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		})
		assert.Equal(t, corev1.NamespaceTerminating, must.Do(a.typed.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}))(t).Status.Phase)
	}},
}

// next is the next event of a watch.
func next(t T, w watch.Interface) watch.Event {
	select {
	case e, ok := <-w.ResultChan():
		require.True(t, ok, "the watch has ended")
		return e
	case <-time.After(time.Minute):
	case <-t.Context().Done():
	}
	require.Fail(t, "the watch sends nothing")
	return watch.Event{}
}

func versionOf(t T, e watch.Event) string {
	o, ok := e.Object.(metav1.Object)
	require.True(t, ok, "%v", e.Object)
	return o.GetResourceVersion()
}

// seen requires events of these types about an object of this name.
func seen(t T, w watch.Interface, of string, kinds ...watch.EventType) (last watch.Event) {
	for _, kind := range kinds {
		last = next(t, w)
		require.Equal(t, kind, last.Type, "%v", last.Object)
		require.Equal(t, of, last.Object.(metav1.Object).GetName())
	}
	return last
}

var watchRows = []row{
	{"a watch sends every change after its version, in order", func(t T, a *api) {
		ns := a.namespace(t)
		list := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{}))(t)
		w := must.Do(a.widgets(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))(t)
		defer w.Stop()
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		must.Do(a.widgets(ns).Patch(t.Context(), made.GetName(), types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}))(t)
		require.NoError(t, a.widgets(ns).Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}))
		last := seen(t, w, made.GetName(), watch.Added, watch.Modified, watch.Deleted)
		size, _, _ := unstructured.NestedInt64(last.Object.(*unstructured.Unstructured).Object, "spec", "size")
		assert.EqualValues(t, 2, size)
		assert.Greater(t, revision(t, versionOf(t, last)), revision(t, made.GetResourceVersion())+1, "a deletion has a version of its own")
		again := must.Do(a.widgets(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: made.GetResourceVersion()}))(t)
		defer again.Stop()
		seen(t, again, made.GetName(), watch.Modified, watch.Deleted)
	}},
	{"a watch is in protobuf for who asks for it", func(t T, a *api) {
		n := a.node(t, nil)
		w := must.Do(a.typed.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: n.ResourceVersion, FieldSelector: "metadata.name=" + n.Name}))(t)
		defer w.Stop()
		n.Labels = map[string]string{"a": "b"}
		must.Do(a.typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		e := seen(t, w, n.Name, watch.Modified)
		assert.Equal(t, "b", e.Object.(*corev1.Node).Labels["a"])
		c := a.config("conformance", AdminGroup)
		r := must.Do(http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+"/api/v1/nodes?watch=true&timeoutSeconds=1", nil))(t)
		r.Header.Set("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON)
		got := must.Do(must.Do(rest.HTTPClientFor(c))(t).Do(r))(t)
		defer got.Body.Close()
		assert.Equal(t, runtime.ContentTypeProtobuf+";stream=watch", got.Header.Get("Content-Type"))
	}},
	{"an object that is selected no more is deleted for the watch", func(t T, a *api) {
		mark := name("mark")
		n := a.node(t, map[string]string{"mark": mark})
		w := must.Do(a.typed.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: n.ResourceVersion, LabelSelector: "mark=" + mark}))(t)
		defer w.Stop()
		label := func(value string) *corev1.Node {
			return must.Do(a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"mark":"`+value+`"}}}`), metav1.PatchOptions{}))(t)
		}
		gone := label("other")
		e := seen(t, w, n.Name, watch.Deleted)
		assert.Equal(t, mark, e.Object.(*corev1.Node).Labels["mark"], "as it was last selected")
		assert.Equal(t, gone.ResourceVersion, versionOf(t, e), "at the version of the change")
		label(mark)
		seen(t, w, n.Name, watch.Added)
	}},
	{"a streamed list ends with a bookmark that says so", func(t T, a *api) {
		mark := name("mark")
		n := a.node(t, map[string]string{"mark": mark})
		yes := true
		w := must.Do(a.typed.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{LabelSelector: "mark=" + mark, SendInitialEvents: &yes,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true}))(t)
		defer w.Stop()
		seen(t, w, n.Name, watch.Added)
		e := next(t, w)
		require.Equal(t, watch.Bookmark, e.Type)
		assert.Equal(t, "true", e.Object.(*corev1.Node).Annotations[metav1.InitialEventsAnnotationKey])
		assert.GreaterOrEqual(t, revision(t, versionOf(t, e)), revision(t, n.ResourceVersion))
		late := a.node(t, map[string]string{"mark": mark})
		seen(t, w, late.Name, watch.Added)
	}},
	{"a streamed list says its contradictions", func(t T, a *api) {
		yes := true
		_, err := a.typed.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true})
		assert.True(t, apierrors.IsInvalid(err), err)
	}},
	{"a watch without a version begins with what there is", func(t T, a *api) {
		ns := a.namespace(t)
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		w := must.Do(a.widgets(ns).Watch(t.Context(), metav1.ListOptions{}))(t)
		defer w.Stop()
		seen(t, w, made.GetName(), watch.Added)
	}},
	{"a watch ends at its time, with a bookmark before", func(t T, a *api) {
		ns := a.namespace(t)
		list := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{}))(t)
		for inTime := false; !inTime; { // a busy machine may not list before the bookmark is sent
			seconds, began := int64(5), time.Now()
			w := must.Do(a.widgets(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &seconds, AllowWatchBookmarks: true}))(t)
			defer w.Stop()
			n := a.node(t, nil) // another kind moves the version on
			fresh := must.Do(a.widgets(ns).List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
			require.GreaterOrEqual(t, revision(t, fresh.GetResourceVersion()), revision(t, n.ResourceVersion))
			inTime = time.Since(began) < 2*time.Second
			e := next(t, w)
			require.Equal(t, watch.Bookmark, e.Type)
			if inTime {
				assert.GreaterOrEqual(t, revision(t, versionOf(t, e)), revision(t, fresh.GetResourceVersion()), "and it reaches the list")
			}
			for range w.ResultChan() {
				assert.Less(t, time.Since(began), time.Minute)
			}
			assert.GreaterOrEqual(t, time.Since(began), 4*time.Second)
		}
	}},
	{"a watch of a version that is forgotten is expired", func(t T, a *api) {
		w := must.Do(a.dynamic.Resource(widgets).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))(t) // older than the kind
		defer w.Stop()
		e := next(t, w)
		require.Equal(t, watch.Error, e.Type)
		err := apierrors.FromObject(e.Object)
		assert.True(t, apierrors.IsResourceExpired(err), err)
		assert.ErrorContains(t, err, "too old resource version: 1 (")
		assert.EqualValues(t, http.StatusGone, status(t, err).Code)
	}},
	{"an informer of client-go follows", func(t T, a *api) {
		mark := name("mark")
		a.node(t, map[string]string{"mark": mark})
		selected := func(o *metav1.ListOptions) { o.LabelSelector = "mark=" + mark }
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.ToListWatcherWithWatchListSemantics(cache.NewFilteredListWatchFromClient(a.typed.CoreV1().RESTClient(), "nodes", "", selected), a.typed),
			ObjectType:    &corev1.Node{}, Handler: cache.ResourceEventHandlerFuncs{},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go informer.RunWithContext(ctx)
		until(t, "the first list", func() bool { return len(store.ListKeys()) == 1 })
		late := a.node(t, map[string]string{"mark": mark})
		until(t, "the second Node", func() bool { return len(store.ListKeys()) == 2 })
		require.NoError(t, a.typed.CoreV1().Nodes().Delete(t.Context(), late.Name, metav1.DeleteOptions{}))
		until(t, "its deletion", func() bool { return len(store.ListKeys()) == 1 })
	}},
}

// ownRows are about the client that fenced ships.
var ownRows = []row{
	{"fenced's view stays proven, and it deletes a Node only as it was saved", func(t T, a *api) { // I2, I16
		file := must.Do(os.CreateTemp("", "kubeconfig-"))(t)
		defer os.Remove(file.Name())
		require.NoError(t, file.Close())
		require.NoError(t, clientcmd.WriteToFile(kubeconfigOf(a.config("conformance", AdminGroup)), file.Name()))
		k := must.Do(k8swatch.New(k8swatch.Config{Config: view.Config{Name: "c", StoreID: "s", Kubeconfig: file.Name(), FreshEvery: time.Second}}, zap.NewNop()))(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		until(t, "the first view", func() bool { return k.View().Synced })
		first := time.Now().Add(-k.View().Age)
		until(t, "a later proof that every kind is as new as the API", func() bool { return time.Since(first)-k.View().Age > 4*time.Second })
		assert.Empty(t, k.View().Problem)

		n := a.node(t, map[string]string{"a": "b"})
		run := remediate.Run{Target: remediate.Target{Node: n.Name, NodeUID: string(n.UID)}}
		_, saved, err := k.Backup(t.Context(), run.Target)
		require.NoError(t, err)
		must.Do(a.typed.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"c"}}}`), metav1.PatchOptions{}))(t)
		require.Error(t, k.Act(t.Context(), run, remediate.IsolateNode, nil, saved), "it has changed since")
		must.Do(a.typed.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		_, saved, err = k.Backup(t.Context(), run.Target)
		require.NoError(t, err)
		require.NoError(t, k.Act(t.Context(), run, remediate.IsolateNode, nil, saved))
		_, err = a.typed.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	}},
}

// kubeconfigOf is a kubeconfig with the credentials of a configuration.
func kubeconfigOf(c *rest.Config) clientcmdapi.Config {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts["x"], k.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	return *k
}

var customRows = []row{
	{"the schema sets defaults and removes what it does not know", func(t T, a *api) {
		w := widget(map[string]any{"size": int64(1), "unknown": "x", "note": nil, "free": map[string]any{"any": "thing"}, "port": "http",
			"labels": map[string]any{"a": "b"}, "parts": []any{map[string]any{"name": "p", "unknown": "x"}}})
		w.Object["more"] = "x"
		made := must.Do(a.widgets(a.namespace(t)).Create(t.Context(), w, metav1.CreateOptions{}))(t)
		assert.Equal(t, map[string]any{"size": int64(1), "retries": int64(3), "note": nil, "free": map[string]any{"any": "thing"}, "port": "http",
			"labels": map[string]any{"a": "b"}, "parts": []any{map[string]any{"name": "p", "kind": "plain"}}}, made.Object["spec"])
		assert.NotContains(t, made.Object, "more")
	}},
	{"the schema refuses what does not fit", func(t T, a *api) {
		ns := a.namespace(t)
		for text, spec := range map[string]map[string]any{
			`spec.size: Required value`: {"mode": "fast"},
			`spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`:          {"size": "big"},
			`spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1`:              {"size": int64(0)},
			`spec.mode: Unsupported value: "odd": supported values: "fast", "slow"`:                            {"size": int64(1), "mode": "odd"},
			`spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"`: {"size": int64(1), "port": true},
		} {
			w := widget(spec)
			_, err := a.widgets(ns).Create(t.Context(), w, metav1.CreateOptions{})
			assert.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.EqualError(t, err, `Widget.conformance.fenced.io "`+w.GetName()+`" is invalid: `+text)
		}
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		_, err := a.widgets(ns).Patch(t.Context(), made.GetName(), types.MergePatchType, []byte(`{"status":{"phase":1}}`), metav1.PatchOptions{}, "status")
		assert.True(t, apierrors.IsInvalid(err), "the status, too: %v", err)
	}},
	{"the status and the spec of a custom resource are written apart, and the generation counts the latter", func(t T, a *api) {
		ns := a.namespace(t)
		w := widget(map[string]any{"size": int64(1)})
		w.Object["status"] = map[string]any{"phase": "ignored"}
		made := must.Do(a.widgets(ns).Create(t.Context(), w, metav1.CreateOptions{}))(t)
		assert.NotContains(t, made.Object, "status")
		assert.EqualValues(t, 1, made.GetGeneration())
		patch := func(text string, sub ...string) *unstructured.Unstructured {
			return must.Do(a.widgets(ns).Patch(t.Context(), made.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...))(t)
		}
		both := `{"metadata":{"labels":{"a":"b"}},"spec":{"size":2},"status":{"phase":"set"}}`
		now := patch(both, "status")
		assert.Equal(t, map[string]any{"phase": "set"}, now.Object["status"])
		assert.Empty(t, now.GetLabels())
		assert.EqualValues(t, 1, now.GetGeneration())
		now = patch(strings.ReplaceAll(both, `"set"`, `"ignored"`))
		assert.Equal(t, map[string]any{"phase": "set"}, now.Object["status"])
		assert.Equal(t, map[string]string{"a": "b"}, now.GetLabels())
		assert.EqualValues(t, 2, now.GetGeneration())
		assert.EqualValues(t, 2, patch(`{"metadata":{"labels":{"a":"c"}}}`).GetGeneration())
	}},
	{"a custom resource is served at each version", func(t T, a *api) {
		ns := a.namespace(t)
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		second := must.Do(a.dynamic.Resource(widgetsV2).Namespace(ns).Get(t.Context(), made.GetName(), metav1.GetOptions{}))(t)
		assert.Equal(t, "conformance.fenced.io/v2", second.GetAPIVersion())
		assert.Equal(t, made.GetUID(), second.GetUID())
		assert.Equal(t, made.GetResourceVersion(), second.GetResourceVersion())
		list := must.Do(a.dynamic.Resource(widgetsV2).Namespace(ns).List(t.Context(), metav1.ListOptions{}))(t)
		require.Len(t, list.Items, 1)
		assert.Equal(t, "conformance.fenced.io/v2", list.Items[0].GetAPIVersion())
		_, err := a.dynamic.Resource(widgetsV2).Namespace(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{})
		assert.True(t, apierrors.IsBadRequest(err), err)
		assert.ErrorContains(t, err, "the API version in the data (conformance.fenced.io/v1) does not match the expected API version (conformance.fenced.io/v2)")
	}},
	{"custom resources have no strategic patch", func(t T, a *api) {
		ns := a.namespace(t)
		made := must.Do(a.widgets(ns).Create(t.Context(), widget(map[string]any{"size": int64(1)}), metav1.CreateOptions{}))(t)
		_, err := a.widgets(ns).Patch(t.Context(), made.GetName(), types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
		assert.True(t, apierrors.IsUnsupportedMediaType(err), err)
		assert.ErrorContains(t, err, "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json")
	}},
	{"custom resources are in JSON for who asks for protobuf or JSON, and nothing else", func(t T, a *api) {
		path := "/apis/" + widgets.GroupVersion().String() + "/namespaces/default/widgets"
		var typed struct {
			metav1.TypeMeta
		}
		raw := must.Do(a.typed.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON).DoRaw(t.Context()))(t)
		require.NoError(t, decodeJSON(raw, &typed))
		assert.Equal(t, "WidgetList", typed.Kind)
		err := a.typed.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeProtobuf).Do(t.Context()).Error()
		assert.True(t, apierrors.IsNotAcceptable(err), err)
	}},
	{"a kind comes with its definition, and goes with it", func(t T, a *api) {
		plural := strings.ReplaceAll(name("toys"), "-", "")
		toys := widgets.GroupVersion().WithResource(plural)
		def := definitionOf(t, widgets.Group, plural, "Toy"+plural, `[{name: v1, served: true, storage: true, schema: `+widgetSchema+`}]`)
		made := must.Do(a.dynamic.Resource(crds).Create(t.Context(), def, metav1.CreateOptions{}))(t)
		until(t, "the definition to be Established", func() bool {
			now := must.Do(a.dynamic.Resource(crds).Get(t.Context(), made.GetName(), metav1.GetOptions{}))(t)
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			for _, c := range conditions {
				if m := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
					return true
				}
			}
			return false
		})
		until(t, "the kind", func() bool {
			_, err := a.dynamic.Resource(toys).List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
		toy := widget(map[string]any{"size": int64(1)})
		toy.SetKind("Toy" + plural)
		toy.Object["status"] = map[string]any{"phase": "kept"}
		toy = must.Do(a.dynamic.Resource(toys).Namespace("default").Create(t.Context(), toy, metav1.CreateOptions{}))(t)
		assert.Equal(t, map[string]any{"phase": "kept"}, toy.Object["status"], "it has no subresource")
		w := must.Do(a.dynamic.Resource(toys).Watch(t.Context(), metav1.ListOptions{ResourceVersion: toy.GetResourceVersion()}))(t)
		defer w.Stop()
		require.NoError(t, a.dynamic.Resource(crds).Delete(t.Context(), made.GetName(), metav1.DeleteOptions{}))
		seen(t, w, toy.GetName(), watch.Deleted)
		until(t, "the end of the kind", func() bool {
			_, err := a.dynamic.Resource(toys).List(t.Context(), metav1.ListOptions{})
			return apierrors.IsNotFound(err)
		})
		for range w.ResultChan() { // the watch ends
			continue
		}
	}},
}

// may asks as a user whether it has a right.
func (a *api) may(t T, user, namespace string, rule rbacv1.PolicyRule) bool {
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub,
	}}}
	return must.Do(a.as(t, user).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), r, metav1.CreateOptions{}))(t).Status.Allowed
}

// as is the client of another user.
func (a *api) as(t T, user string) kubernetes.Interface {
	return must.Do(kubernetes.NewForConfig(a.config(user)))(t)
}

var accessRows = []row{
	{"a user without a right is told so", func(t T, a *api) {
		user := name("user")
		nobody := a.as(t, user)
		_, err := nobody.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.EqualError(t, err, `nodes "n" is forbidden: User "`+user+`" cannot get resource "nodes" in API group "" at the cluster scope`)
		_, err = nobody.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
		assert.EqualError(t, err, `leases.coordination.k8s.io is forbidden: User "`+user+`" cannot list resource "leases" in API group "coordination.k8s.io" in the namespace "default"`)
		_, err = nobody.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
		assert.EqualError(t, err, `nodes "n" is forbidden: User "`+user+`" cannot patch resource "nodes/status" in API group "" at the cluster scope`)
		err = nobody.CoreV1().RESTClient().Get().AbsPath("/apis/no.such.group/v1/things").Do(t.Context()).Error()
		assert.True(t, apierrors.IsForbidden(err), "before whether there is such a kind: %v", err)
	}},
	{"a right is of a verb, a kind and a namespace", func(t T, a *api) {
		user := name("user")
		a.grant(t, user, "default", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}})
		_, err := a.as(t, user).CoreV1().Secrets("default").Get(t.Context(), "nobody", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
		_, err = a.as(t, user).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), err)
		_, err = a.as(t, user).CoreV1().Secrets("kube-system").Get(t.Context(), "nobody", metav1.GetOptions{})
		assert.True(t, apierrors.IsForbidden(err), err)
	}},
	{"a user may ask for its own rights", func(t T, a *api) {
		user := name("user")
		may := func(verb, resource string) bool {
			return a.may(t, user, "", rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}})
		}
		assert.False(t, may("patch", "nodes/status"))
		a.grant(t, user, "", rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"nodes/status"}})
		assert.True(t, may("patch", "nodes/status"))
		assert.False(t, may("patch", "nodes"))
		assert.False(t, may("delete", "nodes/status"))
	}},
	{"who shows no valid credentials gets nothing", func(t T, a *api) {
		c := rest.AnonymousClientConfig(a.config("x"))
		anonymous := must.Do(kubernetes.NewForConfig(c))(t)
		_, err := anonymous.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.ErrorContains(t, err, `User "system:anonymous" cannot list resource "nodes"`)
		c.BearerToken = "invalid"
		stranger := must.Do(kubernetes.NewForConfig(c))(t)
		_, err = stranger.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsUnauthorized(err), err)
	}},
}
