package rig_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/test/kube"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

func TestServerSaysItsTrueVersion(t *testing.T) {
	c := rigtest.Shared(t)
	v := must.Do(c.Client().Version(t.Context()))(t)
	assert.Equal(t, "v1.36.3", v.GitVersion)
}

func TestFencedHasItsRoleAndNoMore(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	secret := rigtest.Name("role")
	require.NoError(t, c.CreateSecret(ctx, secret, map[string]string{"username": "u"}))
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	cfg := must.Do(clientcmd.BuildConfigFromFlags("", path))(t)
	fenced := must.Do(kube.NewForConfig(cfg))(t)

	_, err := fenced.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	assert.NoError(t, err, "Nodes are what it watches")
	_, err = fenced.CoreV1().Secrets(rig.Namespace).Get(ctx, secret, metav1.GetOptions{})
	assert.NoError(t, err, "a Secret is read by its name")
	_, err = fenced.CoreV1().Secrets(rig.Namespace).List(ctx, metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "Secrets are never listed: %v", err)
	_, err = fenced.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, secret, metav1.GetOptions{})
	assert.True(t, apierrors.IsForbidden(err), "nor read where no BareMetalHosts are: %v", err)
	err = fenced.CoreV1().Pods(rig.Namespace).Delete(ctx, "any", metav1.DeleteOptions{})
	assert.True(t, apierrors.IsForbidden(err), "pods are not its own: %v", err)
}

func TestAPIServerGoesAndReturns(t *testing.T) {
	c := rigtest.Own(t, rig.Options{Bare: true})
	ctx := rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, "kept"))
	must.Do(c.CreateNode(ctx, rig.Node{Name: "once"}))(t)
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, "once", metav1.DeleteOptions{}))
	url := c.URL()
	// kube-controller-manager ends if the API server goes while it starts: its namespace controller, which is among the last to start, has done something.
	must.Do(c.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{}))(t)
	require.NoError(t, c.Client().CoreV1().Namespaces().Delete(ctx, "gone", metav1.DeleteOptions{}))
	for {
		_, err := c.Client().CoreV1().Namespaces().Get(ctx, "gone", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			break
		}
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}

	c.StopAPIServer()
	_, err := c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
	require.ErrorContains(t, err, "connection refused")
	assert.Error(t, c.FreezeAPIServer(), "nothing to freeze")
	assert.NoError(t, c.Died(), "a program that the test stopped did not die")

	require.NoError(t, c.StartAPIServer(ctx))
	assert.Equal(t, url, c.URL())
	_, err = c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
	require.NoError(t, err, "the data outlives the API server")
	deletions := must.Do(c.NodeDeletions("once"))(t)
	require.Len(t, deletions, 1, "and so does the audit log")
	assert.Empty(t, deletions[0].UID, "that request had no preconditions")

	require.NoError(t, c.FreezeAPIServer())
	short := rigtest.Context(t, 500*time.Millisecond)
	_, err = c.Client().CoreV1().Namespaces().Get(short, "kept", metav1.GetOptions{})
	require.ErrorContains(t, err, "deadline exceeded", "a frozen server hangs, it does not refuse")
	require.NoError(t, c.ThawAPIServer())
	must.Do(c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}))(t)
}

func TestOneThatDoesNotStartStopsTheOthers(t *testing.T) {
	before := children(t)
	_, err := rig.StartAll(t.Context(), rig.Options{Bare: true}, rig.Options{CRDs: []rig.CRDs{"nothing"}})
	require.ErrorContains(t, err, `no set of CRDs "nothing"`)
	require.Equal(t, before, children(t), "programs are left")
}

// children are the processes that this one has started, and that run.
func children(t *testing.T) (pids []string) {
	t.Helper()
	files := must.Do(filepath.Glob("/proc/[0-9]*/stat"))(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, filepath.Dir(file))
		}
	}
	return pids
}

// power is a host's power switch.
type power struct{ on atomic.Bool }

func (p *power) state(context.Context) (bool, error) { return p.on.Load(), nil }

func switchedOn() *power {
	p := &power{}
	p.on.Store(true)
	return p
}

func options(name string, p *power) rig.KubeletOptions {
	return rig.KubeletOptions{
		NodeName: name, SystemUUID: "4c4c4544-0044-4210-8031-c4c04f4d3132", Power: p.state,
		BootDelay: 200 * time.Millisecond, Labels: map[string]string{"zone": "a"},
	}
}

func ready(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionTrue }

func gone(n *corev1.Node) bool { return n == nil }

func heartbeat(t *testing.T, c *rig.ControlPlane, node string) time.Time {
	t.Helper()
	l, err := c.Client().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{}
	}
	require.NoError(t, err)
	return l.Spec.RenewTime.Time
}

