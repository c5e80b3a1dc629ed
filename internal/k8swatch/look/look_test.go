package look

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 2 * time.Minute }

// readerOf is a Reader beside a view that nobody runs, joined as k8swatch joins them.
func readerOf(t *testing.T, cfg view.Config) *Reader {
	t.Helper()
	cfg.Name, cfg.FreshEvery = "test", time.Second
	cache := must.Do(view.New(cfg, zap.NewNop()))(t)
	servers, shared, leases := cache.Servers(), client.NewSharedReads(), client.NewLeaseClock()
	requests := write.NewRequests(servers, cfg.RequestHolder(), cfg.DecodeRequest)
	return &Reader{Servers: servers, View: cache, Leaders: &Leaders{Leases: leases, Log: zap.NewNop()}, Shared: shared,
		Locks: write.NewNodeLocks(servers.Work, shared, leases, "s", requests.Get), Request: requests.Get,
		Restored: write.NewRuns(servers, nil).Restored, IsMarked: write.IsMarked}
}

// served is a Reader whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Reader {
	t.Helper()
	return readerOf(t, view.Config{Kubeconfig: k8stest.Served(t, h)})
}

// beside is a Reader beside a view that knows these checks, and whose API server is not there.
func beside(t *testing.T, checks ...policy.Check) *Reader {
	t.Helper()
	return readerOf(t, view.Config{Kubeconfig: k8stest.Kubeconfig(t, "http://127.0.0.1:1"), Checks: checks})
}

// A look at a target that is only replaced asks the API server everything once, and nothing that
// it does not need.
func TestLookAsksOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), remediate.Run{
		Strategy: remediate.DeleteMachine, Step: remediate.Reprovision,
		Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m", MachineAPI: policy.OpenShiftMachineAPI},
	}, nil)
	assert.True(t, l.NoNodeLocks)
	leases := "/apis/coordination.k8s.io/v1/namespaces/"
	assert.Equal(t, 1, asked["/api/v1/namespaces/"+"medik8s-leases"])
	assert.Equal(t, 1, asked[leases+machineAPINamespace+"/leases/"+checkLeader])
	assert.Equal(t, 1, asked[leases+nodeLeases+"/leases/n"])
	for path, n := range asked {
		assert.Equal(t, 1, n, path)
		assert.NotContains(t, path, powerCycleLeader)
	}
}

// Where the namespace of medik8s' Leases cannot be read, nobody knows that there are none. // I22
func TestNodeLocksThatCannotBeReadMayExist(t *testing.T) {
	t.Parallel()
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "medik8s-leases" {
			k8stest.Status(w, http.StatusForbidden, "Forbidden", "medik8s-leases")
			return
		}
		k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	})
	assert.False(t, c.Look(t.Context(), remediate.Run{Target: remediate.Target{Node: "n"}}, nil).NoNodeLocks)
}

// What is the same for all targets is asked once for those who wait for it, whatever the target.
func TestSameQuestionsShareOneRequest(t *testing.T) {
	const many = 20
	for name, c := range map[string]struct {
		ask      func(context.Context, *Reader) error
		key, got string
	}{
		"the checks of a namespace": {
			ask: func(ctx context.Context, k *Reader) error {
				_, err := (&looker{r: k}).checksNow(ctx, false, "ns")
				return err
			},
			key: fmt.Sprintf("checks %s ns", client.CheckGVR), got: `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[]}`,
		},
		"the leader of a controller": {
			ask: func(ctx context.Context, k *Reader) error {
				_, err := (&looker{r: k}).readLeader(ctx, checkLeader)
				return err
			},
			key: "leader " + checkLeader,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			k := served(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if c.got == "" {
					k8stest.Status(w, http.StatusNotFound, "NotFound", checkLeader)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, c.got)
			})
			k.Shared.Patience = time.Hour
			var g sync.WaitGroup
			began, ends := make(chan struct{}), make(chan struct{})
			g.Go(func() { // a read of somebody who asked before
				_, err := client.ReadShared(t.Context(), k.Shared, c.key, func(context.Context) (string, error) {
					close(began)
					<-ends
					return "", nil
				})
				assert.NoError(t, err)
			})
			<-began
			for range many {
				g.Go(func() { assert.NoError(t, c.ask(t.Context(), k)) })
			}
			k8stest.Until(t, "all that ask", func() bool { return k.Shared.Waiting(c.key) == many })
			require.Zero(t, requests.Load())
			close(ends)
			g.Wait()
			assert.EqualValues(t, 1, requests.Load())
		})
	}
}

