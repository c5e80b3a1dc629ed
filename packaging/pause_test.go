package packaging_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
)

// TestPauseUnits runs what the two units run, below another directory: the file that
// pauses everything comes, keeps its reason, and goes. A link of that name pauses as it
// is. // I23
func TestPauseUnits(t *testing.T) {
	dir := t.TempDir()
	start := func(unit string) {
		t.Helper()
		text, err := os.ReadFile("systemd/" + unit)
		require.NoError(t, err)
		lines := regexp.MustCompile(`(?m)^ExecStart=(-?)(.*)$`).FindAllStringSubmatch(string(text), -1)
		require.Len(t, lines, 2)
		require.Regexp(t, `(?m)^User=fenced$`, string(text), "the directory is the daemon's")
		for _, line := range lines {
			command := strings.ReplaceAll(line[2], "/var/lib", dir)
			if line[1] == "-" { // may fail
				command += " || :"
			}
			sh(t, command)
		}
	}
	file, other := filepath.Join(dir, "fenced/paused"), filepath.Join(dir, "other")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700)) // systemd does
	require.Equal(t, config.Default().Control.PauseFile, "/var/lib/fenced/paused", "the units know only that path")

	start("fenced-pause.service")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "systemctl start fenced-pause\n", string(text))

	require.NoError(t, os.WriteFile(file, []byte("ticket 4711\n"), 0o644))
	start("fenced-pause.service")
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "ticket 4711\n", string(text))

	start("fenced-resume.service")
	require.NoFileExists(t, file)
	start("fenced-resume.service")

	require.NoError(t, os.Symlink(other, file))
	start("fenced-pause.service")
	require.NoFileExists(t, other)
	start("fenced-resume.service")
	_, err = os.Lstat(file)
	require.ErrorIs(t, err, os.ErrNotExist)
}
