package packaging_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
)

// TestQuadletReloads: systemctl reload of the container asks the daemon in it, by the names that container and program have.
func TestQuadletReloads(t *testing.T) {
	unit := readFile(t, "image/fenced.container")
	m := regexp.MustCompile(`(?m)^ExecReload=/usr/bin/podman exec (\S+) (\S+) --reload$`).FindStringSubmatch(unit)
	require.NotNil(t, m)
	require.Contains(t, unit, "\nContainerName="+m[1]+"\n")
	require.Contains(t, readFile(t, "image/build.sh"), `"$root`+m[2]+`" ./cmd/fenced`)
}

// TestQuadletFeedsTheWatchdog: podman does not pass the interval of systemd's watchdog on, so the unit says it twice. The times
// are those of the package.
func TestQuadletFeedsTheWatchdog(t *testing.T) {
	unit, packaged := readFile(t, "image/fenced.container"), readFile(t, "systemd/fenced.service")
	watchdog, stop := unitTime(t, unit, `WatchdogSec=(\S+)`), unitTime(t, unit, `TimeoutStopSec=(\S+)`)
	assert.Equal(t, watchdog, unitTime(t, unit, `Environment=WATCHDOG_USEC=(\d+)`, "us"), "the daemon sends pings for another watchdog")
	assert.Equal(t, unitTime(t, packaged, `WatchdogSec=(\S+)`), watchdog)
	assert.Equal(t, unitTime(t, packaged, `TimeoutStopSec=(\S+)`), stop)
	killed := unitTime(t, unit, `PodmanArgs=--stop-timeout=(\d+)`, "s")
	assert.Less(t, killed, stop, "systemd kills podman before podman kills the container")
	assert.GreaterOrEqual(t, killed, stop-10*time.Second, "podman leaves the daemon less time than the unit says")
}

// unitTime is the time that the one line of the unit says; without a unit of its own it has the given one.
func unitTime(t *testing.T, unit, line string, in ...string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`(?m)^`+line+`$`).FindAllStringSubmatch(unit, -1)
	require.Len(t, m, 1, line)
	text := m[0][1]
	if len(in) > 0 {
		text += in[0]
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// TestQuadletIsUnderstood: what podman itself makes of it is a unit whose daemon notifies systemd.
func TestQuadletIsUnderstood(t *testing.T) {
	asroot.Need(t, "change the root to another Debian")
	tree := strings.TrimPrefix(newerTree(t), treeOf)
	generated := output(t, "unshare", "--mount", "sh", "-c", `mount --bind "$2" "$1/mnt" && QUADLET_UNIT_DIRS=/mnt exec chroot "$1" /usr/libexec/podman/quadlet --dryrun 2>&1`,
		"sh", tree, absolute(t, "image"))
	require.Contains(t, generated, "\n---fenced.service---\n")
	assert.Regexp(t, `(?m)^Type=notify$`, generated)
	start := regexp.MustCompile(`(?m)^ExecStart=.*$`).FindString(generated)
	for _, word := range []string{"--name fenced", "--sdnotify=container", "--env WATCHDOG_USEC=30000000", "--stop-timeout=55", "--read-only", "--user 65532:65532", "--cap-drop all"} {
		assert.Contains(t, start, " "+word+" ")
	}
}
