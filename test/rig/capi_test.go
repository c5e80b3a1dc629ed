package rig_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// bothVersions runs a test against a management API of each version of Cluster
// API, which the tests of this file share.
func bothVersions(t *testing.T, test func(t *testing.T, c *rig.ControlPlane, version string)) {
	for version, set := range map[string]rig.CRDs{"v1beta1": rig.CAPIv1beta1, "v1beta2": rig.CAPIv1beta2} {
		t.Run(version, func(t *testing.T) {
			c, _ := rigtest.Apart(t, set, rig.Metal3Remediation)
			test(t, c, version)
		})
	}
}

func capiClient(c *rig.ControlPlane, version, plural string) dynamic.ResourceInterface {
	return c.Dynamic().Resource(rig.CAPIResource(version, plural)).Namespace(rig.Namespace)
}

// listed is the condition of a type in the list at path.
func listed(t *testing.T, obj *unstructured.Unstructured, kind string, path ...string) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(obj.Object, path...)
	require.NoError(t, err)
	for _, item := range list {
		if m, _ := item.(map[string]any); m["type"] == kind {
			return m
		}
	}
	return nil
}

// places are the lists of conditions, in the order old, standard.
func places(version string) (old, standard []string) {
	if version == "v1beta1" {
		return []string{"status", "conditions"}, []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "deprecated", "v1beta1", "conditions"}, []string{"status", "conditions"}
}

func TestClusterOfBothVersions(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx, name := rigtest.Context(t, 3*time.Minute), rigtest.Name("cluster")
		since := time.Now().Add(-time.Hour).Truncate(time.Second)
		_, err := c.CreateCAPICluster(ctx, rig.CAPICluster{Name: name, Paused: true, Conditions: []rig.CAPICondition{
			{Type: "InfrastructureReady", Status: "False", Since: since, Reason: "NotYet", Message: "the hosts are missing"},
		}})
		require.NoError(t, err)
		obj, err := capiClient(c, version, "clusters").Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, true, field(obj, "spec", "paused"))
		assert.Equal(t, "KubeadmControlPlane", field(obj, "spec", "controlPlaneRef", "kind"))

		old, standard := places(version)
		assert.Equal(t, map[string]any{
			"type": "InfrastructureReady", "status": "False", "severity": "Warning", "reason": "NotYet",
			"message": "the hosts are missing", "lastTransitionTime": since.UTC().Format(time.RFC3339),
		}, listed(t, obj, "InfrastructureReady", old...))
		assert.NotContains(t, listed(t, obj, "InfrastructureReady", standard...), "severity")
		assert.Equal(t, "False", listed(t, obj, "InfrastructureReady", standard...)["status"])
		assert.Equal(t, "True", listed(t, obj, "ControlPlaneInitialized", standard...)["status"])
		if version == "v1beta1" {
			assert.Equal(t, "controlplane.cluster.x-k8s.io/v1beta1", field(obj, "spec", "controlPlaneRef", "apiVersion"))
			assert.Equal(t, false, field(obj, "status", "infrastructureReady"))
			assert.Equal(t, true, field(obj, "status", "controlPlaneReady"))
			return
		}
		assert.Equal(t, "controlplane.cluster.x-k8s.io", field(obj, "spec", "controlPlaneRef", "apiGroup"))
		assert.Equal(t, map[string]any{"infrastructureProvisioned": false, "controlPlaneInitialized": true},
			field(obj, "status", "initialization"))
	})
}

func TestMachineOfBothVersions(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx := rigtest.Context(t, 3*time.Minute)
		pool, machine := rigtest.Name("pool"), rigtest.Name("machine")
		set, err := c.CreateCAPIMachineSet(ctx, "blue", pool)
		require.NoError(t, err)
		_, err = c.CreateCAPIMachine(ctx, rig.CAPIMachine{
			Name: machine, Cluster: "blue", MachineSet: pool, NodeName: "node-1", Host: "host-1",
			Labels: map[string]string{"pool": "metal"},
		})
		require.NoError(t, err)
		m, err := capiClient(c, version, "machines").Get(ctx, machine, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{
			"pool": "metal", "cluster.x-k8s.io/cluster-name": "blue", "cluster.x-k8s.io/set-name": pool,
		}, m.GetLabels())
		ownedBy(t, m, set)
		assert.Equal(t, "blue", field(m, "spec", "clusterName"))
		assert.Equal(t, "metal3://openshift-machine-api/host-1/"+machine, field(m, "spec", "providerID"))
		assert.Equal(t, "Metal3Machine", field(m, "spec", "infrastructureRef", "kind"))
		assert.Equal(t, "Running", field(m, "status", "phase"))
		_, standard := places(version)
		assert.Equal(t, "True", listed(t, m, "NodeHealthy", standard...)["status"])
		if version == "v1beta1" {
			assert.Equal(t, map[string]any{"apiVersion": "v1", "kind": "Node", "name": "node-1"}, field(m, "status", "nodeRef"))
			assert.Equal(t, true, field(m, "status", "infrastructureReady"))
		} else {
			assert.Equal(t, map[string]any{"name": "node-1"}, field(m, "status", "nodeRef"))
			assert.Equal(t, true, field(m, "status", "initialization", "infrastructureProvisioned"))
		}
	})
}

