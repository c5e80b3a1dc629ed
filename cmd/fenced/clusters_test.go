package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/wire"
)

// writeClusters writes fenced.yaml with these clusters; more follows them.
func (r *reloadable) writeClusters(clusters, more string) {
	r.t.Helper()
	r.write("fenced.yaml", strings.Replace(r.text(more), "[{name: prod, kubeconfig: kc}]", clusters, 1))
}

// clusterNames are the clusters that status shows.
func (r *reloadable) clusterNames() (names []string) {
	r.t.Helper()
	st, err := api.New(filepath.Join(r.dir, "s.sock")).Status(r.t.Context())
	require.NoError(r.t, err)
	for _, c := range st.Value.Clusters {
		names = append(names, c.Name)
	}
	return names
}

// measures says whether a text is in the metrics.
func (r *reloadable) measures(text string) bool {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return strings.Contains(w.Body.String(), text)
}

// owns waits until the daemon owns a cluster.
func (r *reloadable) owns(cluster string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.status(cluster).Owner }, time.Minute, 10*time.Millisecond)
}

// status is the state of a cluster.
func (r *reloadable) status(cluster string) engine.ClusterStatus {
	s, known := engine.NewLookup(r.engine).Status(cluster)
	require.True(r.t, known)
	return s
}

const (
	both     = "[{name: prod, kubeconfig: kc}, {name: lab, kubeconfig: kc}]"
	labEntry = "hosts: [{cluster: lab, node: n-1, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: ../password}}]\n"
)

// A reload adds a cluster with its hosts, and removes it again: status, metrics and what is told to
// the cluster follow. A key of a cluster that stays needs a restart, as before.
func TestReloadAddsAndRemovesAClusterWithItsHosts(t *testing.T) {
	r := startReloadable(t)
	r.write("password", "hush")
	r.owns("prod")
	r.writeClusters("[{name: lab, kubeconfig: kc, mode: observe}, {name: prod, kubeconfig: kc, mode: respond}]", "")
	r.write("hosts.d/a.yaml", labEntry)
	e := r.reload()
	assert.Empty(t, e.Reason)
	assert.Equal(t, "reloaded: took in clusters (added lab), hosts.d (added lab/n-1); these need a restart, and stay as they were until then: clusters.prod.mode", e.Message)
	assert.Equal(t, []string{"lab", "prod"}, r.clusterNames())
	s, err := r.engine.SubjectOf(t.Context(), "lab", "n-1")
	require.NoError(t, err)
	require.NoError(t, s.Err)
	r.owns("lab")
	assert.True(t, r.measures(`fenced_armed{cluster="lab"} 0`))
	assert.True(t, r.measures(`fenced_armed{cluster="prod"} 1`))
	r.events.Emit(event.Event{Type: event.Failed, Cluster: "lab", Message: "an example"})
	assert.True(t, r.measures(`fenced_failures_total{cluster="lab"`))
	assert.Equal(t, "reloaded: nothing has changed; these need a restart, and stay as they were until then: clusters.prod.mode", r.reload().Message)

	r.write("fenced.yaml", r.text(""))
	r.write("hosts.d/a.yaml", "")
	assert.Equal(t, "reloaded: took in clusters (removed lab), hosts.d (removed lab/n-1)", r.reload().Message)
	assert.Equal(t, []string{"prod"}, r.clusterNames())
	require.Eventually(t, func() bool { return !r.measures(`cluster="lab"`) }, time.Minute, 10*time.Millisecond, "the health check forgets it, too")
	assert.Len(t, r.clusters.views.All(), 1)
	assert.True(t, r.status("prod").Owner)

	r.writeClusters("[{name: other, kubeconfig: kc}]", "")
	assert.Equal(t, "reloaded: took in clusters (added other, removed prod)", r.reload().Message)
	assert.Equal(t, []string{"other"}, r.clusterNames())
	r.owns("other")
}

// A cluster that cannot be built refuses the whole reload: no key is taken in, no other cluster is
// added, and none is removed.
func TestReloadWithAClusterThatCannotBeBuiltChangesNothing(t *testing.T) {
	r := startReloadable(t)
	r.owns("prod")
	r.write("bad", "no: kubeconfig\n")
	for _, c := range []struct{ kubeconfig, says string }{
		{"missing", "no such file"},
		{"bad", "cluster lab"},
	} {
		r.writeClusters("[{name: more, kubeconfig: kc}, {name: lab, kubeconfig: "+c.kubeconfig+"}]", "log: {level: debug}\n")
		e := r.reload()
		assert.Equal(t, reason.ReloadRefused, e.Reason)
		assert.Contains(t, e.Message, c.says)
		assert.Equal(t, zapcore.InfoLevel, r.level.Level())
		assert.Equal(t, []string{"prod"}, r.clusterNames())
		assert.True(t, r.status("prod").Owner)
	}
}

