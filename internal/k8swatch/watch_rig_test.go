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
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestWatchFollowsTheCluster(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	node, machine := rigtest.Name("follow-node"), rigtest.Name("follow-machine")
	host, set := rigtest.Name("follow-host"), rigtest.Name("follow-set")
	_, err := c.CreateNode(ctx, rig.Node{Name: node, SystemUUID: "su", Labels: map[string]string{"a": "1"}, Annotations: rig.NamesMachine(machine)})
	require.NoError(t, err)
	_, err = c.CreateMachineSet(ctx, set)
	require.NoError(t, err)
	_, err = c.CreateHost(ctx, rig.Host{Name: host, Address: "ipmi://192.0.2.1", User: "u", Password: "p", Machine: machine})
	require.NoError(t, err)
	_, err = c.CreateMachine(ctx, rig.Machine{Name: machine, MachineSet: set, Host: host, NodeName: node})
	require.NoError(t, err)

	k8stest.Until(t, time.Minute, "everything is seen", func() bool {
		v := seen(k)
		m := v.machine(machine)
		if m == nil || m.NodeName != node || v.node(node) == nil {
			return false
		}
		h, err := policy.HostFor(*m, v.hosts())
		return err == nil && h.Name == host && m.ControllerOwner.Name == set
	})
	n := seen(k).node(node)
	assert.Equal(t, "1", n.Labels["a"])
	assert.Equal(t, "su", n.SystemUUID)
	assert.Equal(t, rig.Namespace+"/"+machine, n.OpenShiftMachine, "the Node names its Machine")

	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}))
	k8stest.Until(t, time.Minute, "the deletion is seen", func() bool { return seen(k).node(node) == nil })
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
	k8stest.Until(t, time.Minute, "both are seen", func() bool {
		return seen(k).check(good) != nil && seen(k).check(bad) != nil
	})
	assert.Empty(t, seen(k).check(good).Invalid)
	assert.Contains(t, seen(k).check(bad).Invalid, "foo10m")
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
	path, err := c.Kubeconfig("root", rig.AdminGroup)
	require.NoError(t, err)
	k := run(t, path)
	k8stest.Until(t, time.Minute, "a view without Machines", func() bool { return k.View().Synced })
	assert.Empty(t, seen(k))
	assert.Empty(t, k.View().Problem, "a missing kind is no problem")

	require.NoError(t, c.CreateNamespace(ctx, rig.Namespace))
	require.NoError(t, c.InstallCRDs(ctx))
	_, err = c.CreateCheck(ctx, rig.Check{Name: "late", Conditions: rig.NotReadyFor("300s")})
	require.NoError(t, err)
	k8stest.Until(t, time.Minute, "the check appears", func() bool { return seen(k).check("late") != nil })
	k8stest.Until(t, time.Minute, "and is proven", func() bool { return k.View().Age < 5*time.Second })

	require.NoError(t, c.InstallCRDs(ctx, rig.CAPIv1beta2))
	_, err = c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: "m", Cluster: "blue"})
	require.NoError(t, err)
	k8stest.Until(t, time.Minute, "the Machine appears", func() bool { return seen(k).machine("m") != nil })
	k8stest.Until(t, time.Minute, "and is proven", func() bool { return k.View().Synced && k.View().Age < 5*time.Second && k.View().Problem == "" })

	require.NoError(t, c.RemoveCRDs(ctx, rig.CAPIv1beta2))
	k8stest.Until(t, time.Minute, "the Machine vanishes", func() bool { return seen(k).machine("m") == nil })
	assert.NotNil(t, seen(k).check("late"))
}

// Rights of an older release: kinds that they do not name are forbidden, whether
// they are installed or not.
func TestKindsWithoutRights(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	user := rigtest.Name("old-fenced")
	read := []string{"get", "list", "watch"}
	_, err := c.Client().RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: read},
		{APIGroups: []string{client.HostGroup}, Resources: []string{"baremetalhosts"}, Verbs: read},
		{APIGroups: []string{client.MachineGroup}, Resources: []string{"machines"}, Verbs: read},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	path, err := c.Kubeconfig(user)
	require.NoError(t, err)
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
	k8stest.Until(t, time.Minute, "what is not installed is empty", func() bool { return slices.Equal(unread(), installed) })
	k8stest.Until(t, time.Minute, "what is installed is not, and the view says why", func() bool {
		v := k.View()
		return !v.Synced && strings.Contains(v.Problem, "forbidden")
	})

	_, err = c.Client().RbacV1().ClusterRoles().Patch(ctx, user, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/rules/2/resources/-","value":"machinehealthchecks"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	k8stest.Until(t, time.Minute, "the right helps at once", func() bool { return k.View().Synced })
}

// The API server is killed and comes back; it hangs and goes on. Each time the
// view grows old, says so, and returns without a restart of ours. // I16
func TestViewGrowsOldInAnOutageAndReturns(t *testing.T) {
	c := rigtest.Own(t, rig.Options{})
	ctx := rigtest.Context(t, 2*time.Minute)
	_, err := c.CreateNode(ctx, rig.Node{Name: "before"})
	require.NoError(t, err)
	k := watching(t, c)
	k8stest.Until(t, time.Minute, "the Node is seen", func() bool { return seen(k).node("before") != nil })

	c.StopAPIServer()
	k8stest.Until(t, time.Minute, "the view is old, and says why", func() bool { return k.View().Age > 6*time.Second && k.View().Problem != "" })
	assert.NotNil(t, seen(k).node("before"), "what is old is still there")
	l := k.Look(ctx, remediate.Run{Target: remediate.Target{Node: "before"}}, nil)
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
	assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)

	require.NoError(t, c.StartAPIServer(ctx))
	_, err = c.CreateNode(ctx, rig.Node{Name: "after"})
	require.NoError(t, err)
	k8stest.Until(t, time.Minute, "the view is back", func() bool {
		return seen(k).node("after") != nil && k.View().Age < 3*time.Second && k.View().Problem == ""
	})

	require.NoError(t, c.FreezeAPIServer())
	k8stest.Until(t, time.Minute, "a hanging API server makes the view old", func() bool { return k.View().Age > 6*time.Second })
	require.NoError(t, c.ThawAPIServer())
	k8stest.Until(t, time.Minute, "the view is back", func() bool { return k.View().Age < 3*time.Second && k.View().Problem == "" })
}
