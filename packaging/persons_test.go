package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// people are users of the host.
const people = "u anna 4003\nu bert 4004\n"

// TestInstalledDaemonKnowsWhoUsedSudo: in the sandbox of the shipped unit, under a real
// systemd, the daemon reads the login of whoever connects. Two persons are then two
// people, whichever users they have become. // I26
func TestInstalledDaemonKnowsWhoUsedSudo(t *testing.T) {
	needBoot(t)
	if exec.Command("sh", "-c", "echo 4003 >/proc/self/loginuid").Run() != nil && os.Getenv("CI") != "true" {
		t.Skip("no process can log in here")
	}
	root, dir := rpmRoot(t), t.TempDir()
	sh(t, `umask 022; chmod 755 "$1"; cp -R --preserve=mode,links "$2" "$1/tree"; cp "$3/persons.sh" "$1"
		cp "$3/persons.yaml" "$1/tree/etc/fenced/fenced.yaml"; cp "$3/nowhere.kubeconfig" "$1/tree/etc/fenced/"`, dir, root, absolute(t, "testdata"))
	unit := strings.Replace(driver, "/share/administrator.sh", "/share/persons.sh", 1)
	for path, text := range map[string]string{"systemd/system/persons.service": unit, "sysusers.d/people.conf": people} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tree/usr/lib", path), []byte(text), 0o644))
	}

	console, err := boot(t, dir, "persons.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok nobody knows who is root, or the daemon", "ok sudo makes no second person",
		"ok two people are two persons", "ok who is hidden counts as nobody",
	}, lines(said), "%s%s", complained, console)
}
