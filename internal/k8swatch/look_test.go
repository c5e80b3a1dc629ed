package k8swatch

import (
	"net/http"
	"path"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// A look at a target that is only replaced asks the API server everything once, and nothing that
// it does not need.
func TestLookAsksOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), remediate.Run{
		Strategy: remediate.DeleteMachine, Step: remediate.Reprovision,
		Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m", MachineAPI: policy.OpenShiftMachineAPI},
	}, nil)
	assert.True(t, l.NoNodeLocks)
	leases := "/apis/coordination.k8s.io/v1/namespaces/"
	assert.Equal(t, 1, asked["/api/v1/namespaces/"+medik8sLeases])
	assert.Equal(t, 1, asked[leases+machineAPINamespace+"/leases/"+checkLeader])
	assert.Equal(t, 1, asked[leases+nodeLeases+"/leases/n"])
	for path, n := range asked {
		assert.Equal(t, 1, n, path)
		assert.NotContains(t, path, powerCycleLeader)
	}
}

// Where the namespace of medik8s' Leases cannot be read, nobody knows that there are none. // I22
func TestNodeLocksThatCannotBeReadMayExist(t *testing.T) {
	t.Parallel()
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == medik8sLeases {
			status(w, http.StatusForbidden, "Forbidden", medik8sLeases)
			return
		}
		status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
	})
	assert.False(t, c.Look(t.Context(), remediate.Run{Target: remediate.Target{Node: "n"}}, nil).NoNodeLocks)
}