func TestOnlyTheControllerManagerSetsUnknown(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("hangs")
	k := rigtest.RunKubelet(t, c, options(name, switchedOn()))
	before := must.Do(c.WaitNode(ctx, name, ready))(t)
	assert.Equal(t, k.BootID(), before.Status.NodeInfo.BootID)
	assert.Equal(t, "a", before.Labels["zone"])

	k.Hang()
	start := time.Now()
	node := must.Do(c.WaitNode(ctx, name, func(n *corev1.Node) bool {
		return rig.ReadyStatus(n) == corev1.ConditionUnknown
	}))(t)
	t.Logf("Ready=Unknown %s after the hang", time.Since(start).Round(100*time.Millisecond))
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			assert.Equal(t, "NodeStatusUnknown", cond.Reason, "the reason that node-lifecycle gives")
		}
	}
	assert.Equal(t, before.UID, node.UID)
}

func TestRunningKubeletNeverRegistersAgain(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("deleted")
	k := rigtest.RunKubelet(t, c, options(name, switchedOn()))
	must.Do(c.WaitNode(ctx, name, ready))(t)
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	must.Do(c.WaitNode(ctx, name, gone))(t)

	time.Sleep(3 * time.Second) // three heartbeats: long enough to register, were it wrong
	_, err := c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
	assert.NotEmpty(t, k.BootID())
}

func TestZombieRenewsWithoutPower(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("zombie")
	p := switchedOn()
	k := rigtest.RunKubelet(t, c, options(name, p))
	must.Do(c.WaitNode(ctx, name, ready))(t)
	k.SetZombie(true)
	p.on.Store(false)
	at := heartbeat(t, c, name)
	require.Eventually(t, func() bool { return heartbeat(t, c, name).After(at.Add(2 * time.Second)) },
		time.Minute, 100*time.Millisecond, "a zombie goes on")

	k.SetZombie(false)
	require.Eventually(t, func() bool { return k.BootID() == "" }, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { // a renewal may be under way when it dies
		last := heartbeat(t, c, name)
		time.Sleep(2500 * time.Millisecond)
		return last.Equal(heartbeat(t, c, name))
	}, time.Minute, time.Millisecond, "without power there is no heartbeat")
}

func TestDefinitionsComeAndGo(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true}), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, rig.Namespace))
	_, err := c.CreateCAPICluster(ctx, "blue")
	require.ErrorContains(t, err, "find the version of Cluster API")

	require.NoError(t, c.InstallCRDs(ctx, rig.CAPIv1beta1))
	must.Do(c.CreateCAPICluster(ctx, "blue"))(t)
	clusters := c.Dynamic().Resource(rig.CAPIResource("v1beta1", "clusters")).Namespace(rig.Namespace)
	must.Do(clusters.List(ctx, metav1.ListOptions{}))(t)
	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta1))
	require.Eventually(t, func() bool {
		_, err := clusters.Get(ctx, "blue", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 50*time.Millisecond, "the objects go with their definition")
	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta1), "what goes, or has gone, is removed")
}

// The holes in the schema are those of real clusters, and fenced must live with
// what comes through them; were a hole closed here, its test would test nothing.
func TestCheckSchemaHasTheHolesOfRealClusters(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	for _, row := range []struct {
		name   string
		check  rig.Check
		passes bool
	}{
		{"negative startup timeout", rig.Check{NodeStartupTimeout: "-5m"}, true},
		{"startup timeout with a word before", rig.Check{NodeStartupTimeout: "foo10m"}, true},
		{"startup timeout of words", rig.Check{NodeStartupTimeout: "soon"}, false},
		{"absolute limit in a string", rig.Check{MaxUnhealthy: "2"}, true},
		{"percentage", rig.Check{MaxUnhealthy: "40%"}, true},
		{"negative number", rig.Check{MaxUnhealthy: int64(-1)}, true},
		{"limit of words", rig.Check{MaxUnhealthy: "some"}, false},
		{"more than all", rig.Check{MaxUnhealthy: "150%"}, false},
		{"timeout of a condition without a unit", rig.Check{Conditions: rig.NotReadyFor("0")}, false},
		{"timeout of a condition", rig.Check{Conditions: rig.NotReadyFor("300s")}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.check.Name = "schema-check"
			_, err := c.CreateCheck(ctx, row.check)
			if !row.passes {
				require.True(t, apierrors.IsInvalid(err), "got %v", err)
				return
			}
			require.NoError(t, err)
			client := c.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace)
			require.NoError(t, client.Delete(ctx, "schema-check", metav1.DeleteOptions{}))
		})
	}
}

