package rig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestDefinitionsComeAndGo(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{Bare: true, NoManager: true}), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, rig.Namespace))
	_, err := c.CreateCAPICluster(ctx, "blue")
	require.ErrorContains(t, err, "find the version of Cluster API")

	require.NoError(t, c.InstallCRDs(ctx, rig.CAPIv1beta1))
	_, err = c.CreateCAPICluster(ctx, "blue")
	require.NoError(t, err)
	clusters := c.Dynamic().Resource(rig.CAPIResource("v1beta1", "clusters")).Namespace(rig.Namespace)
	_, err = clusters.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
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
	_, err := c.CreateNodeCheck(ctx, rig.NodeCheck{
		Name: name, Match: map[string]string{"pool": "metal"},
		Conditions:    []rig.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: "1m"}},
		MaxUnhealthy:  int64(2),
		PauseRequests: []string{"upgrade"}, HealthyDelay: "-1s", StormCooldown: "10m",
		Escalating: []rig.Escalation{{Order: 1, Template: rig.RemediationTemplate("reboot"), Timeout: "5m"}},
	})
	require.NoError(t, err)
	got, err := c.Dynamic().Resource(rig.NodeCheckResource).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
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
	got, err = c.Dynamic().Resource(rig.NodeCheckResource).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(3), field(got, "status", "observedNodes"))
	assert.Len(t, field(got, "status", "unhealthyNodes"), 1)
	assert.Equal(t, "yes", got.GetAnnotations()["seen"])
}

func TestNodeCheckDefaultsAreThoseOfTheAPI(t *testing.T) {
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	made, err := c.CreateNodeCheck(ctx, rig.NodeCheck{Name: rigtest.Name("defaults"), Template: rig.RemediationTemplate("reboot")})
	require.NoError(t, err)
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
