package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// SIGHUP in the middle of a run: a bad file changes nothing, and then good ones are taken in.
// The same process ends the run as if nothing had happened.
func TestReloadInMidRun(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{{Name: "reloaded", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("reloaded")
	ignoreOn(w, true) // the run stays open
	w.Kubelet.Hang()
	awaitOff(t, w)

	dir := filepath.Dir(s.Config())
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	reload := func(says string) {
		require.NoError(t, syscall.Kill(d.PID(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(s.LogTail(1000), says) }, 5*time.Minute, 50*time.Millisecond)
	}
	level := func() string {
		r := must.Do(s.Fencectl(ctx, "log-level"))(t)
		return strings.TrimSpace(r.Stdout)
	}
	write("conf.d/level.yaml", "log: {level: debug}\n")
	write("hosts.d/spare.yaml", "hosts: [{nod: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	reload("the reload is refused")
	assert.Contains(t, s.LogTail(1000), "spare.yaml:1")
	assert.Equal(t, "info", level())

	write("hosts.d/spare.yaml", "hosts: [{node: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	write("policies.d/spare.yaml", `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: spares}
spec:
  nodeSelector: {matchLabels: {scene/pool: spares}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`)
	reload("took in log.level, hosts.d (added scene/spare), policies.d (added FencePolicy spares)")
	assert.Equal(t, "debug", level())
	c := must.Do(s.Coverage(ctx))(t)
	names := []string{}
	for _, cl := range c.Clusters {
		for _, k := range cl.Checks {
			names = append(names, k.Name)
		}
	}
	assert.Contains(t, names, "spares")

	ignoreOn(w, false)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
	select {
	case <-d.Done():
		t.Error("the daemon ended")
	default:
	}
}

// fleetFiles are the files of one daemon for the clusters of several scenes.
type fleetFiles struct {
	t      *testing.T
	first  *scene.Scene // whose files they are
	text   string       // of fenced.yaml
	scenes map[string]*scene.Scene
}

// write writes fenced.yaml and hosts.d for these clusters. The first scene's cluster keeps the line
// that it has.
func (f *fleetFiles) write(clusters ...string) {
	f.t.Helper()
	dir, text := filepath.Dir(f.first.Config()), ""
	for line := range strings.Lines(f.text) {
		isFirst := strings.HasPrefix(line, "  - {name: "+scene.ClusterName+",")
		for _, name := range clusters {
			switch {
			case isFirst && name == scene.ClusterName:
				text += line
			case isFirst:
				kubeconfig := must.Do(f.scenes[name].Cluster.Kubeconfig(rig.FencedUser))(f.t)
				text += "  - {name: " + name + ", kubeconfig: " + kubeconfig + ", mode: evaluate}\n"
			}
		}
		if !isFirst {
			text += line
		}
	}
	require.NoError(f.t, os.WriteFile(f.first.Config(), []byte(text), 0o600))
	for name, s := range f.scenes {
		file := filepath.Join(dir, "hosts.d", name+".yaml")
		_ = os.Remove(file)
		for _, wanted := range clusters {
			if wanted == name {
				require.NoError(f.t, os.WriteFile(file, f.hosts(s, name), 0o600))
			}
		}
	}
}

// hosts is hosts.d of a scene, with the cluster in each entry.
func (f *fleetFiles) hosts(s *scene.Scene, cluster string) []byte {
	f.t.Helper()
	data := must.Do(os.ReadFile(filepath.Join(filepath.Dir(s.Config()), "hosts.all")))(f.t)
	var list struct {
		Hosts []map[string]any `yaml:"hosts"`
	}
	require.NoError(f.t, yaml.Unmarshal(data, &list))
	for _, h := range list.Hosts {
		h["cluster"] = cluster
	}
	data = must.Do(yaml.Marshal(map[string]any{"hosts": list.Hosts}))(f.t)
	return data
}

// One daemon, which never restarts: with a run open in its cluster, a reload adds a second control
// plane, a node of which is fenced. The first cluster is removed only when its run has ended.
func TestClustersComeAndGoInAReload(t *testing.T) {
	t.Parallel()
	const second = "second"
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{{Name: "open", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	other := onStandIn(t, scene.Options{Workers: []scene.Spec{{Name: "added", Protocol: scene.Redfish}, {Name: "added-healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	config := must.Do(os.ReadFile(s.Config()))(t)
	files := &fleetFiles{t: t, first: s, text: string(config), scenes: map[string]*scene.Scene{scene.ClusterName: s, second: other}}
	for _, each := range files.scenes {
		dir := filepath.Dir(each.Config())
		require.NoError(t, os.Rename(filepath.Join(dir, "hosts.d", "hosts.yaml"), filepath.Join(dir, "hosts.all")))
	}
	files.write(scene.ClusterName)
	d := must.Do(s.StartDaemon(ctx))(t)
	reload := func(says string) {
		t.Helper()
		require.NoError(t, syscall.Kill(d.PID(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(s.LogTail(2000), says) }, 5*time.Minute, 50*time.Millisecond, says)
	}
	clusters := func() (names []string) {
		st := must.Do(api.New(s.Socket()).Status(ctx))(t)
		for _, c := range st.Value.Clusters {
			names = append(names, c.Name)
		}
		return names
	}
	w, added := s.Worker("open"), other.Worker("added")
	ignoreOn(w, true) // the run stays open
	w.Kubelet.Hang()
	awaitOff(t, w)

	files.write(scene.ClusterName, second)
	reload("reloaded: took in clusters (added second), hosts.d (added second/added second/added-healthy)")
	assert.Equal(t, []string{scene.ClusterName, second}, clusters())
	added.Kubelet.Hang()
	awaitRun(ctx, t, s, added.Name, result(wire.ResultDone))
	requireBack(ctx, t, other, added)
	requireOneDeletion(t, other, added)

	files.write(second)
	open := awaitRun(ctx, t, s, w.Name, result(wire.ResultRunning))
	reload("cluster scene cannot be removed while a run is open in it (" + open.ID + " on open)")
	assert.Equal(t, []string{scene.ClusterName, second}, clusters())
	ignoreOn(w, false)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	reload("reloaded: took in clusters (removed scene), hosts.d (removed scene/healthy scene/open)")
	assert.Equal(t, []string{second}, clusters())

	added.Kubelet.Hang()
	require.Eventually(t, func() bool {
		deleted, err := other.Cluster.NodeDeletions(added.Name)
		return err == nil && len(deleted) == 2
	}, patience, time.Second, "the cluster that stays is guarded as before")
	untouched(ctx, t, s, s.Worker("healthy"))
	untouched(ctx, t, other, other.Worker("added-healthy"))
	select {
	case <-d.Done():
		t.Error("the daemon ended")
	default:
	}
}

// TestNothingIsLeftBehind takes the steps of docs/upgrade.md with which fenced is removed: after them
// no object carries a finalizer, an annotation, a taint or a lock of fenced. Its Lease is left.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		Apart: true, Mode: "respond",
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true},
			{Name: "healthy-2", Protocol: scene.IPMI, Metal3: true}},
	})
	ctx := within(t)
	q := newRequester(ctx, t, s.Management)
	require.NoError(t, s.Management.Apply(ctx, documented(t, "cluster-api")))
	d := must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, w.Name, unknown))(t)
	q.ofMachine(ctx, t, w.Name)
	awaitOff(t, w)
	during := marks(ctx, t, s)
	require.NotEmpty(t, during, "what is searched for is found in mid-run")
	root := must.Do(rig.Root())(t)
	page := must.Do(os.ReadFile(filepath.Join(root, "docs", "upgrade.md")))(t)
	for _, mark := range during {
		assert.Contains(t, string(page), "`"+mark+"`", "what a stop in mid-run leaves behind")
	}

	q.remove(ctx, t, w.Name) // before the pause: a paused fenced writes nothing to requests
	q.awaitGone(ctx, t, w.Name)
	fencectl(ctx, t, s, 0, "pause", "--reason", "fenced is removed")
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Runs) == 0
	}, patience, 100*time.Millisecond, "no run is open")
	over := awaitRun(ctx, t, s, w.Name, func(r wire.RunRecord) bool { return !r.Ended.IsZero() })
	assert.Contains(t, []string{wire.ResultDone, wire.ResultAborted}, over.Result)
	assert.True(t, w.BMC.Power())
	require.Eventually(t, func() bool { return len(marks(ctx, t, s)) == 0 }, patience, 100*time.Millisecond, "fenced cleans up after the run")
	must.Do(d.Terminate(ctx))(t)

	assert.Empty(t, marks(ctx, t, s), "and writes nothing when it stops")
	leases := must.Do(s.Cluster.Client().CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}))(t)
	var left []string
	for i := range leases.Items {
		if l := &leases.Items[i]; strings.Contains(text(t, l.ObjectMeta)+text(t, l.Spec), "fenced") {
			left = append(left, l.Namespace+"/"+l.Name)
		}
	}
	assert.Equal(t, []string{"kube-system/fenced"}, left)
}

// mark is what fenced writes on an object.
var mark = regexp.MustCompile(`\b(fenced\.io/[\w-]+|reboot\.metal3\.io/fenced|node\.kubernetes\.io/out-of-service)`)

// marks are what of fenced is on any object.
func marks(ctx context.Context, t *testing.T, s *scene.Scene) (found []string) {
	t.Helper()
	for _, in := range []struct {
		on   *rig.ControlPlane
		what schema.GroupVersionResource
	}{
		{s.Cluster, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
		{s.Management, rig.CAPIResource("v1beta2", "machines")},
		{s.Management, rig.HostResource},
		{s.Management, requestResource},
	} {
		list := must.Do(in.on.Dynamic().Resource(in.what).List(ctx, metav1.ListOptions{}))(t)
		for _, o := range list.Items {
			carried := text(t, o.GetAnnotations()) + text(t, o.GetFinalizers()) + text(t, o.Object["spec"])
			found = append(found, mark.FindAllString(carried, -1)...)
		}
	}
	return found
}

func text(t *testing.T, v any) string {
	t.Helper()
	data := must.Do(json.Marshal(v))(t)
	return string(data)
}
