package k8swatch

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// A request that another Machine owns, or of another namespace, is not for a Machine of the same name.
func TestRequestOfAnotherMachineOfThatName(t *testing.T) {
	target := remediate.Target{MachineAPI: policy.ClusterAPIV1Beta2, Namespace: "team-a", Machine: "worker-0", MachineUID: "a", Node: "worker-0"}
	theirs := policy.Request{Kind: "Metal3Remediation", Namespace: "team-b", Name: "worker-0", OnManagementAPI: true,
		Owners: []policy.Owner{{Kind: "Machine", Name: "worker-0", UID: "b"}}}
	assert.False(t, requestFor(&theirs, target))
	theirs.NodeName, theirs.Owners = "worker-0", nil // a Node of another workload cluster
	assert.False(t, requestFor(&theirs, target))
}
