package main

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

// writeClusters writes fenced.yaml with these clusters; more follows them.
func (r *reloadable) writeClusters(clusters, more string) {
	r.t.Helper()
	r.write("fenced.yaml", strings.Replace(r.text(more), "[{name: prod, kubeconfig: kc}]", clusters, 1))
}

// clusterNames are the clusters that status shows.
func (r *reloadable) clusterNames() (names []string) {
	r.t.Helper()
	st := must.Do(api.New(filepath.Join(r.dir, "s.sock")).Status(r.t.Context()))(r.t)
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
	s := must.Do(r.engine.SubjectOf(t.Context(), "lab", "n-1"))(t)
	require.NoError(t, s.Err)
	r.owns("lab")
	assert.True(t, r.measures(`fenced_armed{cluster="lab"} 0`))
	assert.True(t, r.measures(`fenced_armed{cluster="prod"} 1`))
	for _, name := range []string{"prod", "lab"} {
		assert.True(t, r.measures(fmt.Sprintf("\nfenced_remediations_total{cluster=%q,result=\"Done\"} 0\n", name)), "before anything ends")
	}
	r.events.Emit(event.Event{Type: event.Failed, Cluster: "lab", Message: "an example"})
	assert.True(t, r.measures(`fenced_failures_total{class="none",cluster="lab"} 1`))
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
		must.Do(client.Do(t.Context(), o))(t)
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
	store := must.Do(boltstore.Open(filepath.Join(r.dir, "state.db")))(t)
	run := remediate.Begin(remediate.Run{ID: "r-1", Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete,
		Target: remediate.Target{Cluster: "lab", Node: "n-1", Host: "lab/n-1"}}, time.Now())
	must.Do(state.SaveRun(t.Context(), store, run))(t)
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
	found := must.Do(loadPolicies(config.Config{Policies: "../../configs/policies.d", Clusters: []config.Cluster{{Name: "prod"}}}))(t)
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

// Two files have no check of one name, at whatever versions of its API: a run knows its check by that, whatever the file is called.
func TestCheckIsInOneFileAtOneVersion(t *testing.T) {
	dir := t.TempDir()
	const check = "apiVersion: cluster.x-k8s.io/%s\nkind: MachineHealthCheck\nmetadata: {name: m, namespace: ns}\nspec: {clusterName: c, selector: {matchLabels: {a: b}}, %s}\n"
	for file, text := range map[string]string{
		"1.yaml": fmt.Sprintf(check, "v1beta1", "unhealthyConditions: [{type: Ready, status: Unknown, timeout: 300s}]"),
		"2.yaml": fmt.Sprintf(check, "v1beta2", "checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]}"),
		"3.yaml": "apiVersion: machine.openshift.io/v1beta1\nkind: MachineHealthCheck\nmetadata: {name: m, namespace: ns}\nspec: {selector: {matchLabels: {a: b}}, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 300s}]}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	_, err := loadPolicies(config.Config{Policies: dir, Clusters: []config.Cluster{{Name: "a"}}})
	assert.EqualError(t, err, filepath.Join(dir, "2.yaml")+":1: MachineHealthCheck m is in "+filepath.Join(dir, "1.yaml")+":1 already")
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
	require.NoError(t, unwatchedTemplates(start, []policy.Check{own, known, {}}, true))
	for _, c := range []policy.Check{other, escalating} {
		err := unwatchedTemplates(start, []policy.Check{own, c}, false)
		require.ErrorContains(t, err, c.Source+": the NodeHealthCheck "+c.Name+" names a template of the kind BTemplate of a.example/v1")
		require.ErrorContains(t, err, "restart it instead")
	}
}

// A cluster that a reload removes watches nothing any more: a check that names no cluster is for the one that stays.
func TestReloadAsksNothingOfAClusterThatItRemoves(t *testing.T) {
	check := policy.Check{Kind: policy.NodeHealthCheckKind, Name: "n", Template: &policy.Template{APIVersion: "a.example/v1", Kind: "ATemplate"}}
	r := reloader{built: map[string][]policy.Check{"prod": {check}, "lab": nil}}
	next := config.Config{Clusters: []config.Cluster{{Name: "prod"}}}
	assert.NoError(t, r.unwatchedTemplates(next, manifest.Policies{Checks: []policy.Check{check}}))
}

// Requests for Nodes are on the workload API, and those for Machines may be on a separate management API: that the kind is watched on one of
// them says nothing about the other. // I22
func TestReloadRefusesTemplatesThatAreNotWatchedOnTheOtherAPI(t *testing.T) {
	with := func(kind, apiVersion string, nodes bool) policy.Check {
		return policy.Check{Kind: kind, APIVersion: apiVersion, Name: "n", Source: "a.yaml:1", SelectsNodes: nodes, Template: &policy.Template{APIVersion: "a.example/v1", Kind: "ATemplate"}}
	}
	nodes, machines := with(policy.FencePolicyKind, policy.FencedAPI, true), with(policy.FencePolicyKind, policy.FencedAPI, false)
	openShift, clusterAPI := with(policy.MachineHealthCheckKind, policy.OpenShiftMachineAPI, false), with(policy.MachineHealthCheckKind, policy.ClusterAPIV1Beta2, false)
	for _, c := range []struct {
		was, is policy.Check
		refused bool
	}{
		{nodes, machines, true}, {nodes, clusterAPI, true}, {clusterAPI, openShift, true}, {clusterAPI, machines, true},
		{machines, nodes, false}, {machines, clusterAPI, false}, {openShift, nodes, false},
	} {
		assert.NoError(t, unwatchedTemplates([]policy.Check{c.was}, []policy.Check{c.is}, false))
		assert.Equal(t, c.refused, unwatchedTemplates([]policy.Check{c.was}, []policy.Check{c.is}, true) != nil, "%+v", c)
	}
}

// Each guard and deadline that a reload takes in changes what the engine is given; one that
// needs a restart changes nothing then.
func TestLiveGuardsAndDeadlinesReachTheEngine(t *testing.T) {
	was := config.Default()
	live := 0
	for _, section := range []string{"Guards", "Power"} {
		of := reflect.ValueOf(was).FieldByName(section)
		for i := range of.NumField() {
			now := config.Default()
			v := reflect.ValueOf(&now).Elem().FieldByName(section).Field(i)
			switch v.Kind() {
			case reflect.String:
				v.SetString("other")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			default:
				v.SetInt(v.Int() + 1)
			}
			changes := config.Changes(was, now)
			next := config.TakeLive(was, now)
			taken := guardLimits(next.Guards) != guardLimits(was.Guards) || runLimits(next) != runLimits(was)
			assert.Equal(t, changes[0].Live, taken, changes[0].Key)
			if changes[0].Live {
				live++
			}
		}
	}
	assert.Greater(t, live, 20)
}

// blind is a watch of an empty cluster.
type blind struct{}

func (blind) Changes() []policy.Change { return nil }

func (blind) Changed() <-chan struct{} { return nil }

func (blind) View() admit.View { return admit.View{Synced: true} }

// others owns nothing: instance two does.
type others struct{}

func (others) Run(ctx context.Context, _ func(context.Context, state.Claim)) error {
	<-ctx.Done()
	return nil
}

func (others) Add(string) {}

func (others) Remove(string) {}

func (others) StepAside(string, bool) bool { return true }

func (others) Owner(string) state.Owner { return state.Owner{Instance: "two", Epoch: 7} }

// The metrics, and the words for systemd, say whether this instance acts on a cluster,
// and in which epoch.
func TestOwnerIsTold(t *testing.T) {
	for _, each := range []struct {
		owners state.Owners
		mode   string
		want   []string
		words  string
	}{
		{nil, guard.ModeObserve, []string{`fenced_owner{cluster="prod"} 1`, `fenced_epoch{cluster="prod"} 1`}, ""},
		{others{}, guard.ModeEvaluate, []string{`fenced_owner{cluster="prod"} 0`, `fenced_epoch{cluster="prod"} 7`}, "prod is with two"},
		{others{}, guard.ModeRespond, []string{`fenced_armed{cluster="prod"} 1`}, "prod is with two"},
		{nil, guard.ModeObserve, []string{`fenced_armed{cluster="prod"} 0`}, "prod only observes"},
	} {
		store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
		defer store.Close()
		m := newMetrics("1")
		e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}, Instance: "one",
			Owners: each.owners, Clusters: []engine.ClusterOptions{{Name: "prod", Mode: each.mode, Watch: blind{}, Kube: away{}}}}))(t)
		open := func(bmc.Device) (bmc.Power, error) { return nil, assert.AnError }
		s := sweep.New(sweep.Options{Engine: oneHost{}, Open: open, Urgent: open, LockOut: e.LockOut, ReadTimeout: time.Second, Concurrency: 1,
			OnEvent: func(event.Event) {}, OnLatency: m.measured})
		m.measureState(e, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx, func() {}) }()
		owned := each.owners == nil
		require.Eventually(t, func() bool { return e.Status()[0].Owner == owned }, time.Minute, time.Millisecond)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range each.want {
			assert.Contains(t, answer.Body.String(), want)
		}
		words := statusWords(e.Status())
		assert.Contains(t, words, each.words)
		assert.Equal(t, each.mode != guard.ModeObserve, mayFence(e.Status()), "the watchdog of this host")
		assert.Equal(t, each.mode == guard.ModeObserve, strings.Contains(words, "only observes"), words)
		cancel()
		require.NoError(t, <-ended)
	}
}

