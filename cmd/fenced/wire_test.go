package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/policy"
)

// The policy file that the package ships as an example is one that fenced takes.
func TestShippedPolicyExampleIsGood(t *testing.T) {
	checks, err := loadPolicies(config.Config{Policies: "../../configs/policies.d", Clusters: []config.Cluster{{Name: "prod"}}})
	require.NoError(t, err)
	require.NotEmpty(t, checks)
	for _, c := range checks {
		state, why := c.State()
		assert.Equal(t, policy.StateActive, state, "%s: %s", c.Source, why)
		assert.Equal(t, policy.PowerCycleHosts, c.Strategy, c.Source)
	}
}

func TestFileChecksGoToTheirCluster(t *testing.T) {
	all := []policy.Check{{Name: "any"}, {Name: "a", Clusters: []string{"a"}}, {Name: "b", Clusters: []string{"b"}}}
	names := func(cluster string, clusters int) (out []string) {
		for _, c := range checksOf(all, cluster, clusters) {
			out = append(out, c.Name)
		}
		return out
	}
	assert.Equal(t, []string{"any", "a"}, names("a", 1))
	assert.Equal(t, []string{"b"}, names("b", 2), "with several clusters a check must name its own")
}