// More checks of a namespace than a look reads, or larger ones, make no look fail: whoever wrote them would keep all Machines there
// from being fenced. As one that was not read may ask its own controller, they count while that one is alive.
func TestTooManyChecksFailNoLook(t *testing.T) { // I22
	for name, body := range map[string]string{
		"too many":  `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7","continue":"more"},"items":[]}`,
		"too large": `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[{"kind":"` + strings.Repeat("x", client.MaxBody) + `"}]}`,
	} {
		for _, alive := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", its controller alive ", alive), func(t *testing.T) {
				c := served(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					switch {
					case strings.HasSuffix(r.URL.Path, "/machinehealthchecks"):
						_, _ = fmt.Fprint(w, body)
					case strings.HasSuffix(r.URL.Path, "/"+checkLeader) && alive:
						_, _ = fmt.Fprint(w, leaseNow(checkLeader, "mhc-0"))
					default:
						k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
					}
				})
				l := &looker{r: c, work: c.Servers.Work.API(), manage: c.Servers.Manage.API(), run: remediate.Run{Target: remediate.Target{Namespace: "ns", Machine: "m", MachineAPI: policy.OpenShiftMachineAPI}}}
				l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m"}
				l.ahead.checks, l.ahead.checksErr = l.checksNow(t.Context(), false, "ns")
				who := must.Do(l.leader(t.Context()))(t)
				assert.Equal(t, alive, who != "", who)
			})
		}
	}
}

func TestHostInTheWrongPlaceIsForbidden(t *testing.T) { // I8
	nowhere := k8stest.Kubeconfig(t, "http://127.0.0.1:1")
	one, apart := beside(t), readerOf(t, view.Config{Kubeconfig: nowhere, Management: view.ManagementConfig{Kubeconfig: nowhere}})
	for name, c := range map[string]struct {
		c               *Reader
		machineAPI, why string
		namespace       string // of the host
	}{
		"OpenShift's":                       {one, policy.OpenShiftMachineAPI, "", "ns"},
		"OpenShift's elsewhere":             {one, policy.OpenShiftMachineAPI, "", "hosts"},
		"OpenShift's of an old record":      {one, "", "", "ns"},
		"OpenShift's, a hub's host":         {apart, policy.OpenShiftMachineAPI, "is on the management API", "ns"},
		"OpenShift's of an old record, hub": {apart, "", "is on the management API", "ns"},
		"the Cluster API's":                 {apart, policy.ClusterAPIV1Beta2, "", "ns"},
		"the Cluster API's, one API":        {one, policy.ClusterAPIV1Beta1, "", "ns"},
		"the Cluster API's, a victim's":     {apart, policy.ClusterAPIV1Beta2, "in another namespace than Machine ns/m", "victim"},
	} {
		l := &looker{r: c.c, owned: &policy.Host{Namespace: c.namespace, Name: "h", Online: true},
			run: remediate.Run{Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m", MachineAPI: c.machineAPI, BareMetalHost: c.namespace + "/h"}}}
		l.powerOwner()
		if c.why == "" {
			assert.Empty(t, l.look.Seen.PowerForbidden, name)
		} else {
			assert.Contains(t, l.look.Seen.PowerForbidden, c.why, name)
		}
	}
}

// A BareMetalHost whose kind was deleted from the cluster is gone, with the power lock on it: else a run that is isolated would wait for
// that lock for ever, and never restore its Node. An API server that does not say so says nothing. // L1
func TestHostOfAKindThatIsGoneIsGone(t *testing.T) {
	for groups, gone := range map[string]bool{`[]`: true, `[{"name":"` + client.HostGroup + `"}]`: false, ``: false} {
		r := served(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis" || groups == "" {
				http.NotFound(w, r) // as an API server answers for a path of no kind
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":`+groups+`}`)
		})
		l := &looker{r: r, manage: r.Servers.Manage.API(), run: remediate.Run{Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m", BareMetalHost: "ns/h"}}}
		err := l.host(t.Context())
		if !gone {
			require.ErrorContains(t, err, "read BareMetalHost ns/h", groups)
			assert.Equal(t, remediate.CannotTell, l.look.Seen.PowerLock, groups)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, remediate.No, l.look.Seen.PowerLock)
		assert.Contains(t, l.look.Seen.PowerForbidden, "does not exist any more")
	}
}

// Without a Node, only the consumerRef says that a host is the Machine's. // I8
func TestHostOfAMachineWithoutANodeNamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		target      remediate.Target
		consumerRef string
		forbidden   bool
	}{
		"its own":                             {remediate.Target{Namespace: "ns", Machine: "m"}, "ns/m", false},
		"nobody's":                            {remediate.Target{Namespace: "ns", Machine: "m"}, "", true},
		"another's":                           {remediate.Target{Namespace: "ns", Machine: "m"}, "ns/m-9", true},
		"nobody's, and the Node is there":     {remediate.Target{Node: "n", Namespace: "ns", Machine: "m"}, "", false},
		"nobody's, and only hardware is left": {remediate.Target{Node: "n", Namespace: "ns", Machine: "m", ByHardware: true}, "", true},
	} {
		l := &looker{r: beside(t), run: remediate.Run{Target: c.target}, consumer: "ns/m",
			owned: &policy.Host{Namespace: "ns", Name: "h", Online: true, ConsumerRef: c.consumerRef}}
		l.powerOwner()
		assert.Equal(t, c.forbidden, l.look.Seen.PowerForbidden != "", "%s: %s", name, l.look.Seen.PowerForbidden)
	}
}

// memberPod is a Pod of a member of etcd on a Node.
func memberPod(node string, ready corev1.ConditionStatus) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + node, Namespace: metav1.NamespaceSystem, Labels: map[string]string{"component": "etcd"}}}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// pagedMembers is an API server that lists the members of etcd in kube-system in these pages, and none elsewhere. Each
// Node is Ready. gone: the token of this page has expired; loops: the last page leads to itself again.
type pagedMembers struct {
	t     *testing.T
	pages [][]corev1.Pod
	gone  int
	loops bool

	mu    sync.Mutex
	asked []string // the tokens
}

