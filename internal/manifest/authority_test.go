package manifest_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/crds"
)

// openshift/enhancements#1465: when OpenShift's controllers leave a Machine alone.
func TestMachineOfAnotherAuthority(t *testing.T) {
	paused := func(status string) []any {
		return []any{map[string]any{"type": "Synchronized", "status": "True"}, map[string]any{"type": "Paused", "status": status}}
	}
	for name, c := range map[string]struct {
		status        map[string]any
		suspended     string
		authoritative bool
	}{
		"a cluster without the Cluster API": {map[string]any{}, "", false},
		"OpenShift's API":                   {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": paused("False")}, "", true},
		"the Cluster API":                   {map[string]any{"authoritativeAPI": "ClusterAPI", "conditions": paused("True")}, "the Cluster API is authoritative", false},
		"on the way":                        {map[string]any{"authoritativeAPI": "Migrating"}, "moves to or from the Cluster API", false},
		"on the way back":                   {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": paused("True")}, "its condition Paused is True", false},
		"conditions that are none":          {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": "x"}, "", true},
	} {
		c.status["nodeRef"] = map[string]any{"name": "n", "uid": "u"}
		m, err := manifest.Machine(map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "Machine", "status": c.status,
			"metadata": map[string]any{"namespace": "ns", "name": "m", "annotations": map[string]any{manifest.RemediationAnnotation: ""}}})
		require.NoError(t, err, name)
		assert.Contains(t, m.Suspended, c.suspended, name)
		assert.Equal(t, c.suspended == "", m.Suspended == "", name)
		assert.Equal(t, c.authoritative, m.Authoritative, name)
		assert.Equal(t, c.suspended == "", m.ExternalRemediationRequested, "%s: nobody is asked", name)
		assert.Equal(t, "u", m.NodeUID, name)
	}
}

// openshift/enhancements#1465 plans the field for MachineHealthChecks, too; openshift/api has it on Machines and
// MachineSets alone, in every feature set. When this fails, a check whose status names the other API is a copy, and must
// not be evaluated.
func TestMachineHealthChecksHaveNoAuthority(t *testing.T) {
	for kind, has := range map[string]bool{"machines": true, "machinesets": true, "machinehealthchecks": false} {
		crd, err := crds.Files.ReadFile("openshift/machine.openshift.io_" + kind + ".yaml")
		require.NoError(t, err)
		assert.Equal(t, has, bytes.Contains(crd, []byte("authoritativeAPI:")), kind)
	}
}

func TestInfrastructureMachine(t *testing.T) {
	for version, ref := range map[string]map[string]any{
		policy.ClusterAPIV1Beta1: {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m3m", "namespace": "elsewhere"},
		policy.ClusterAPIV1Beta2: {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "m3m"},
	} {
		m, err := manifest.Machine(map[string]any{"apiVersion": version, "kind": "Machine", "metadata": map[string]any{"namespace": "ns", "name": "m"},
			"spec": map[string]any{"infrastructureRef": ref}, "status": map[string]any{"nodeRef": map[string]any{"name": "n", "uid": "u"}}})
		require.NoError(t, err)
		assert.Equal(t, policy.InfrastructureRef{Kind: "Metal3Machine.infrastructure.cluster.x-k8s.io", Name: "m3m"}, m.Infrastructure)
		assert.Equal(t, "ns/m3m", m.Consumer())
		assert.Equal(t, "u", m.NodeUID)
	}
}
