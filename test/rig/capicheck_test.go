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

func TestCheckInBothShapes(t *testing.T) {
	check := rig.CAPICheck{
		Cluster: "blue", Match: map[string]string{"pool": "metal"},
		Conditions:         rig.NotReadyFor("300s"),
		MachineConditions:  []rig.UnhealthyCondition{{Type: "NodeHealthy", Status: "False", Timeout: "1m30s"}},
		NodeStartupTimeout: "10m", MaxUnhealthy: "40%", UnhealthyRange: "[3-5]",
		Template: rig.RemediationTemplate("reboot"),
	}
	selector := map[string]any{"matchLabels": map[string]any{"pool": "metal"}}
	template := map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3RemediationTemplate", "name": "reboot",
	}
	want := map[string]map[string]any{
		"v1beta1": {
			"clusterName": "blue", "selector": selector, "nodeStartupTimeout": "10m", "maxUnhealthy": "40%",
			"unhealthyRange": "[3-5]", "unhealthyConditions": []any{
				map[string]any{"type": "Ready", "status": "Unknown", "timeout": "300s"},
				map[string]any{"type": "Ready", "status": "False", "timeout": "300s"},
			}, "unhealthyMachineConditions": []any{
				map[string]any{"type": "NodeHealthy", "status": "False", "timeout": "1m30s"},
			}, "remediationTemplate": map[string]any{
				"apiVersion": template["apiVersion"], "kind": template["kind"], "name": "reboot", "namespace": rig.Namespace,
			},
		},
		"v1beta2": {
			"clusterName": "blue", "selector": selector, "checks": map[string]any{
				"nodeStartupTimeoutSeconds": int64(600), "unhealthyNodeConditions": []any{
					map[string]any{"type": "Ready", "status": "Unknown", "timeoutSeconds": int64(300)},
					map[string]any{"type": "Ready", "status": "False", "timeoutSeconds": int64(300)},
				}, "unhealthyMachineConditions": []any{
					map[string]any{"type": "NodeHealthy", "status": "False", "timeoutSeconds": int64(90)},
				},
			}, "remediation": map[string]any{
				"templateRef": template,
				"triggerIf":   map[string]any{"unhealthyInRange": "[3-5]", "unhealthyLessThanOrEqualTo": "40%"},
			},
		},
	}
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx := rigtest.Context(t, 3*time.Minute)
		check.Name = rigtest.Name("check")
		_, err := c.CreateCAPICheck(ctx, check)
		require.NoError(t, err)
		got, err := capiClient(c, version, "machinehealthchecks").Get(ctx, check.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, want[version], got.Object["spec"])

		least, err := c.CreateCAPICheck(ctx, rig.CAPICheck{Name: rigtest.Name("least"), Cluster: "blue"})
		require.NoError(t, err, "v1beta2 refuses empty checks and remediation, so there are none")
		assert.Equal(t, map[string]any{
			"clusterName": "blue",
			"selector":    map[string]any{"matchLabels": map[string]any{"cluster.x-k8s.io/cluster-name": "blue"}},
		}, least.Object["spec"], "the defaults are the webhook's, and there is none")
	})
}

func TestCheckThatIsRefused(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, _ string) {
		ctx := rigtest.Context(t, 3*time.Minute)
		_, err := c.CreateCAPICheck(ctx, rig.CAPICheck{Name: "bad", Cluster: "blue", UnhealthyRange: "3-5"})
		assert.True(t, apierrors.IsInvalid(err), "got %v", err)
		_, err = c.CreateCAPICheck(ctx, rig.CAPICheck{Name: "bad", Cluster: "blue", MachineConditions: []rig.UnhealthyCondition{
			{Type: "Ready", Status: "False", Timeout: "5m"},
		}})
		assert.True(t, apierrors.IsInvalid(err), "got %v", err)
	})
	c, _ := rigtest.Apart(t, rig.CAPIv1beta2, rig.Metal3Remediation)
	_, err := c.CreateCAPICheck(t.Context(), rig.CAPICheck{Name: "bad", Cluster: "blue", NodeStartupTimeout: "soon"})
	require.ErrorContains(t, err, `write "soon" in seconds`)
}

// Without a conversion webhook the API server drops what the served version does
// not know: a manifest of the other version is accepted, and empty.
func TestFieldsOfTheOtherVersionArePruned(t *testing.T) {
	other := map[string]map[string]any{
		"v1beta1": {"checks": map[string]any{"nodeStartupTimeoutSeconds": int64(600)}},
		"v1beta2": {"nodeStartupTimeout": "10m", "maxUnhealthy": "40%"},
	}
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx := rigtest.Context(t, 3*time.Minute)
		client := capiClient(c, version, "machinehealthchecks")
		spec := map[string]any{"clusterName": "blue", "selector": map[string]any{}}
		for key, value := range other[version] {
			spec[key] = value
		}
		manifest := map[string]any{
			"apiVersion": "cluster.x-k8s.io/" + version, "kind": "MachineHealthCheck",
			"metadata": map[string]any{"name": rigtest.Name("other")}, "spec": spec,
		}
		strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		_, err := client.Create(ctx, &unstructured.Unstructured{Object: manifest}, strict)
		require.ErrorContains(t, err, "unknown field", "as kubectl asks for")
		made := mustCreate(ctx, t, client, manifest)
		assert.Equal(t, map[string]any{"clusterName": "blue", "selector": map[string]any{}}, made.Object["spec"])

		notServed := map[string]string{"v1beta1": "v1beta2", "v1beta2": "v1beta1"}[version]
		_, err = capiClient(c, notServed, "machinehealthchecks").List(ctx, metav1.ListOptions{})
		assert.True(t, apierrors.IsNotFound(err), "one version is served: %v", err)
	})
}
