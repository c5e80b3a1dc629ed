// Package packaging_test builds the RPM and looks at it from outside, as the
// administrator's tools do: rpm, sh, systemd-analyze.
package packaging_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// scratch holds the one RPM that all tests look at.
var scratch string

// revisionBefore is the revision of the source before the tests build anything of it.
var revisionBefore string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fenced-packaging")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	text, err := exec.Command("./revision.sh").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	revisionBefore = string(text)
	pace.Together(6) // those that take long boot a systemd, and mostly wait
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// need skips the test where a tool of Debian is missing, but never in CI.
func need(t *testing.T, tool, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err == nil {
		return
	}
	require.NotEqual(t, "true", os.Getenv("CI"), "%s is missing; install the package %s", tool, pkg)
	t.Skipf("%s is missing; install the package %s", tool, pkg)
}

// output runs a tool and returns what it prints; whatever it says on stderr is
// an error, because systemd-analyze exits 0 on unknown keys.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err := cmd.Run()
	require.NoError(t, err, "%s: %s%s", name, stdout.String(), stderr.String())
	require.Empty(t, stderr.String(), name)
	return stdout.String()
}

// payload is how the RPMs of the tests are compressed: in a tenth of the time that the shipped ones take.
const payload = "w1.zstdio"

// buildRPM builds the RPM and the source RPM of this tree.
func buildRPM(version, out string, env ...string) error {
	cmd := exec.Command("./rpm/build.sh", version, out)
	cmd.Env = append(append(os.Environ(), "RPM_PAYLOAD="+payload), env...)
	text, err := cmd.CombinedOutput()
	return wrapOutput(err, text)
}

// wrapOutput adds what a program said to its error.
func wrapOutput(err error, text []byte) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// binaryRPM finds the one RPM in a directory that is no source.
func binaryRPM(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "fenced-*-1*.rpm"))
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".src.rpm") })
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("one binary RPM was expected, not %q", files)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// builtRPM is the RPM of this tree, built once; or the one that FENCED_RPM names.
var builtRPM = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("FENCED_RPM"); path != "" {
		return filepath.Abs(path)
	}
	dist := filepath.Join(scratch, "dist")
	if err := buildRPM(versions().this, dist); err != nil {
		return "", err
	}
	return binaryRPM(dist)
})

// versions are that of all packages here, which is the project's unless FENCED_RPM has another, and one after it.
var versions = sync.OnceValue(func() (v struct{ this, newer string }) {
	command := exec.Command("./project.sh", "version")
	if path := os.Getenv("FENCED_RPM"); path != "" {
		command = exec.Command("rpm", "-qp", "--qf", "%{VERSION}", path)
	}
	text, err := command.Output()
	if err != nil {
		panic(fmt.Sprintf("%v: %v", command.Args, err))
	}
	v.this = strings.TrimSpace(string(text))
	v.newer = "1" + v.this
	return v
})

// builtNewVersion is a directory with the RPM of the newer version, built once.
var builtNewVersion = sync.OnceValues(func() (string, error) {
	dist := filepath.Join(scratch, "newer")
	bill, err := billOfMaterials()
	if err != nil {
		return "", err
	}
	return dist, buildRPM(versions().newer, dist, bill)
})

// billOfMaterials lets a script take that of the RPM: another version of the same source contains the same.
func billOfMaterials() (string, error) {
	root, err := unpacked()
	return "SBOM=" + filepath.Join(root, shareDir, "sbom.cdx.json"), err
}

func rpmFile(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building an RPM is not short")
	}
	need(t, "rpmbuild", "rpm")
	path := must.Do(builtRPM())(t)
	return path
}

var unpacked = sync.OnceValues(func() (string, error) {
	path, err := builtRPM()
	if err != nil {
		return "", err
	}
	root := filepath.Join(scratch, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-c", `rpm2archive -n - <"$1" | tar -xf - -C "$2"`, "sh", path, root)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", path, err, text)
	}
	return root, nil
})

// rpmRoot is a directory with the RPM's files.
func rpmRoot(t *testing.T) string {
	t.Helper()
	rpmFile(t)
	need(t, "rpm2archive", "rpm2cpio")
	root := must.Do(unpacked())(t)
	return root
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// TestRevisionOfTheSource: the commit, whether the tree is as committed, and where there is no git, that nobody knows.
func TestRevisionOfTheSource(t *testing.T) {
	need(t, "git", "git")
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "packaging"), 0o700))
	script := filepath.Join(dir, "packaging/revision.sh")
	require.NoError(t, os.WriteFile(script, must.Do(os.ReadFile("revision.sh"))(t), 0o700))
	require.Equal(t, "unknown\n", output(t, script))
	output(t, "sh", "-ec", `cd "$1"; git init --quiet; git add .; git -c user.name=a -c user.email=a@example.com commit --quiet -m first`, "sh", dir)
	commit := output(t, "git", "-C", dir, "rev-parse", "HEAD")
	require.Equal(t, commit, output(t, script))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "unknown-to-git"), nil, 0o600))
	require.Equal(t, commit, output(t, script))
	require.NoError(t, os.WriteFile(script, append(must.Do(os.ReadFile(script))(t), "# changed\n"...), 0o700))
	require.Equal(t, strings.TrimSpace(commit)+"-modified\n", output(t, script))
}
