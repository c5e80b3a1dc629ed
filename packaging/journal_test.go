package packaging_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInstalledDaemonInTheJournal: `journalctl -p warning -u fenced` shows what is wrong,
// the fields find everything, and a journald that takes nothing holds up no decision: the
// watchdog of the unit would end the daemon.
func TestInstalledDaemonInTheJournal(t *testing.T) {
	dir := shareInstalled(t, "journal.sh")
	need(t, "journalctl", "systemd")
	sh(t, `mkdir "$1/fenced.service.d" && printf '[Service]\nWatchdogSec=20s\n' >"$1/fenced.service.d/soon.conf"`, dir+"/"+unitDir)
	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok what is wrong has a priority", "ok what people do is found by its field",
		"ok a journald that hangs holds up nothing", "ok it is all there when journald goes on",
	}, lines(said), "%s%s", complained, console)
}