// netlinkAddrs are the same addresses as the kernel tells them over netlink.
func netlinkAddrs(t *testing.T) (list []string) {
	t.Helper()
	addrs := must.Do(net.InterfaceAddrs())(t)
	for _, a := range addrs {
		list = append(list, netip.MustParsePrefix(a.String()).Addr().String())
	}
	return list
}

func ownAddrTexts(t *testing.T) (list []string) {
	t.Helper()
	addrs := must.Do(ownAddrs())(t)
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}

// The addresses that protect this host from being fenced are all that the kernel has. // I13
func TestOwnAddresses(t *testing.T) {
	before := netlinkAddrs(t)
	require.NotEmpty(t, before)
	for {
		own, after := ownAddrTexts(t), netlinkAddrs(t)
		if slices.Equal(before, after) { // nobody changed them meanwhile
			assert.ElementsMatch(t, after, own)
			return
		}
		before = after
	}
}

// manyAddrs sets up a network namespace: more addresses than the first room has, second ones, one of a pair, and one on an interface
// that is down.
const manyAddrs = `set -e
ip link set lo up
for i in $(seq 1 100); do ip addr add 192.0.2.$i/24 dev lo; done
ip addr add 198.51.100.1 peer 198.51.100.2 dev lo
ip -6 addr add 2001:db8::7/64 dev lo nodad
ip link add fenced-a type veth peer name fenced-b
ip addr add 203.0.113.9/24 dev fenced-a
ip link set fenced-b up
exec "$@"`