func field(obj *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return v
}

func TestNodeCheckKeepsWhatItIsGiven(t *testing.T) {
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("check")
	must.Do(c.CreateNodeCheck(ctx, rig.NodeCheck{
		Name: name, Match: map[string]string{"pool": "metal"},
		Conditions:    []rig.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: "1m"}},
		MaxUnhealthy:  int64(2),
		PauseRequests: []string{"upgrade"}, HealthyDelay: "-1s", StormCooldown: "10m",
		Escalating: []rig.Escalation{{Order: 1, Template: rig.RemediationTemplate("reboot"), Timeout: "5m"}},
	}))(t)
	got := must.Do(c.Dynamic().Resource(rig.NodeCheckResource).Get(ctx, name, metav1.GetOptions{}))(t)
	assert.Empty(t, got.GetNamespace())
	assert.Equal(t, map[string]any{
		"selector":            map[string]any{"matchLabels": map[string]any{"pool": "metal"}},
		"unhealthyConditions": []any{map[string]any{"type": "Ready", "status": "Unknown", "duration": "1m"}},
		"maxUnhealthy":        int64(2), "pauseRequests": []any{"upgrade"},
		"healthyDelay": "-1s", "stormCooldownDuration": "10m",
		"escalatingRemediations": []any{map[string]any{"order": int64(1), "timeout": "5m", "remediationTemplate": map[string]any{
			"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3RemediationTemplate",
			"name": "reboot", "namespace": rig.Namespace,
		}}},
	}, got.Object["spec"], "an unknown field would have been pruned")

	require.NoError(t, c.SetStatus(ctx, rig.NodeCheckResource, name, map[string]any{
		"observedNodes": int64(3), "healthyNodes": int64(2), "phase": "Remediating",
		"unhealthyNodes": []any{map[string]any{"name": "node-1", "healthyDelayed": true}},
	}))
	value := "yes"
	require.NoError(t, c.Annotate(ctx, rig.NodeCheckResource, name, "seen", &value))
	got = must.Do(c.Dynamic().Resource(rig.NodeCheckResource).Get(ctx, name, metav1.GetOptions{}))(t)
	assert.Equal(t, int64(3), field(got, "status", "observedNodes"))
	assert.Len(t, field(got, "status", "unhealthyNodes"), 1)
	assert.Equal(t, "yes", got.GetAnnotations()["seen"])
}

func TestNodeCheckDefaultsAreThoseOfTheAPI(t *testing.T) {
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	made := must.Do(c.CreateNodeCheck(ctx, rig.NodeCheck{Name: rigtest.Name("defaults"), Template: rig.RemediationTemplate("reboot")}))(t)
	assert.Equal(t, []any{
		map[string]any{"type": "Ready", "status": "False", "duration": "300s"},
		map[string]any{"type": "Ready", "status": "Unknown", "duration": "300s"},
	}, field(made, "spec", "unhealthyConditions"))
	assert.Nil(t, field(made, "spec", "minHealthy"), "a limit is what the operator's webhook asks for")
	assert.Equal(t, "reboot", field(made, "spec", "remediationTemplate", "name"))
}

// The holes in the schema are those of real clusters: fenced must refuse or bear
// what comes through them.
func TestNodeCheckSchemaHasTheHolesOfRealClusters(t *testing.T) {
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	twice := []rig.UnhealthyCondition{{Type: "Ready", Status: "False", Timeout: "1m"}, {Type: "Ready", Status: "False", Timeout: "2m"}}
	short := []rig.Escalation{{Order: 1, Timeout: "1s"}, {Order: 1, Timeout: "1s"}}
	for _, row := range []struct {
		name   string
		check  rig.NodeCheck
		passes bool
	}{
		{"both limits", rig.NodeCheck{MinHealthy: "51%", MaxUnhealthy: "49%"}, true},
		{"a number in a string", rig.NodeCheck{MinHealthy: "10"}, true},
		{"negative number", rig.NodeCheck{MinHealthy: int64(-1)}, true},
		{"escalation with one order twice and too short", rig.NodeCheck{Escalating: short}, true},
		{"percentage beyond 100", rig.NodeCheck{MinHealthy: "101%"}, false},
		{"limit of words", rig.NodeCheck{MaxUnhealthy: "some"}, false},
		{"one condition twice", rig.NodeCheck{Conditions: twice}, false},
		{"negative duration", rig.NodeCheck{Conditions: rig.NotReadyFor("-1m")}, false},
		{"negative cooldown", rig.NodeCheck{StormCooldown: "-1m"}, false},
		{"healthy delay of words", rig.NodeCheck{HealthyDelay: "never"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.check.Name = rigtest.Name("schema")
			_, err := c.CreateNodeCheck(ctx, row.check)
			if row.passes {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "got %v", err)
		})
	}
}

