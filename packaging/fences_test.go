package packaging_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// patience bounds each wait. A busy machine may need minutes; only a hang needs more.
const patience = 8 * time.Minute

// TestInstalledDaemonFences is what the package is for, under a real systemd: the daemon in
// its sandbox fences a hung node of a real control plane over IPMI. The password comes from
// a credential, whose file only root may read. The daemon is killed with -9 between the Off
// and its proof, and the next one ends the same run.
func TestInstalledDaemonFences(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "fences.sh")
	s := hungScene(t)
	configure(t, s, dir)
	booted := bootAsync(t, dir)
	hangWhenStarted(t, s, dir, booted)
	awaitFile(t, filepath.Join(dir, "killed"), booted)
	s.Worker(hungNode).Answer()

	requireBooted(t, dir, booted,
		"ok no file that the daemon may read has the password", "ok ready with the password from a credential", "ok the run is open", "ok the run is open after a reload", "ok a reload that the daemon refuses fails", "ok back after kill -9", "ok the same run is done",
		"ok restarted with the password from an encrypted credential")
	requireFencedOnce(t, s)
}

// hungNode is the node that hangs, and whose host is fenced.
const hungNode = "worker-1"

// hungScene is a control plane with a host that will hang, and a healthy one.
func hungScene(t *testing.T) *scene.Scene {
	t.Helper()
	s, err := scene.New(t.Context(), scene.Options{
		Workers:     []scene.Spec{{Name: hungNode, Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
		GracePeriod: 8 * time.Second, Progress: os.Stderr,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are kept in %s", s.KeepLogs())
		}
		s.Stop()
	})
	return s
}

// configure puts the scene's configuration where boot's tree has it: with the paths of the
// package, and the password as a credential.
func configure(t *testing.T, s *scene.Scene, dir string) {
	t.Helper()
	etc := filepath.Join(dir, "tree/etc/fenced")
	kubeconfig, err := s.Cluster.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	sh(t, `umask 022; cp "$1" "$2/scene.kubeconfig"; printf %s "$3" >"$4/password"; chmod 0600 "$4/password"`, kubeconfig, etc, scene.Password, dir)

	var text []string
	for _, line := range lines(readFile(t, s.Config())) {
		key, _, _ := strings.Cut(line, ":")
		switch key {
		case "hosts", "policies", "state", "control":
			continue // the package's own
		}
		if strings.Contains(line, "kubeconfig: ") {
			line = "  - {name: " + scene.ClusterName + ", kubeconfig: /etc/fenced/scene.kubeconfig, mode: evaluate}"
		}
		text = append(text, line)
	}
	require.NoError(t, os.WriteFile(filepath.Join(etc, "fenced.yaml"), []byte(strings.Join(text, "\n")+"\n"), 0o644))

	hosts := readFile(t, filepath.Join(filepath.Dir(s.Config()), "hosts.d/hosts.yaml"))
	for _, w := range s.Workers {
		file := "passwordFile: " + filepath.Join(filepath.Dir(s.Config()), w.Name+".password")
		require.Contains(t, hosts, file)
		hosts = strings.ReplaceAll(hosts, file, "credential: bmc")
	}
	require.NoError(t, os.WriteFile(filepath.Join(etc, "hosts.d/hosts.yaml"), []byte(hosts), 0o644))
	drop := filepath.Join(dir, unitDir, "fenced.service.d")
	require.NoError(t, os.MkdirAll(drop, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(drop, "credential.conf"), []byte("[Service]\nLoadCredential=bmc:/root/bmc-password\n"), 0o644))
	require.Equal(t, "/etc/fenced/hosts.d", config.Default().Hosts)
}

// end is how a boot ended.
type end struct {
	console string
	err     error
	over    <-chan struct{}
}

// bootAsync boots with this machine's network, where the control plane and the BMCs are.
func bootAsync(t *testing.T, dir string) *end {
	t.Helper()
	over := make(chan struct{})
	e := &end{over: over}
	go func() {
		defer close(over)
		e.console, e.err = boot(t, dir, "administrator.service", hostNet)
	}()
	t.Cleanup(func() { <-over }) // the test's context ends it
	return e
}

// awaitFile waits until the script makes a file, or has ended.
func awaitFile(t *testing.T, path string, booted *end) {
	t.Helper()
	await(t, booted, func() bool {
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		return err == nil
	}, "no "+path)
}

func await(t *testing.T, booted *end, ok func() bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-booted.over:
			return // requireBooted tells why
		case <-ctx.Done():
			require.FailNow(t, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// hangWhenStarted hangs the node once the script says that the daemon runs. From the Off on
// its BMC is silent, so that nothing proves the host off.
func hangWhenStarted(t *testing.T, s *scene.Scene, dir string, booted *end) {
	t.Helper()
	awaitFile(t, filepath.Join(dir, "started"), booted)
	w := s.Worker(hungNode)
	w.Kubelet.Hang()
	await(t, booted, func() bool { return !w.BMC.Power() }, "the host of "+hungNode+" stays on")
	w.Silence()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "off"), nil, 0o644))
}

// requireBooted requires that the script came to its end.
func requireBooted(t *testing.T, dir string, booted *end, want ...string) {
	t.Helper()
	<-booted.over
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, booted.err, "%s%s%s", said, complained, booted.console)
	assert.Equal(t, want, lines(said), "%s%s", complained, booted.console)
}

// requireFencedOnce: the Node was deleted once, is another one now and wears all it wore, and
// nobody asked the BMC of the healthy host.
func requireFencedOnce(t *testing.T, s *scene.Scene) {
	t.Helper()
	w := s.Worker(hungNode)
	d, err := s.Cluster.NodeDeletions(w.Name)
	require.NoError(t, err)
	require.Len(t, d, 1, "deletions of the Node in the API server's audit log")
	assert.Equal(t, rig.FencedUser, d[0].User)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	assert.NotEqual(t, w.Registered.UID, n.UID, "a new Node registered")
	assert.Empty(t, w.Undressed(n), "all that the Node wore is back")
	assert.True(t, w.BMC.Power())
	assert.Zero(t, s.Worker("healthy").FirstAsked(), "nobody asked the BMC of a healthy host")
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
