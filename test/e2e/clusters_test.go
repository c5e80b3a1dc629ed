package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

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
				kubeconfig, err := f.scenes[name].Cluster.Kubeconfig(rig.FencedUser)
				require.NoError(f.t, err)
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
	data, err := os.ReadFile(filepath.Join(filepath.Dir(s.Config()), "hosts.all"))
	require.NoError(f.t, err)
	var list struct {
		Hosts []map[string]any `yaml:"hosts"`
	}
	require.NoError(f.t, yaml.Unmarshal(data, &list))
	for _, h := range list.Hosts {
		h["cluster"] = cluster
	}
	data, err = yaml.Marshal(map[string]any{"hosts": list.Hosts})
	require.NoError(f.t, err)
	return data
}

// One daemon, which never restarts: with a run open in its cluster, a reload adds a second control
// plane, a node of which is fenced. The first cluster is removed only when its run has ended.
func TestClustersComeAndGoInAReload(t *testing.T) {
	t.Parallel()
	const second = "second"
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "open", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	other := set(t, scene.Options{Workers: []scene.Spec{{Name: "added", Protocol: scene.Redfish}, {Name: "added-healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	config, err := os.ReadFile(s.Config())
	require.NoError(t, err)
	files := &fleetFiles{t: t, first: s, text: string(config), scenes: map[string]*scene.Scene{scene.ClusterName: s, second: other}}
	for _, each := range files.scenes {
		dir := filepath.Dir(each.Config())
		require.NoError(t, os.Rename(filepath.Join(dir, "hosts.d", "hosts.yaml"), filepath.Join(dir, "hosts.all")))
	}
	files.write(scene.ClusterName)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	reload := func(says string) {
		t.Helper()
		require.NoError(t, syscall.Kill(d.PID(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(s.LogTail(2000), says) }, 5*time.Minute, 50*time.Millisecond, says)
	}
	clusters := func() (names []string) {
		st, err := api.New(s.Socket()).Status(ctx)
		require.NoError(t, err)
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