func (s *pagedMembers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		n := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: path.Base(r.URL.Path), UID: "u", ResourceVersion: "1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		assert.NoError(s.t, json.NewEncoder(w).Encode(n))
	case strings.HasSuffix(r.URL.Path, "/pods"):
		q := r.URL.Query()
		assert.Equal(s.t, fmt.Sprint(membersOnPage), q.Get("limit"))
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		if strings.Contains(r.URL.Path, metav1.NamespaceSystem) {
			assert.Equal(s.t, "component=etcd", q.Get("labelSelector"))
			s.asked = append(s.asked, q.Get("continue"))
			var at int
			if token := q.Get("continue"); token != "" {
				_, err := fmt.Sscanf(token, "page-%d", &at)
				assert.NoError(s.t, err)
			}
			if s.gone > 0 && at == s.gone {
				k8stest.Status(w, http.StatusGone, "Expired", "")
				return
			}
			list.Items = s.pages[at]
			if next := at + 1; next < len(s.pages) {
				list.Continue = fmt.Sprintf("page-%d", next)
			} else if s.loops {
				list.Continue = fmt.Sprintf("page-%d", at)
			}
		}
		assert.NoError(s.t, json.NewEncoder(w).Encode(list))
	default:
		k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	}
}

// look reads the members for a control-plane host.
func (s *pagedMembers) look() (*looker, error) {
	c := served(s.t, s.ServeHTTP)
	l := &looker{r: c, work: c.Servers.Work.API(), manage: c.Servers.Manage.API(), run: remediate.Run{ControlPlane: true, Target: remediate.Target{Node: "cp-1"}}}
	err := l.members(s.t.Context())
	return l, err
}

// The Pods that a kubelet makes up on its Node fill pages, and hide no member: each Node counts once, with all its Pods. // I12
func TestMembersAreReadInPages(t *testing.T) {
	full := func(node string) (list []corev1.Pod) {
		for range membersOnPage {
			list = append(list, memberPod(node, corev1.ConditionTrue))
		}
		return list
	}
	yes, no := corev1.ConditionTrue, corev1.ConditionFalse
	s := &pagedMembers{t: t, pages: [][]corev1.Pod{full("forger"), append(full("forger"), memberPod("cp-1", yes)), {memberPod("cp-2", yes), memberPod("forger", no)}, {memberPod("cp-3", yes)}}}
	l := must.Do(s.look())(t)
	assert.True(t, l.look.MembersKnown)
	assert.Equal(t, []policy.Member{{Node: "forger"}, {Node: "cp-1", Healthy: true}, {Node: "cp-2", Healthy: true}, {Node: "cp-3", Healthy: true}}, l.look.Members)
	assert.Equal(t, []string{"", "page-1", "page-2", "page-3"}, s.asked)
}

// A list that breaks off shows no members at all: those of its first pages alone could look like a quorum, or like none.
// The next look begins anew. // I12
func TestListOfMembersThatBreaksOffIsNone(t *testing.T) {
	page := []corev1.Pod{memberPod("cp-1", corev1.ConditionTrue)}
	s := &pagedMembers{t: t, pages: [][]corev1.Pod{page, page, page}, gone: 2}
	l, err := s.look()
	require.ErrorContains(t, err, "list the etcd Pods of kube-system")
	assert.False(t, l.look.MembersKnown)
	assert.Empty(t, l.look.Members)
	assert.Equal(t, []string{"", "page-1", "page-2"}, s.asked)

	s.gone, s.asked = 0, nil
	l = must.Do(s.look())(t)
	assert.True(t, l.look.MembersKnown)
	assert.Equal(t, []string{"", "page-1", "page-2"}, s.asked)

	s.loops, s.asked = true, nil
	l, err = s.look()
	require.ErrorContains(t, err, "there are more than 10000")
	assert.False(t, l.look.MembersKnown)
	assert.Len(t, s.asked, memberPages)
}
