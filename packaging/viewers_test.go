package packaging_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestViewersReadNoPassword: who may look connects to the socket and reads nothing that the
// daemon does, takes no connection of an admin, and an installation whose viewers were in the daemon's own group goes on.
func TestViewersReadNoPassword(t *testing.T) {
	need(t, "python3", "python3")
	dir := shareInstalled(t, "viewers.sh")
	sh(t, `rpm -qp --qf '%{PREIN}' "$2" >"$1/../prein"; printf 'u vera 4005\nm vera fenced-view\nu nina 4006\nu otto 4007\n' >"$1/usr/lib/sysusers.d/people.conf"`, filepath.Join(dir, "tree"), rpmFile(t))
	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok who is in fenced-view looks, and reads no password", "ok others cannot connect", "ok viewers take no seat of an admin",
		"ok an installation from before goes on, and is told what to change", "ok it is as it should be once that is done",
		"ok without the group root looks, and the daemon goes on",
	}, lines(said), "%s%s", complained, console)
}
