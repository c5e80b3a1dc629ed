package rig_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

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

func TestUpgradeOfOpenShift(t *testing.T) {
	c, ctx := rigtest.Shared(t, rig.Medik8s, rig.ClusterVersions), rigtest.Context(t, 3*time.Minute)
	for _, progressing := range []bool{true, false} {
		require.NoError(t, c.PutClusterVersion(ctx, progressing))
		got, err := c.Dynamic().Resource(rig.ClusterVersionResource).Get(ctx, "version", metav1.GetOptions{})
		require.NoError(t, err)
		want := map[bool]string{true: "True", false: "False"}[progressing]
		assert.Equal(t, want, listed(t, got, "Progressing", "status", "conditions")["status"])
	}
}

func TestRemediationAsTheManagerMakesIt(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx, name := rigtest.Context(t, 3*time.Minute), rigtest.Name("machine")
		template, err := c.CreateTemplate(ctx, rigtest.Name("reboot"))
		require.NoError(t, err)
		assert.Equal(t, "Reboot", field(template, "spec", "template", "spec", "strategy", "type"))
		machine, err := c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: name, Cluster: "blue"})
		require.NoError(t, err)
		got, err := c.CreateRemediation(ctx, machine, template.GetName())
		require.NoError(t, err)
		assert.Equal(t, name, got.GetName())
		assert.Equal(t, template.GetName(), got.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"])
		assert.Equal(t, "Reboot", field(got, "spec", "strategy", "type"), "an unknown field would have been pruned")
		require.Len(t, got.GetOwnerReferences(), 1)
		assert.Equal(t, machine.GetUID(), got.GetOwnerReferences()[0].UID)
		assert.Equal(t, "cluster.x-k8s.io/"+version, got.GetOwnerReferences()[0].APIVersion)
		assert.Nil(t, got.GetOwnerReferences()[0].Controller)
	})
}
