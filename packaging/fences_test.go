package packaging_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/quickstart"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// patience bounds each wait. A busy machine may need minutes; only a hang needs more.
const patience = 8 * time.Minute

// TestInstalledDaemonFences is what the package is for, under a real systemd: the daemon in
// its sandbox fences a hung node over IPMI. The password comes from
// a credential, whose file only root may read. The daemon is killed with -9 between the Off
// and its proof, and the next one ends the same run.
func TestInstalledDaemonFences(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "fences.sh")
	s := hungScene(t, inMemory)
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

// inMemory serves the API where systemd, dnf and the unit are shown: that a daemon fences on a real control plane is shown by TestImageFences and test/e2e.
func inMemory(audit io.Writer) (rig.API, error) {
	return apiserver.Start(apiserver.Options{Audit: audit})
}

// hungScene is an API with a host that will hang, and a healthy one: a control plane, unless a stand-in serves it.
func hungScene(t *testing.T, standIn func(io.Writer) (rig.API, error)) *scene.Scene {
	t.Helper()
	s := must.Do(scene.New(t.Context(), scene.Options{
		Workers:     []scene.Spec{{Name: hungNode, Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
		GracePeriod: 8 * time.Second, Progress: os.Stderr,
		StandIn: standIn,
	}))(t)
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
	kubeconfig := must.Do(s.Cluster.Kubeconfig(rig.FencedUser))(t)
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
	requireSaid(t, dir, booted.console, booted.err, want)
}

// requireFencedOnce: the Node was deleted once, is another one now and wears all it wore, and
// nobody asked the BMC of the healthy host.
func requireFencedOnce(t *testing.T, s *scene.Scene) {
	t.Helper()
	w := s.Worker(hungNode)
	d := must.Do(s.Cluster.NodeDeletions(w.Name))(t)
	require.Len(t, d, 1, "deletions of the Node in the API server's audit log")
	assert.Equal(t, rig.FencedUser, d[0].User)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
	assert.NotEqual(t, w.Registered.UID, n.UID, "a new Node registered")
	assert.Empty(t, w.Undressed(n), "all that the Node wore is back")
	assert.True(t, w.BMC.Power())
	assert.Zero(t, s.Worker("healthy").FirstAsked(), "nobody asked the BMC of a healthy host")
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text := must.Do(os.ReadFile(path))(t)
	return string(text)
}

// TestInstalledDaemonWhoseLoopHangs: under a real systemd, with the unit's own WatchdogSec=, the deciding loop hangs while a run is
// open, and all other goroutines live: the daemon answers people. systemd's watchdog kills it, and the next one
// ends the same run. The daemon is the package's but for the failpoint that hangs the loop.
func TestInstalledDaemonWhoseLoopHangs(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "hangs.sh")
	daemon := filepath.Join(dir, "tree/usr/libexec/fenced/fenced")
	require.NoError(t, os.WriteFile(daemon, must.Do(os.ReadFile(must.Do(scene.Program(t.Context(), t.TempDir(), scene.Failpoints))(t)))(t), 0o755))
	require.NoError(t, os.Chmod(daemon, 0o755))
	s := hungScene(t, inMemory)
	configure(t, s, dir)
	booted := bootAsync(t, dir)
	hangWhenStarted(t, s, dir, booted)
	awaitFile(t, filepath.Join(dir, "killed"), booted)
	s.Worker(hungNode).Answer()

	requireBooted(t, dir, booted,
		"ok the run is open", "ok the loop hangs, and the daemon answers", "ok systemd has killed it, and the next one has the run", "ok the same run is done")
	requireFencedOnce(t, s)
}

// TestLifeOfThePackage lets dnf install, upgrade, downgrade and erase the package from a
// repository, under a real systemd. The upgrade comes while a host is off and not proven off:
// the new daemon ends the same run. The downgrade meets a state of a newer schema: the old
// daemon refuses it and leaves it as it is.
func TestLifeOfThePackage(t *testing.T) {
	t.Parallel()
	needBoot(t)
	need(t, "dnf", "dnf")
	need(t, "createrepo_c", "createrepo-c")
	dir := shareScript(t, "life.sh")
	repo := filepath.Join(dir, "repo")
	older := rpmFile(t)
	newer := must.Do(builtNewVersion())(t)
	sh(t, `mkdir -m 0755 "$3" && cp "$1" "$2"/*.rpm "$3/" && rm "$3"/*.src.rpm && createrepo_c --quiet "$3" && chmod -R a+rX "$3"`, older, newer, repo)

	s := hungScene(t, inMemory)
	sh(t, `umask 022; mkdir -p "$1/tree/etc/fenced/hosts.d"`, dir)
	configure(t, s, dir)
	// Not before the package is installed, which makes the directory.
	sh(t, `mv "$1/tree/etc/fenced" "$1/etc"`, dir)
	booted := bootAsync(t, dir)
	hangWhenStarted(t, s, dir, booted)
	awaitFile(t, filepath.Join(dir, "killed"), booted)
	s.Worker(hungNode).Answer()
	awaitFile(t, filepath.Join(dir, "stopped"), booted)
	if !t.Failed() {
		ofNewerSchema(t, filepath.Join(dir, "state.db"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "newer"), nil, 0o644))

	requireBooted(t, dir, booted,
		"ok installed: nothing enabled, nothing started", "ok the run is open", "ok upgraded in mid-run: the new daemon has the run", "ok the same run is done",
		"ok downgraded onto a newer state: refused, and the state untouched", "ok the newer state is left, and the old one taken up", "ok erased: stopped, state and changed configuration kept")
	requireFencedOnce(t, s)
}

// ofNewerSchema makes a state as a fenced after this one would leave it.
func ofNewerSchema(t *testing.T, path string) {
	t.Helper()
	db := must.Do(bolt.Open(path, 0o600, nil))(t)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("fenced")).Put([]byte("schema"), []byte(strconv.Itoa(state.Schema+1)))
	}))
	require.NoError(t, db.Close())
}

