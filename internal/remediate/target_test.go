package remediate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Machines of one name may be on two API servers, in namespaces of different people. A record that does not say the API may be of any.
func TestMachinesOfTwoAPIsDoNotOverlap(t *testing.T) {
	machine := func(api string) Target { return Target{Namespace: "prod", Machine: "m", MachineAPI: api} }
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta2", false},
		{"cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2", true},
		{"", "cluster.x-k8s.io/v1beta2", true},
		{"machine.openshift.io/v1beta1", "", true},
	} {
		assert.Equal(t, c.want, machine(c.a).Overlaps(machine(c.b)), "%+v", c)
	}
	a, b := machine("machine.openshift.io/v1beta1"), machine("cluster.x-k8s.io/v1beta2")
	a.Node, b.Node = "n", "n"
	assert.True(t, a.Overlaps(b), "one Node")
	b = machine("machine.openshift.io/v1beta1")
	b.Namespace = "other"
	assert.False(t, machine("machine.openshift.io/v1beta1").Overlaps(b))
}
