package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fenced/fenced/test/must"
)

// started is a server, and its administrator's client.
func started(t *testing.T, o Options) (*Server, kubernetes.Interface) {
	t.Helper()
	s := must.Do(Start(o))(t)
	t.Cleanup(s.Close)
	c := s.RESTConfig("admin", AdminGroup)
	c.ContentType = kruntime.ContentTypeProtobuf
	return s, must.Do(kubernetes.NewForConfig(c))(t)
}

func made(t *testing.T, c kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	return must.Do(c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	s, c := started(t, Options{Clock: func() time.Time { return now }})
	n := made(t, c, "n")
	assert.Equal(t, now.Truncate(time.Second), n.CreationTimestamp.UTC())
	got := must.Do(must.Do(rest.HTTPClientFor(s.RESTConfig("admin", AdminGroup)))(t).Get(s.URL() + "/readyz"))(t)
	defer got.Body.Close()
	assert.Equal(t, "Wed, 02 Jan 2030 03:04:05 GMT", got.Header.Get("Date"))
}

// A list that is continued after its version is forgotten is expired, as on a real server five minutes after its first page.
func TestCompaction(t *testing.T) {
	t.Parallel()
	_, c := started(t, Options{History: 8})
	for i := range 3 {
		made(t, c, fmt.Sprint("n", i))
	}
	first := must.Do(c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
	w := must.Do(c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion}))(t)
	defer w.Stop()
	next := metav1.ListOptions{Limit: 1, Continue: first.Continue}
	must.Do(c.CoreV1().Nodes().List(t.Context(), next))(t)
	for i := range 20 {
		late := fmt.Sprint("late", i)
		made(t, c, late)
		e := <-w.ResultChan()
		require.Equal(t, watch.Added, e.Type, "a watch that has reached the present goes on")
		require.Equal(t, late, e.Object.(*corev1.Node).Name)
	}
	_, err := c.CoreV1().Nodes().List(t.Context(), next)
	assert.True(t, apierrors.IsResourceExpired(err), err)
}

// History that is not kept is forgotten, and no more of it than need be.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s, c := started(t, Options{History: 8})
	var versions []string
	for i := range 30 {
		versions = append(versions, made(t, c, fmt.Sprint("n", i)).ResourceVersion)
	}
	s.mu.RLock()
	kept := len(s.kinds[schema.GroupResource{Resource: "nodes"}].table.history)
	s.mu.RUnlock()
	assert.LessOrEqual(t, kept, 10)
	for i, version := range versions {
		w := must.Do(c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: version}))(t)
		switch {
		case i < 19:
			assert.Equal(t, watch.Error, (<-w.ResultChan()).Type)
		case i >= 30-8 && i < 29:
			assert.Equal(t, watch.Added, (<-w.ResultChan()).Type)
		}
		w.Stop()
	}
}

// faults are switched on by a test, and asked by its server.
type faults struct {
	current atomic.Pointer[func(context.Context, Request) error]
}

func (f *faults) before(ctx context.Context, q Request) error {
	if now := f.current.Load(); now != nil {
		return (*now)(ctx, q)
	}
	return nil
}

func (f *faults) are(what func(context.Context, Request) error) { f.current.Store(&what) }

