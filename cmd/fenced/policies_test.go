package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/policy"
)

// The policy file that the package ships as an example is one that fenced takes.
func TestShippedPolicyExampleIsGood(t *testing.T) {
	found, err := loadPolicies(config.Config{Policies: "../../configs/policies.d", Clusters: []config.Cluster{{Name: "prod"}}})
	require.NoError(t, err)
	require.NotEmpty(t, found.Budgets)
	require.NotEmpty(t, found.Checks)
	for _, c := range found.Checks {
		state, why := c.State()
		assert.Equal(t, policy.StateActive, state, "%s: %s", c.Source, why)
		assert.Equal(t, policy.PowerCycleHosts, c.Strategy, c.Source)
	}
}

// What stands in two files, or is for a cluster that is not there, is an error.
func TestPoliciesAreOnceAndPlaced(t *testing.T) {
	dir := t.TempDir()
	const budget = "apiVersion: fenced.io/v1alpha1\nkind: DisruptionBudget\nmetadata: {name: b}\nspec: {clusters: [%s], nodeSelector: {}, maxUnavailable: 1}\n"
	for file, clusters := range map[string]string{"1.yaml": "a", "2.yaml": "c", "3.yaml": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), fmt.Appendf(nil, budget, clusters), 0o600))
	}
	_, err := loadPolicies(config.Config{Policies: dir, Clusters: []config.Cluster{{Name: "a"}, {Name: "b"}}})
	require.Error(t, err)
	assert.ErrorContains(t, err, "2.yaml:1: DisruptionBudget b is in "+filepath.Join(dir, "1.yaml")+":1 already")
	assert.ErrorContains(t, err, `2.yaml:1: no cluster "c" is configured`)
	assert.ErrorContains(t, err, "3.yaml:1: several clusters are configured")
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

	budgets := []policy.DisruptionBudget{{Name: "any"}, {Name: "b", Clusters: []string{"b"}}}
	assert.Equal(t, budgets[:1], budgetsOf(budgets, "a", 1))
	assert.Equal(t, budgets[1:], budgetsOf(budgets, "b", 2))
}

// A check that a reload brings may name fenced's own template, and kinds that were named at
// the start. Of another kind fenced would not see the requests that are there.
func TestReloadRefusesTemplatesThatAreNotWatched(t *testing.T) {
	with := func(kind, apiVersion string) policy.Check {
		return policy.Check{Kind: policy.NodeHealthCheckKind, Name: "n", Source: "a.yaml:1", Template: &policy.Template{APIVersion: apiVersion, Kind: kind}}
	}
	own, known, other := with("FencedRemediationTemplate", policy.FencedAPI), with("ATemplate", "a.example/v1"), with("BTemplate", "a.example/v1")
	escalating := policy.Check{Kind: policy.NodeHealthCheckKind, Name: "e", Source: "b.yaml:1", Escalation: []policy.Escalation{{Template: *other.Template}}}
	start := []policy.Check{known}
	require.NoError(t, unwatchedTemplates(start, []policy.Check{own, known, {}}))
	for _, c := range []policy.Check{other, escalating} {
		err := unwatchedTemplates(start, []policy.Check{own, c})
		require.ErrorContains(t, err, c.Source+": the NodeHealthCheck "+c.Name+" names a template of the kind BTemplate of a.example/v1")
		require.ErrorContains(t, err, "restart it instead")
	}
}
