package packaging_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/quickstart"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// TestQuickStartFromThePackage follows the quick start of a plain cluster as a new user does, from the
// RPM to the first dry run: dnf, systemd, kubectl, the control plane and the BMC are real. It takes less than ten minutes, and less than
// two of them are typing.
func TestQuickStartFromThePackage(t *testing.T) {
	needBoot(t)
	need(t, "dnf", "dnf")
	need(t, "rpmbuild", "rpm")
	kubectl, err := rig.Kubectl(t.Context(), os.Stderr)
	require.NoError(t, err)
	s, err := scene.New(t.Context(), scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Workers: []scene.Spec{{Name: "worker-1", Protocol: scene.IPMI}, {Name: "worker-2"}}, Progress: os.Stderr,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are kept in %s", s.KeepLogs())
		}
		s.Stop()
	})
	dir := shareScript(t, "quickstart.sh")
	admin, err := s.Cluster.Kubeconfig("an-administrator", "system:masters")
	require.NoError(t, err)
	commands, err := quickstart.Commands("plain")
	require.NoError(t, err)
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
		ms, err := strconv.Atoi(strings.Fields(said[i])[0])
		require.NoError(t, err)
		t.Logf("| `%s` | %d | %.1f |", c, len(c)+1, float64(ms)/1000)
		characters, total = characters+len(c)+1, total+ms
	}
	t.Logf("| %d commands, and the password | %d | %.1f |", len(commands), characters, float64(total)/1000)
	assert.Less(t, characters, maxTyping*perMinute, "what the quick start has typed takes too long")
	assert.Less(t, time.Duration(total)*time.Millisecond, maxMachine, "the machine takes too long")
}
