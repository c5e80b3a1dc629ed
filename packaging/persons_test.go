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
// systemd, the daemon knows the login of whoever connects, though it sees no process of
// others. Two persons are then two people, whichever users they have become. When the
// login cannot be told, such an order is refused, and no other waits. // I26
func TestInstalledDaemonKnowsWhoUsedSudo(t *testing.T) {
	t.Parallel()
	knowsPersons(t)
}

// TestInstalledDaemonKnowsWhoUsedSudoUnderNewerSystemd is the same by a newer systemd. // I26
func TestInstalledDaemonKnowsWhoUsedSudoUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	knowsPersons(t, newerTree(t))
}

func knowsPersons(t *testing.T, env ...string) {
	t.Helper()
	needBoot(t)
	if exec.Command("sh", "-c", "echo 4003 >/proc/self/loginuid").Run() != nil {
		t.Skip("no process can log in here")
	}
	dir := shareInstalled(t, "persons.sh")
	sh(t, `cp "$2/persons.yaml" "$1/etc/fenced/fenced.yaml"; printf "$3" >"$1/usr/lib/sysusers.d/people.conf"`,
		filepath.Join(dir, "tree"), absolute(t, "testdata"), people)

	console, err := boot(t, dir, "administrator.service", env...)
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok nobody knows who is root, or the daemon", "ok a service is nobody", "ok sudo makes no second person", "ok two people are two persons",
		"ok the daemon sees no process of others, and who does is nobody", "ok the daemon cannot lead systemd to another file",
		"ok who is not told of counts as nobody: it hangs", "ok who is not told of counts as nobody: it is stopped", "ok it comes and goes with the daemon",
	}, lines(said), "%s%s", complained, console)
}