// TestPool: the next borrower finds nothing of the one before, and what that one took away. No control plane whose API server was stopped is lent
// again, and none with other arguments.
func TestPool(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	t.Parallel()
	ctx := rigtest.Context(t, 5*time.Minute)
	pool := &rig.Pool{}
	t.Cleanup(pool.Stop)
	borrow := func(o rig.Options) *rig.ControlPlane {
		planes := must.Do(pool.StartAll(ctx, o))(t)
		t.Cleanup(planes[0].Stop)
		return planes[0]
	}
	deletions := func(c *rig.ControlPlane) []rig.Deletion {
		return must.Do(c.AllNodeDeletions())(t)
	}
	has := func(c *rig.ControlPlane, resource schema.GroupVersionResource) bool {
		_, err := c.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), err)
		return err == nil
	}
	versions := schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}

	first := borrow(rig.Options{CRDs: []rig.CRDs{rig.Metal3}})
	dir := first.Dir()
	for _, name := range []string{"left", "deleted"} {
		must.Do(first.CreateNode(ctx, rig.Node{Name: name}))(t)
	}
	require.NoError(t, first.Apply(ctx, []byte("apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {name: left}\n")))
	require.NoError(t, first.CreateNamespace(ctx, "left"))
	require.NoError(t, first.Client().CoreV1().Nodes().Delete(ctx, "deleted", metav1.DeleteOptions{}))
	require.Len(t, deletions(first), 1)
	require.NoError(t, first.Client().RbacV1().ClusterRoles().Delete(ctx, "fenced", metav1.DeleteOptions{}))
	require.NoError(t, first.Client().RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{}))
	require.NoError(t, first.InstallCRDs(ctx, rig.ClusterVersions))
	require.True(t, has(first, versions))
	first.Stop()

	second := borrow(rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3}})
	require.Equal(t, dir, second.Dir(), "it is lent again")
	first.Stop() // the former borrower can no longer stop it
	for _, r := range []schema.GroupVersionResource{{Version: "v1", Resource: "nodes"}, {Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}} {
		left := must.Do(second.Dynamic().Resource(r).List(ctx, metav1.ListOptions{}))(t)
		assert.Empty(t, left.Items, r.Resource)
	}
	_, err := second.Client().CoreV1().Namespaces().Get(ctx, "left", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), err)
	assert.Empty(t, deletions(second))
	for _, role := range []string{"fenced", "view"} {
		_, err = second.Client().RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{})
		assert.NoError(t, err)
	}
	assert.False(t, has(second, versions))
	second.StopAPIServer()
	require.NoError(t, second.StartAPIServer(ctx))
	second.Stop()

	restricted := borrow(rig.Options{Bare: true, NoManager: true, NodeRestriction: true})
	itsDir := restricted.Dir()
	restricted.Stop()
	last := borrow(rig.Options{Bare: true, NoManager: true}).Dir()
	assert.NotEqual(t, dir, last)
	assert.NotEqual(t, itsDir, last, "an API server with NodeRestriction is lent to who asks for it")
}

// A client that is killed in the middle of a request leaves it to the API server,
// which carries some out and logs them as failed: they were deletions all the same.
func TestDeletionsWithoutAnAnswer(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 2*time.Minute)
	nodes := c.Client().CoreV1().Nodes()
	uids := map[string]string{}
	for i := range 60 {
		n := must.Do(c.CreateNode(ctx, rig.Node{Name: rigtest.Name("cut")}))(t)
		uids[n.Name] = string(n.UID)
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*200*time.Microsecond)
		err := nodes.Delete(short, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
		cancel()
		assert.True(t, err == nil || short.Err() != nil, err)
	}
	// What is under way ends at some time, and then its line is in the log.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		missing, done, cutOff := without(t, ctx, nodes, uids), map[string]string{}, 0
		all := must.Do(c.AllNodeDeletions())(t)
		for _, d := range all {
			if uids[d.Name] != "" {
				require.NotContains(t, done, d.Name, "deleted once")
				done[d.Name] = d.UID
				if d.CutOff {
					cutOff++
				}
			}
		}
		require.Equal(t, missing, done, "%d without an answer", cutOff)
	}, time.Minute, time.Second)
}

// without are those of uids, UID by name, whose Node is there no more.
func without(t require.TestingT, ctx context.Context, nodes *kube.Nodes, uids map[string]string) map[string]string {
	list := must.Do(nodes.List(ctx, metav1.ListOptions{}))(t)
	left := maps.Clone(uids)
	for _, n := range list.Items {
		delete(left, n.Name)
	}
	return left
}