// What hosts.d and policies.d mean without a cluster depends on how many there are: a reload takes in
// what a restart would, and refuses what a restart would refuse.
func TestReloadWithMoreClustersReadsFilesAsARestartDoes(t *testing.T) {
	const policy = "apiVersion: fenced.io/v1alpha1\nkind: FencePolicy\nmetadata: {name: a}\nspec:\n  nodeSelector: {matchLabels: {a: b}}\n" +
		"  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m}]\n  strategy: PowerCycle\n"
	r := startReloadable(t)
	r.write("password", "hush")
	r.write("policies.d/a.yaml", policy)
	r.write("hosts.d/a.yaml", strings.Replace(labEntry, "cluster: lab, ", "", 1))
	require.Empty(t, r.reload().Reason)

	r.writeClusters(both, "")
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "cluster is missing; there are several: prod, lab")
	assert.Contains(t, e.Message, "several clusters are configured; name one")
	assert.Equal(t, []string{"prod"}, r.clusterNames())

	r.write("policies.d/a.yaml", policy+"  clusters: [lab]\n")
	r.write("hosts.d/a.yaml", labEntry)
	assert.Equal(t, "reloaded: took in clusters (added lab), hosts.d (added lab/n-1, removed prod/n-1), policies.d (changed FencePolicy a)", r.reload().Message)
	assert.Len(t, r.reloader.built["lab"], 1, "the cluster was built with its check")

	r.write("policies.d/a.yaml", policy)
	r.write("hosts.d/a.yaml", strings.Replace(labEntry, "cluster: lab, ", "", 1))
	r.writeClusters("[{name: lab, kubeconfig: kc}]", "")
	require.Equal(t, "reloaded: took in clusters (removed prod), policies.d (changed FencePolicy a)", r.reload().Message)
	assert.Equal(t, []string{"lab"}, r.clusterNames())
}

// A hold belongs to the name of its cluster: a reload does not rename a cluster, under whose new name the held
// host could be fenced. What binds every cluster is no reason against it. // I23
func TestReloadDoesNotRenameAClusterWithAHold(t *testing.T) {
	r := startReloadable(t)
	r.owns("prod")
	client := api.New(filepath.Join(r.dir, "s.sock"))
	give := func(o wire.Order) {
		o.Reason = "new disk"
		_, err := client.Do(t.Context(), o)
		require.NoError(t, err)
	}
	for _, stop := range []struct {
		verb, end wire.Verb
		node      string
	}{{wire.Hold, wire.Release, "n-1"}, {wire.Pause, wire.Resume, ""}} {
		give(wire.Order{Verb: stop.verb, Cluster: "prod", Node: stop.node})
		r.writeClusters("[{name: production, kubeconfig: kc}]", "")
		e := r.reload()
		assert.Equal(t, reason.ReloadRefused, e.Reason)
		assert.Contains(t, e.Message, "cluster prod cannot be renamed to production")
		assert.Contains(t, e.Message, "new disk")
		assert.Equal(t, []string{"prod"}, r.clusterNames())

		r.write("other", reloadKubeconfig)
		r.writeClusters("[{name: prod, kubeconfig: kc}, {name: lab, kubeconfig: other}]", "")
		assert.Equal(t, "reloaded: took in clusters (added lab)", r.reload().Message, "another cluster")
		r.write("fenced.yaml", r.text(""))
		require.Empty(t, r.reload().Reason)
		give(wire.Order{Verb: stop.end, Cluster: "prod", Node: stop.node})
	}
	give(wire.Order{Verb: wire.Pause})
	r.writeClusters("[{name: production, kubeconfig: kc}]", "")
	assert.Equal(t, "reloaded: took in clusters (added production, removed prod)", r.reload().Message)
	assert.NotEmpty(t, r.status("production").Paused)
}

// A kind of requests is watched by the clusters whose checks named it when they were built: a check
// for another one is refused.
func TestReloadRefusesTemplatesThatAClusterDoesNotWatch(t *testing.T) {
	const check = "apiVersion: remediation.medik8s.io/v1alpha1\nkind: NodeHealthCheck\nmetadata: {name: a, annotations: {fenced.io/cluster: CLUSTER}}\nspec:\n" +
		"  selector: {matchLabels: {a: b}}\n  minHealthy: 51%\n  unhealthyConditions: [{type: Ready, status: Unknown, duration: 5m}]\n" +
		"  remediationTemplate: {apiVersion: a.example/v1, kind: ATemplate, name: t, namespace: ns}\n"
	r := startReloadable(t)
	r.write("policies.d/a.yaml", strings.Replace(check, "CLUSTER", "lab", 1))
	r.writeClusters(both, "")
	require.Equal(t, "reloaded: took in clusters (added lab), policies.d (added NodeHealthCheck a)", r.reload().Message)
	r.write("policies.d/a.yaml", strings.Replace(check, "CLUSTER", "prod", 1))
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "whose requests fenced watches only after a restart")
}

// The store has an open run of a cluster: a reload does not remove that cluster, and names the run.
func TestReloadKeepsAClusterWithAnOpenRun(t *testing.T) {
	r := prepareReloadable(t)
	r.writeClusters(both, "")
	store, err := boltstore.Open(filepath.Join(r.dir, "state.db"))
	require.NoError(t, err)
	run := remediate.Begin(remediate.Run{ID: "r-1", Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
		Target: remediate.Target{Cluster: "lab", Node: "n-1", Host: "lab/n-1"}}, time.Now())
	_, err = state.SaveRun(t.Context(), store, run)
	require.NoError(t, err)
	require.NoError(t, store.Close())
	r.start()
	r.write("fenced.yaml", r.text("log: {level: debug}\n"))
	e := r.reload()
	assert.Equal(t, reason.ReloadRefused, e.Reason)
	assert.Contains(t, e.Message, "cluster lab cannot be removed while a run is open in it (r-1 on n-1)")
	assert.Equal(t, zapcore.InfoLevel, r.level.Level())
	assert.Equal(t, []string{"lab", "prod"}, r.clusterNames())
	r.writeClusters("[{name: lab, kubeconfig: kc}]", "")
	assert.Equal(t, "reloaded: took in clusters (removed prod)", r.reload().Message)
}

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
