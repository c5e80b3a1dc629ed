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

func TestCheckDefaultsAreThoseOfTheAPI(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	made, err := c.CreateCheck(ctx, rig.Check{Name: rigtest.Name("defaults"), Strategy: rig.BareMetalStrategy})
	require.NoError(t, err)
	assert.Equal(t, "10m", field(made, "spec", "nodeStartupTimeout"))
	assert.Equal(t, "100%", field(made, "spec", "maxUnhealthy"))
	assert.Equal(t, rig.BareMetalStrategy, made.GetAnnotations()[rig.StrategyAnnotation])
}

func field(obj *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return v
}

func TestMachineWithHostAndOwner(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	pool, machine, host := rigtest.Name("pool"), rigtest.Name("machine"), rigtest.Name("host")
	set, err := c.CreateMachineSet(ctx, pool)
	require.NoError(t, err)
	m, err := c.CreateMachine(ctx, rig.Machine{
		Name: machine, MachineSet: pool, Host: host, NodeName: "node-1", Labels: map[string]string{"pool": "metal"},
	})
	require.NoError(t, err)
	require.Len(t, m.GetOwnerReferences(), 1)
	assert.Equal(t, set.GetUID(), m.GetOwnerReferences()[0].UID)
	assert.True(t, *m.GetOwnerReferences()[0].Controller)
	assert.Equal(t, "Running", field(m, "status", "phase"))
	assert.Equal(t, "node-1", field(m, "status", "nodeRef", "name"))
	assert.Equal(t, "baremetalhost:///openshift-machine-api/"+host, field(m, "spec", "providerID"))
	assert.Equal(t, "worker", m.GetLabels()["machine.openshift.io/cluster-api-machine-role"])
	assert.Equal(t, "metal", m.GetLabels()["pool"])

	h, err := c.CreateHost(ctx, rig.Host{
		Name: host, Address: "ipmi://192.0.2.9", User: "admin", Password: "secret", Machine: machine, DisablePowerOff: true,
	})
	require.NoError(t, err)
	assert.Equal(t, true, field(h, "status", "poweredOn"))
	assert.Equal(t, "provisioned", field(h, "status", "provisioning", "state"))
	assert.Equal(t, true, field(h, "spec", "disablePowerOff"), "an unknown field would have been pruned")
	assert.Equal(t, machine, field(h, "spec", "consumerRef", "name"))

	require.NoError(t, c.SetStatus(ctx, rig.HostResource, host, map[string]any{"poweredOn": false}))
	value := ""
	require.NoError(t, c.Annotate(ctx, rig.MachineResource, machine, "host.metal3.io/external-remediation", &value))
	h, err = c.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, host, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, false, field(h, "status", "poweredOn"))
	m, err = c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, machine, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, m.GetAnnotations(), "host.metal3.io/external-remediation")
	require.NoError(t, c.Annotate(ctx, rig.MachineResource, machine, "host.metal3.io/external-remediation", nil))
}
