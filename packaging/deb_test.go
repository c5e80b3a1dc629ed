package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func buildDeb(out string) (string, error) {
	cmd := exec.Command("deb/build.sh", "0.1.0", out)
	cmd.Env = append(os.Environ(), "DEB_COMPRESS=none", "DEB_TARGET=amd64")
	text, err := cmd.CombinedOutput()
	return filepath.Join(out, "fenced_0.1.0_amd64.deb"), wrapOutput(err, text)
}

// builtDeb is the Debian package of this tree, built once.
var builtDeb = sync.OnceValues(func() (string, error) { return buildDeb(filepath.Join(scratch, "deb")) })

func debFile(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building a package is not short")
	}
	need(t, "dpkg-deb", "dpkg")
	path, err := builtDeb()
	require.NoError(t, err)
	return path
}

// TestDebHoldsWhatTheRPMHolds: one script installs both.
func TestDebHoldsWhatTheRPMHolds(t *testing.T) {
	deb := debFile(t)
	var got, packagedPages []string
	for _, line := range lines(output(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -tf -`, "sh", deb)) {
		if path := strings.TrimSuffix(strings.TrimPrefix(line, "."), "/"); path != "" {
			got = append(got, path)
		}
	}
	for _, page := range docPages(t) {
		packagedPages = append(packagedPages, "/usr/share/doc/fenced/"+strings.TrimPrefix(page, "../"))
	}
	for _, line := range append(lines(packaged), packagedPages...) {
		path := line[strings.LastIndex(line, " ")+1:]
		assert.Contains(t, got, path)
		got = slices.DeleteFunc(got, func(p string) bool { return p == path || strings.HasPrefix(path, p+"/") })
	}
	assert.Equal(t, []string{"/usr/share/doc/fenced/copyright"}, got, "files that the RPM has not")
	assert.Equal(t, "/etc/fenced/fenced.yaml\n", output(t, "dpkg-deb", "--info", deb, "conffiles"))
	assert.Regexp(t, `(?m)^Depends: systemd \(>= 252\)$`, output(t, "dpkg-deb", "--info", deb, "control"))
}

func TestDebIsReproducible(t *testing.T) {
	first := debFile(t)
	t.Setenv("TZ", "Asia/Kathmandu")
	second, err := buildDeb(filepath.Join(t.TempDir(), "deb"))
	require.NoError(t, err)
	require.Equal(t, sum(t, first), sum(t, second))
}

func TestDebScriptsStartNothing(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		script, err := os.ReadFile("deb/" + name)
		require.NoError(t, err)
		require.NotRegexp(t, regexp.MustCompile(`systemctl (--now )?(enable|start|restart)`), string(script), "%s starts what no administrator started", name)
		output(t, "sh", "-n", "deb/"+name)
	}
}

// TestLifeOfTheDeb lets dpkg install, upgrade, remove and purge it under a real systemd.
func TestLifeOfTheDeb(t *testing.T) {
	needBoot(t)
	dir := shareScript(t, "deb.sh")
	sh(t, `umask 022; cp "$2" "$1/fenced.deb"; cp testdata/fenced.yaml testdata/nowhere.kubeconfig "$1/"`, dir, debFile(t))
	console, err := boot(t, dir, "administrator.service")
	said, complained := read(t, dir, "said"), read(t, dir, "complained")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, []string{
		"ok installed, and nothing is started", "ok started", "ok again: restarted, and the configuration kept", "ok removed: stopped, state and configuration kept", "ok purged: state kept",
	}, lines(said), "%s%s", complained, console)
}
