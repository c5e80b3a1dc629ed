package k8swatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestWatchFollowsTheCluster(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	node, machine := rigtest.Name("follow-node"), rigtest.Name("follow-machine")
	host, set := rigtest.Name("follow-host"), rigtest.Name("follow-set")
	must.Do(c.CreateNode(ctx, rig.Node{Name: node, SystemUUID: "su", Labels: map[string]string{"a": "1"}, Annotations: rig.NamesMachine(machine)}))(t)
	must.Do(c.CreateMachineSet(ctx, set))(t)
	must.Do(c.CreateHost(ctx, rig.Host{Name: host, Address: "ipmi://192.0.2.1", User: "u", Password: "p", Machine: machine}))(t)
	must.Do(c.CreateMachine(ctx, rig.Machine{Name: machine, MachineSet: set, Host: host, NodeName: node}))(t)

	k8stest.Until(t, "everything is seen", func() bool {
		v := k8stest.Seen(k)
		m := v.Machine(machine)
		if m == nil || m.NodeName != node || v.Node(node) == nil {
			return false
		}
		h, err := policy.HostFor(*m, v.Hosts())
		return err == nil && h.Name == host && m.ControllerOwner.Name == set
	})
	n := k8stest.Seen(k).Node(node)
	assert.Equal(t, "1", n.Labels.Get("a"))
	assert.Equal(t, "su", n.SystemUUID)
	assert.Equal(t, rig.Namespace+"/"+machine, n.OpenShiftMachine, "the Node names its Machine")

	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}))
	k8stest.Until(t, "the deletion is seen", func() bool { return k8stest.Seen(k).Node(node) == nil })
}

func TestUndecodableCheckHidesNoOther(t *testing.T) { // I18
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	good, bad := rigtest.Name("check-good"), rigtest.Name("check-bad")
	for name, startup := range map[string]string{good: "10m", bad: "foo10m"} {
		_, err := c.CreateCheck(ctx, rig.Check{Name: name, Match: map[string]string{"none": name},
			Conditions: rig.NotReadyFor("300s"), NodeStartupTimeout: startup})
		require.NoError(t, err, "the API server lets it in")
	}
	k8stest.Until(t, "both are seen", func() bool {
		return k8stest.Seen(k).Check(good) != nil && k8stest.Seen(k).Check(bad) != nil
	})
	assert.Empty(t, k8stest.Seen(k).Check(good).Invalid)
	assert.Contains(t, k8stest.Seen(k).Check(bad).Invalid, "foo10m")
}

// Bookmarks prove an idle cluster's view again and again. // I16
func TestIdleViewStaysFresh(t *testing.T) {
	pace.Until(t, "proven again in time", func() bool { // a busy machine makes some of them late
		worst, problem := oldestIdle(t)
		return worst < 12*time.Second && problem == ""
	})
}

// oldestIdle is how old the view of an idle cluster becomes, and what is wrong with it then.
func oldestIdle(t *testing.T) (worst time.Duration, problem string) {
	k := watching(t, rigtest.Shared(t))
	time.Sleep(4 * time.Second) // past the end of the streamed lists
	end := time.Now().Add(8 * time.Second)
	for time.Now().Before(end) {
		worst = max(worst, k.View().Age)
		time.Sleep(50 * time.Millisecond)
	}
	v := k.View()
	assert.LessOrEqual(t, v.Skew.Abs(), time.Second)
	t.Logf("the oldest view was %s old; problem: %q", worst, v.Problem)
	return worst, v.Problem
}