func ownedBy(t *testing.T, m, owner *unstructured.Unstructured) {
	t.Helper()
	require.Len(t, m.GetOwnerReferences(), 1)
	ref := m.GetOwnerReferences()[0]
	assert.True(t, *ref.Controller)
	assert.Equal(t, owner.GetUID(), ref.UID)
	assert.Equal(t, owner.GetAPIVersion(), ref.APIVersion)
	assert.Equal(t, owner.GetKind(), ref.Kind)
}

func TestMachineOfAControlPlaneThatHasNoNodeYet(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx, machine, owner := rigtest.Context(t, 3*time.Minute), rigtest.Name("machine"), rigtest.Name("control-plane")
		kcp, err := c.CreateCAPIControlPlane(ctx, "blue", owner)
		require.NoError(t, err)
		m, err := c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: machine, Cluster: "blue", ControlPlane: owner, ProviderID: "other:///1"})
		require.NoError(t, err)
		ownedBy(t, m, kcp)
		assert.Equal(t, "controlplane.cluster.x-k8s.io/"+version, kcp.GetAPIVersion())
		assert.Contains(t, m.GetLabels(), "cluster.x-k8s.io/control-plane")
		assert.Equal(t, owner, m.GetLabels()["cluster.x-k8s.io/control-plane-name"])
		assert.Equal(t, "other:///1", field(m, "spec", "providerID"))
		assert.Equal(t, "Provisioned", field(m, "status", "phase"))
		assert.Nil(t, field(m, "status", "nodeRef"))
		old, standard := places(version)
		assert.Nil(t, listed(t, m, "NodeHealthy", old...))
		assert.Nil(t, listed(t, m, "NodeHealthy", standard...))
		assert.NotNil(t, listed(t, m, "InfrastructureReady", standard...), "the start-up clock reads it")

		_, err = c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: "orphan", Cluster: "blue", MachineSet: "missing"})
		require.ErrorContains(t, err, "find the owner of Machine orphan")
	})
}

func TestConditionsAreSetInBothLists(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *rig.ControlPlane, version string) {
		ctx, name := rigtest.Context(t, 3*time.Minute), rigtest.Name("machine")
		_, err := c.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: name, Cluster: "blue", NodeName: "node-1"})
		require.NoError(t, err)
		require.NoError(t, c.SetCAPIConditions(ctx, "machines", name,
			rig.CAPICondition{Type: "HealthCheckSucceeded", Status: "False", Reason: "UnhealthyNode"},
			rig.CAPICondition{Type: "NodeHealthy", Status: "Unknown"},
			rig.CAPICondition{Type: "Ready"}))
		m, err := capiClient(c, version, "machines").Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		old, standard := places(version)
		for _, path := range [][]string{old, standard} {
			assert.Equal(t, "UnhealthyNode", listed(t, m, "HealthCheckSucceeded", path...)["reason"], path)
			assert.Equal(t, "Unknown", listed(t, m, "NodeHealthy", path...)["status"], path)
			assert.Equal(t, "True", listed(t, m, "InfrastructureReady", path...)["status"], path)
			assert.Nil(t, listed(t, m, "Ready", path...), path)
		}
		require.ErrorContains(t, c.SetCAPIConditions(ctx, "machines", "missing"), "set conditions of machines missing")
	})
}

func mustCreate(ctx context.Context, t *testing.T, client dynamic.ResourceInterface, obj map[string]any) *unstructured.Unstructured {
	t.Helper()
	made, err := client.Create(ctx, &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

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