// TestQuickStartFromThePackage follows the quick start of a plain cluster as a new user does, from the
// RPM to the first dry run: dnf, systemd, kubectl, the control plane and the BMC are real. It takes less than ten minutes, and less than
// two of them are typing.
func TestQuickStartFromThePackage(t *testing.T) {
	t.Parallel()
	needBoot(t)
	need(t, "dnf", "dnf")
	need(t, "rpmbuild", "rpm")
	kubectl := must.Do(rig.Kubectl(t.Context(), os.Stderr))(t)
	s := must.Do(scene.New(t.Context(), scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Workers: []scene.Spec{{Name: "worker-1", Protocol: scene.IPMI}, {Name: "worker-2"}}, Progress: os.Stderr,
	}))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are kept in %s", s.KeepLogs())
		}
		s.Stop()
	})
	dir := shareScript(t, "quickstart.sh")
	admin := must.Do(s.Cluster.Kubeconfig("an-administrator", "system:masters"))(t)
	commands := must.Do(quickstart.Commands("plain"))(t)
	at := strings.NewReplacer("192.0.2.11", s.Worker("worker-1").IPMIAddress()).Replace(strings.Join(commands, "\n")) + "\n"
	require.NotEqual(t, strings.Join(commands, "\n")+"\n", at)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "commands"), []byte(at), 0o644))
	sh(t, `umask 022; cp "$1" "$2/"; cp "$3" "$2/admin.conf"; cp "$4/kubectl" "$2/"; printf '%s\n' "$5" >"$2/password"`, rpmFile(t), dir, admin, kubectl, scene.Password)

	booted := bootAsync(t, dir)
	<-booted.over
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, booted.err, "%s%s%s", said, complained, booted.console)
	require.Len(t, lines(said), len(commands), "%s%s", said, complained)
	assert.Contains(t, read(t, dir, "last"), "worker-1 would be fenced")
	assert.Equal(t, []string{
		"root fenced 640 /etc/fenced/fenced.yaml", "root fenced 640 /etc/fenced/prod.kubeconfig", "root fenced 740 /etc/fenced/prod-kubeconfig.sh",
		"root fenced 640 /etc/fenced/hosts.d/prod.yaml", "root fenced 640 /etc/fenced/credentials/bmc",
	}, lines(read(t, dir, "modes")))
	requireQuick(t, commands, lines(said))
}

const (
	perMinute  = 200 // characters that somebody types who reads them from a page
	maxTyping  = 2   // minutes
	maxMachine = 8 * time.Minute
)

// requireQuick prints one row for each command: its characters with Enter, and its time. docs/results.md has one run.
func requireQuick(t *testing.T, commands, said []string) {
	t.Helper()
	t.Log("| command | typed characters | machine, s |")
	t.Log("|---|---|---|")
	characters, total := len(scene.Password)+1, 0
	for i, c := range commands {
		ms := must.Do(strconv.Atoi(strings.Fields(said[i])[0]))(t)
		t.Logf("| `%s` | %d | %.1f |", c, len(c)+1, float64(ms)/1000)
		characters, total = characters+len(c)+1, total+ms
	}
	t.Logf("| %d commands, and the password | %d | %.1f |", len(commands), characters, float64(total)/1000)
	assert.Less(t, characters, maxTyping*perMinute, "what the quick start has typed takes too long")
	assert.Less(t, time.Duration(total)*time.Millisecond, maxMachine, "the machine takes too long")
}
