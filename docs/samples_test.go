package docs_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

// simulate runs fencectl on one of the samples, which has a node to remediate.
func simulate(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(must.Do(fencectl())(t), append([]string{"simulate"}, args...)...).Output()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), err)
	require.Equal(t, 2, exit.ExitCode(), "something would be done; %s", exit.Stderr)
	return string(out)
}

// TestREADMEShowsWhatSimulatePrints: the output in the README is that of the command above it, but for the time.
func TestREADMEShowsWhatSimulatePrints(t *testing.T) {
	const installed = "/usr/share/fenced/samples/"
	m := regexp.MustCompile(`(?m)^    fencectl simulate --objects ` + installed + `(\S+)\n\n((?:    .*\n|\n)+)`).FindStringSubmatch(documents(t)["../README.md"])
	require.NotNil(t, m, "the README has no such command")
	clock := regexp.MustCompile(`^evaluated at \S+`)
	shown := clock.ReplaceAllString(regexp.MustCompile(`(?m)^    `).ReplaceAllString(m[2], ""), "")
	printed := clock.ReplaceAllString(simulate(t, "--objects", "../configs/samples/"+m[1]), "")
	assert.Equal(t, strings.TrimSpace(printed), strings.TrimSpace(shown))
}

// TestSamples: each has one dead node of three, which nothing keeps from being fenced, and one check of another API.
func TestSamples(t *testing.T) {
	asks := map[string]policy.Action{
		"machine.openshift.io/v1beta1": policy.PowerCycle, "fenced.io/v1alpha1": policy.PowerCycle,
		"cluster.x-k8s.io/v1beta2": policy.CreateRequest, "remediation.medik8s.io/v1alpha1": policy.CreateRequest,
	}
	for _, file := range must.Do(filepath.Glob("../configs/samples/*.yaml"))(t) {
		var r policy.Report
		require.NoError(t, json.Unmarshal([]byte(simulate(t, "--objects", file, "-o", "json")), &r))
		assert.Empty(t, r.Errors, file)
		require.Len(t, r.Checks, 1, file)
		require.Len(t, r.Checks[0].Targets, 3, file)
		dead := r.Checks[0].Targets[1]
		assert.Equal(t, policy.Unhealthy, dead.Verdict, file)
		assert.Empty(t, dead.Refusals, file)
		api := r.Checks[0].APIVersion
		assert.Equal(t, asks[api], dead.Action, file)
		delete(asks, api)
	}
	assert.Empty(t, asks, "these have no sample")
}