func TestFaults(t *testing.T) {
	t.Parallel()
	var f faults
	_, c := started(t, Options{Before: f.before})
	get := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := c.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
		return err
	}
	n := made(t, c, "n")
	w := must.Do(c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: n.ResourceVersion}))(t)
	defer w.Stop()
	made(t, c, "before")
	require.Equal(t, watch.Added, (<-w.ResultChan()).Type)

	f.are(func(_ context.Context, q Request) error {
		if q.Resource == "nodes" {
			return apierrors.NewInternalError(assert.AnError)
		}
		return nil
	})
	assert.True(t, apierrors.IsInternalError(get(time.Minute)))
	must.Do(c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}))(t)
	f.are(func(context.Context, Request) error { return apierrors.NewResourceExpired("gone") })
	assert.True(t, apierrors.IsResourceExpired(get(time.Minute)))
	f.are(func(context.Context, Request) error {
		time.Sleep(time.Second)
		return nil
	})
	began := time.Now()
	require.NoError(t, get(time.Minute))
	assert.GreaterOrEqual(t, time.Since(began), time.Second)

	repaired := make(chan struct{})
	f.are(func(ctx context.Context, q Request) error {
		if q.Verb == "create" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-repaired:
			return nil
		}
	})
	require.ErrorIs(t, get(100*time.Millisecond), context.DeadlineExceeded)
	waits := make(chan error, 1)
	go func() { waits <- get(time.Minute) }()
	made(t, c, "unseen")
	select {
	case e := <-w.ResultChan():
		t.Errorf("the watch sends %v", e)
	case err := <-waits:
		t.Errorf("an answer: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(repaired)
	require.NoError(t, <-waits, "as of a server that was frozen")
	assert.Equal(t, "unseen", (<-w.ResultChan()).Object.(*corev1.Node).Name)
}

// A client of another server gets nothing from this one, and a closed server refuses connections.
func TestServersAreApart(t *testing.T) {
	t.Parallel()
	one, _ := started(t, Options{})
	two, _ := started(t, Options{})
	mixed := one.RESTConfig("admin", AdminGroup)
	mixed.Host = two.URL()
	_, err := must.Do(kubernetes.NewForConfig(mixed))(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	mixed.CAData = two.RESTConfig("x").CAData
	_, err = must.Do(kubernetes.NewForConfig(mixed))(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsUnauthorized(err), err)

	own := must.Do(kubernetes.NewForConfig(one.RESTConfig("fenced")))(t)
	must.Do(own.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	one.Close()
	_, err = own.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "connection refused")
}

// What a page of a list shows does not depend on how many later changes there are, whatever they are.
func TestPagesAreOfOneVersion(t *testing.T) {
	t.Parallel()
	_, c := started(t, Options{})
	at := uint64(0)
	for i := range 20 {
		at = must.Do(strconv.ParseUint(made(t, c, fmt.Sprintf("n%02d", i)).ResourceVersion, 10, 64))(t)
	}
	for i := range 20 {
		switch i % 3 {
		case 0:
			require.NoError(t, c.CoreV1().Nodes().Delete(t.Context(), fmt.Sprintf("n%02d", i), metav1.DeleteOptions{}))
		case 1:
			n := must.Do(c.CoreV1().Nodes().Get(t.Context(), fmt.Sprintf("n%02d", i), metav1.GetOptions{}))(t)
			n.Labels = map[string]string{"late": "yes"}
			must.Do(c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		case 2:
			made(t, c, fmt.Sprintf("n%02dlate", i))
		}
	}
	for _, limit := range []int64{0, 1, 7, 20, 100} {
		for from := range 21 {
			next := base64.RawURLEncoding.EncodeToString(must.Do(json.Marshal(page{at, fmt.Sprintf("n%02d", from)}))(t))
			found := must.Do(c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Continue: next, Limit: limit}))(t).Items
			want := 20 - from
			if limit > 0 {
				want = min(want, int(limit))
			}
			require.Len(t, found, want)
			for i, n := range found {
				require.Equal(t, fmt.Sprintf("n%02d", from+i), n.Name)
				require.Empty(t, n.Labels)
				require.LessOrEqual(t, must.Do(strconv.ParseUint(n.ResourceVersion, 10, 64))(t), at)
			}
		}
	}
}

// TestManyNodes: the memory that a Node takes. FENCED_NODES=500000 holds as many; the ordinary tests hold 5,000.
func TestManyNodes(t *testing.T) {
	count := 5000
	if text := os.Getenv("FENCED_NODES"); text != "" {
		count = must.Do(strconv.Atoi(text))(t)
	}
	s, c := started(t, Options{History: 100})
	before, began := heap(), time.Now()
	for i := range count {
		n := largeNode(i)
		require.NoError(t, s.about("nodes", "").store(n))
	}
	after := heap()
	first, _ := s.kinds[schema.GroupResource{Resource: "nodes"}].table.latest().Min()
	raw := len(first.raw)
	t.Logf("%d Nodes in %s: %d bytes each in memory, %d of them the object", count, time.Since(began).Round(time.Millisecond), (after-before)/uint64(count), raw)
	assert.Less(t, (after-before)/uint64(count), uint64(2*raw+500))

	began = time.Now()
	listed := 0
	for o := (metav1.ListOptions{Limit: 500}); ; {
		page := must.Do(c.CoreV1().Nodes().List(t.Context(), o))(t)
		listed += len(page.Items)
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	assert.Equal(t, count, listed)
	paged := time.Since(began)
	began = time.Now()
	yes := true
	w := must.Do(c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true}))(t)
	defer w.Stop()
	for listed = 0; ; listed++ {
		if e := <-w.ResultChan(); e.Type == watch.Bookmark {
			break
		}
	}
	assert.Equal(t, count, listed)
	t.Logf("listed in pages of 500 in %s, streamed in %s", paged.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// largeNode is a Node as a kubelet reports it.
func largeNode(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        fmt.Sprintf("node-%06d", i),
		Labels:      map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%06d", i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": fmt.Sprint(i % 50)},
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	n.Spec.ProviderID = fmt.Sprintf("metal3://%d", i)
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250")}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: n.Name}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: fmt.Sprintf("%032d", i), SystemUUID: fmt.Sprintf("%036d", i), BootID: fmt.Sprintf("%036d", i), KernelVersion: "6.12.0", OSImage: "Linux",
		ContainerRuntimeVersion: "cri-o://1.36.0", KubeletVersion: Version, OperatingSystem: "linux", Architecture: "amd64",
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: metav1.Unix(1_800_000_000, 0), LastTransitionTime: metav1.Unix(1_800_000_000, 0)})
	}
	return n
}