// Definitions appear and vanish while the view is kept. How a served version is
// followed, TestServedVersionIsFollowed and TestMoveToAnotherVersion show.
func TestKindsComeAndGo(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true}), rigtest.Context(t, 5*time.Minute)
	path := must.Do(c.Kubeconfig("root", rig.AdminGroup))(t)
	k := run(t, path)
	k8stest.Until(t, "a view without Machines", func() bool { return k.View().Synced })
	assert.Empty(t, k8stest.Seen(k))
	assert.Empty(t, k.View().Problem, "a missing kind is no problem")

	require.NoError(t, c.CreateNamespace(ctx, rig.Namespace))
	require.NoError(t, c.InstallCRDs(ctx))
	must.Do(c.CreateCheck(ctx, rig.Check{Name: "late", Conditions: rig.NotReadyFor("300s")}))(t)
	k8stest.Until(t, "the check appears", func() bool { return k8stest.Seen(k).Check("late") != nil })
	k8stest.Until(t, "and is proven", func() bool { return k.View().Age < 5*time.Second })

	require.NoError(t, c.InstallCRDs(ctx, rig.CAPIv1beta2))
	must.Do(c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: "m", Cluster: "blue"}))(t)
	k8stest.Until(t, "the Machine appears", func() bool { return k8stest.Seen(k).Machine("m") != nil })
	k8stest.Until(t, "and is proven", func() bool { return k.View().Synced && k.View().Age < 5*time.Second && k.View().Problem == "" })

	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta2))
	k8stest.Until(t, "the Machine vanishes", func() bool { return k8stest.Seen(k).Machine("m") == nil })
	assert.NotNil(t, k8stest.Seen(k).Check("late"))
}

// Rights of an older release: kinds that they do not name are forbidden, whether
// they are installed or not.
func TestKindsWithoutRights(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	user := rigtest.Name("old-fenced")
	read := []string{"get", "list", "watch"}
	must.Do(c.Client().RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: read},
		{APIGroups: []string{client.HostGroup}, Resources: []string{"baremetalhosts"}, Verbs: read},
		{APIGroups: []string{client.MachineGroup}, Resources: []string{"machines"}, Verbs: read},
	}}, metav1.CreateOptions{}))(t)
	must.Do(c.Client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{}))(t)
	path := must.Do(c.Kubeconfig(user))(t)
	k := run(t, path)
	unread := func() (kinds []string) {
		for _, kind := range k.Kinds(ctx) {
			if kind.Problem != "" {
				kinds = append(kinds, kind.Group+"/"+kind.Kind)
			}
		}
		return kinds
	}
	installed := []string{client.MachineGroup + "/" + policy.MachineHealthCheckKind}
	k8stest.Until(t, "what is not installed is empty", func() bool { return slices.Equal(unread(), installed) })
	k8stest.Until(t, "what is installed is not, and the view says why", func() bool {
		v := k.View()
		return !v.Synced && strings.Contains(v.Problem, "forbidden")
	})

	must.Do(c.Client().RbacV1().ClusterRoles().Patch(ctx, user, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/rules/2/resources/-","value":"machinehealthchecks"}]`), metav1.PatchOptions{}))(t)
	k8stest.Until(t, "the right helps at once", func() bool { return k.View().Synced })
}

// The API server is killed and comes back; it hangs and goes on. Each time the
// view grows old, says so, and returns without a restart of ours. // I16
func TestViewGrowsOldInAnOutageAndReturns(t *testing.T) {
	c := rigtest.Own(t, rig.Options{})
	ctx := rigtest.Context(t, 2*time.Minute)
	must.Do(c.CreateNode(ctx, rig.Node{Name: "before"}))(t)
	k := watching(t, c)
	k8stest.Until(t, "the Node is seen", func() bool { return k8stest.Seen(k).Node("before") != nil })

	c.StopAPIServer()
	k8stest.Until(t, "the view is old, and says why", func() bool { return k.View().Age > 6*time.Second && k.View().Problem != "" })
	assert.NotNil(t, k8stest.Seen(k).Node("before"), "what is old is still there")
	l := k.Look(ctx, remediate.Run{Target: remediate.Target{Node: "before"}}, nil)
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
	assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)

	require.NoError(t, c.StartAPIServer(ctx))
	must.Do(c.CreateNode(ctx, rig.Node{Name: "after"}))(t)
	k8stest.Until(t, "the view is back", func() bool {
		return k8stest.Seen(k).Node("after") != nil && k.View().Age < 3*time.Second && k.View().Problem == ""
	})

	require.NoError(t, c.FreezeAPIServer())
	k8stest.Until(t, "a hanging API server makes the view old", func() bool { return k.View().Age > 6*time.Second })
	require.NoError(t, c.ThawAPIServer())
	k8stest.Until(t, "the view is back", func() bool { return k.View().Age < 3*time.Second && k.View().Problem == "" })
}
