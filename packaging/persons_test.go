package packaging_test

import (
	"os/exec"
	"path/filepath"
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
	if exec.Command("sh", "-c", "echo 4003 >/proc/self/loginuid").Run() != nil {
		t.Skip("no process can log in here")
	}
	dir := shareInstalled(t, "persons.sh")
	sh(t, `cp "$2/persons.yaml" "$1/etc/fenced/fenced.yaml"; printf "$3" >"$1/usr/lib/sysusers.d/people.conf"`,
		filepath.Join(dir, "tree"), absolute(t, "testdata"), people)

	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok nobody knows who is root, or the daemon", "ok sudo makes no second person",
		"ok two people are two persons", "ok who is hidden counts as nobody",
	}, lines(said), "%s%s", complained, console)
}