func TestOwnAddressesAreAll(t *testing.T) {
	if os.Getenv("FENCED_TEST_NET") != "" {
		own := ownAddrTexts(t)
		assert.ElementsMatch(t, netlinkAddrs(t), own)
		assert.Subset(t, own, []string{"127.0.0.1", "192.0.2.1", "192.0.2.100", "198.51.100.1"})
		return
	}
	asroot.Can(t, "make a network namespace with addresses", "unshare", "--net", "sh", "-c", manyAddrs, "sh", "true")
	cmd := exec.Command("unshare", "--net", "sh", "-c", manyAddrs, "sh", os.Args[0], "-test.run", "^TestOwnAddressesAreAll$")
	cmd.Env = append(os.Environ(), "FENCED_TEST_NET=1")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func TestParseInet6(t *testing.T) {
	addrs, err := parseInet6("00000000000000000000000000000001 01 80 10 80       lo\nfe80000000000000021b21fffe000001 02 40 20 80     eth0\n")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("fe80::21b:21ff:fe00:1")}, addrs)
	for _, bad := range []string{"\n", "7f000001 01\n", "xx\n", strings.Repeat("0", 34) + " 01\n"} {
		addrs, err = parseInet6("00000000000000000000000000000001 01 80 10 80 lo\n" + bad)
		require.Error(t, err, bad)
		assert.Len(t, addrs, 1, "the rest counts")
	}
}

// TestPulse: one beat is worth one kick, however many there were.
func TestPulse(t *testing.T) {
	var p pulse
	require.False(t, p.alive(), "nothing was decided yet")
	p.beat()
	p.beat()
	require.True(t, p.alive())
	require.False(t, p.alive())
	p.beat()
	require.True(t, p.alive())
}

func TestMayFence(t *testing.T) {
	run := func(s remediate.Step) []remediate.Run { return []remediate.Run{{Step: s}} }
	require.False(t, mayFence(nil))
	require.False(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Runs: run(remediate.Held)}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Armed: true}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a", Runs: run(remediate.PowerOff)}}), "a person's order")
}

// TestWatchdogWithoutBMC: what was asked for and cannot be had is said, and the
// daemon fences on.
func TestWatchdogWithoutBMC(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(core)
	b := openOwnBMC(4711, log)
	require.Nil(t, b)
	require.Equal(t, 1, logged.Len(), "one line")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	o := ownBMC{BMC: b, cfg: config.Watchdog{Enabled: true, Timeout: time.Minute, Device: 4711}, pulse: new(pulse), log: log}
	require.NoError(t, o.keep(ctx, func() []engine.ClusterStatus { return nil }))
	require.Equal(t, 1, logged.FilterMessageSnippet("no watchdog is armed").Len())
	require.Zero(t, ownHost(ctx, b, log).BMCAddrs)
}
