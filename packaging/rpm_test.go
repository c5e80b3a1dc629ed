package packaging_test

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/dice"
)

// packaged is every path of the RPM but the pages of docs: mode, owner, group, flags (c config, n
// noreplace, d documentation, l licence). /usr/bin/fenced is a link and
// /usr/sbin/fenced does not exist: the SELinux policy of RHEL and Fedora gives
// regular files of these names to another program.
const packaged = `
drwxr-x--- root fenced - /etc/fenced
drwxr-x--- root fenced - /etc/fenced/conf.d
drwxr-x--- root fenced - /etc/fenced/credentials
-rw-r----- root fenced cn /etc/fenced/fenced.yaml
drwxr-x--- root fenced - /etc/fenced/hosts.d
drwxr-x--- root fenced - /etc/fenced/policies.d
-rwxr-xr-x root root - /usr/bin/fencectl
lrwxrwxrwx root root - /usr/bin/fenced
-rw-r--r-- root root - /usr/lib/systemd/system-preset/90-fenced.preset
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-login.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-login.socket
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-pause.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced-resume.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced.service
-rw-r--r-- root root - /usr/lib/systemd/system/fenced.socket
-rw-r--r-- root root - /usr/lib/sysusers.d/fenced.conf
-rw-r--r-- root root - /usr/lib/tmpfiles.d/fenced.conf
drwxr-xr-x root root - /usr/libexec/fenced
-rwxr-xr-x root root - /usr/libexec/fenced/fenced
-rwxr-xr-x root root - /usr/libexec/fenced/fenced-login
-rw-r--r-- root root - /usr/share/bash-completion/completions/fencectl
drwxr-xr-x root root - /usr/share/doc/fenced
-rw-r--r-- root root d /usr/share/doc/fenced/CHANGELOG.md
-rw-r--r-- root root d /usr/share/doc/fenced/CONTRIBUTING.md
lrwxrwxrwx root root d /usr/share/doc/fenced/LICENSE
-rw-r--r-- root root d /usr/share/doc/fenced/README.md
-rw-r--r-- root root d /usr/share/doc/fenced/SECURITY.md
drwxr-xr-x root root - /usr/share/doc/fenced/docs
drwxr-xr-x root root - /usr/share/doc/fenced/docs/adr
drwxr-xr-x root root - /usr/share/doc/fenced/docs/quickstart
drwxr-xr-x root root - /usr/share/doc/fenced/docs/systems
drwxr-xr-x root root - /usr/share/doc/fenced/examples
drwxr-xr-x root root - /usr/share/doc/fenced/examples/crds
-rw-r--r-- root root d /usr/share/doc/fenced/examples/crds/fenced.io_fencedremediations.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/crds/fenced.io_fencedremediationtemplates.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/crds/rbac.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/fenced-policy.schema.json
-rw-r--r-- root root d /usr/share/doc/fenced/examples/fenced.yaml
drwxr-xr-x root root - /usr/share/doc/fenced/examples/grafana
-rw-r--r-- root root d /usr/share/doc/fenced/examples/grafana/fenced.json
drwxr-xr-x root root - /usr/share/doc/fenced/examples/hosts.d
-rw-r--r-- root root d /usr/share/doc/fenced/examples/hosts.d/example.yaml
drwxr-xr-x root root - /usr/share/doc/fenced/examples/kubernetes
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/evaluate.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/observe.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/protect-nodes.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/release-pods.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/respond.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/kubernetes/templates.yaml
drwxr-xr-x root root - /usr/share/doc/fenced/examples/local-ipmi
-rw-r--r-- root root d /usr/share/doc/fenced/examples/local-ipmi/60-fenced-ipmi.rules
-rw-r--r-- root root d /usr/share/doc/fenced/examples/local-ipmi/fenced-local-ipmi.conf
drwxr-xr-x root root - /usr/share/doc/fenced/examples/policies.d
-rw-r--r-- root root d /usr/share/doc/fenced/examples/policies.d/example.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/policies.d/fencepolicy.yaml
drwxr-xr-x root root - /usr/share/doc/fenced/examples/prometheus
-rw-r--r-- root root d /usr/share/doc/fenced/examples/prometheus/fenced.rules.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/rbac-medik8s.yaml
-rw-r--r-- root root d /usr/share/doc/fenced/examples/rbac.yaml
drwxr-xr-x root root - /usr/share/doc/fenced/examples/systemd
-rw-r--r-- root root d /usr/share/doc/fenced/examples/systemd/fenced-credentials.conf
-rw-r--r-- root root d /usr/share/doc/fenced/examples/systemd/fenced-networks.conf
-rw-r--r-- root root d /usr/share/doc/fenced/sbom.cdx.json
-rw-r--r-- root root - /usr/share/fish/vendor_completions.d/fencectl.fish
drwxr-xr-x root root - /usr/share/licenses/fenced
-rw-r--r-- root root l /usr/share/licenses/fenced/LICENSE
-rw-r--r-- root root d /usr/share/man/man5/fenced-policy.5
-rw-r--r-- root root d /usr/share/man/man5/fenced.yaml.5
-rw-r--r-- root root d /usr/share/man/man8/fencectl.8
-rw-r--r-- root root d /usr/share/man/man8/fenced.8
-rw-r--r-- root root - /usr/share/zsh/site-functions/_fencectl
drwx------ fenced fenced - /var/lib/fenced
`

func TestRPMHoldsExactlyTheseFiles(t *testing.T) {
	got := output(t, "rpm", "-qp", "--qf", `[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} -%{FILEFLAGS:fflags} %{FILENAMES}\n]`, rpmFile(t))
	got = regexp.MustCompile(` -([a-z]+) `).ReplaceAllString(got, " $1 ")
	var pages, others []string
	for _, line := range lines(got) {
		if page, ok := strings.CutPrefix(line, pageLine); ok {
			pages = append(pages, "../docs/"+page)
		} else {
			others = append(others, line)
		}
	}
	require.Equal(t, lines(packaged), others)
	require.ElementsMatch(t, docPages(t), pages)
}

// pageLine begins the line of a page of docs.
const pageLine = "-rw-r--r-- root root d /usr/share/doc/fenced/docs/"

// docPages are the pages of docs and their picture, by path from here: all of them are shipped.
func docPages(t *testing.T) []string {
	t.Helper()
	all := []string{"../docs/rooms.svg"}
	for _, folder := range []string{".", "adr", "systems", "quickstart"} {
		pages, err := filepath.Glob(filepath.Join("../docs", folder, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, pages, folder)
		all = append(all, pages...)
	}
	return all
}

// TestRPMNeedsNoDriver: what a few hosts' drivers run is offered, never
// installed with the daemon against the administrator's will.
func TestRPMNeedsNoDriver(t *testing.T) {
	rpm := rpmFile(t)
	require.Equal(t, "ipmitool\n", output(t, "rpm", "-qp", "--recommends", rpm))
	require.Equal(t, "fence-agents-all\n", output(t, "rpm", "-qp", "--suggests", rpm))
	require.NotRegexp(t, "ipmitool|fence-agents", output(t, "rpm", "-qp", "--requires", rpm))
}

func TestRPMScriptlets(t *testing.T) {
	rpm := rpmFile(t)
	scripts := map[string][]string{ // what each must do; see the spec for why
		"PREIN":  {"systemd-sysusers", "useradd -r"},
		"POSTIN": {"--no-reload preset fenced.service fenced.socket", "daemon-reload"},
		"PREUN":  {"disable --now fenced.socket fenced.service", "stop fenced-login.socket fenced-login.service"},
		"POSTUN": {"try-restart fenced.service"},
	}
	for tag, wants := range scripts {
		script := output(t, "rpm", "-qp", "--qf", "%{"+tag+"}", rpm)
		for _, want := range wants {
			require.Contains(t, script, want, tag)
		}
		require.NotRegexp(t, `systemctl (--now )?(enable|start|restart)`, script, "%s starts what no administrator started", tag)
		file := filepath.Join(t.TempDir(), tag)
		require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
		output(t, "sh", "-n", file)
	}
}

func TestPackagedProgramsRun(t *testing.T) {
	root := rpmRoot(t)
	require.Equal(t, "fenced 0.1.0\n", output(t, filepath.Join(root, "usr/libexec/fenced/fenced"), "--version"))
	require.Contains(t, output(t, filepath.Join(root, "usr/bin/fencectl"), "version"), "0.1.0")
	link, err := os.Readlink(filepath.Join(root, "usr/bin/fenced"))
	require.NoError(t, err)
	require.Equal(t, "../libexec/fenced/fenced", link)
	bash := filepath.Join(root, "usr/share/bash-completion/completions/fencectl")
	output(t, "bash", "-n", bash)
	data, err := os.ReadFile(bash)
	require.NoError(t, err)
	require.Contains(t, string(data), "complete -o default")
}

// maxDaemon is what the daemon may weigh, in bytes. With the types of all API groups of Kubernetes it weighs 43 MB, without the build tag grpcnotrace
// still more; docs/performance.md says what it consists of.
const maxDaemon = 31 << 20

func TestDaemonIsNoLargerThanItsParts(t *testing.T) {
	info, err := os.Stat(filepath.Join(rpmRoot(t), "usr/libexec/fenced/fenced"))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(maxDaemon))
}

// TestSourceRPMIsRebuilt: whoever has the source RPM alone gets the same files out of it, without a network and without modules of Go
// but those in it. The version is not the one that the spec of this tree says.
func TestSourceRPMIsRebuilt(t *testing.T) {
	dice.OnlyInSoak(t) // it costs another build
	asroot.Need(t, "take the network away")
	need(t, "unshare", "util-linux")
	need(t, "rpmbuild", "rpm")
	dist, err := builtNewVersion()
	require.NoError(t, err)
	source := filepath.Join(dist, "fenced-"+newVersion+"-1.src.rpm")
	top := t.TempDir()
	sh(t, `GOMODCACHE=$2/modules unshare --net rpmbuild --quiet --define "_topdir $2" --define "_binary_payload w0.xzdio" --rebuild "$1"`, source, top)
	rebuilt, err := filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm"))
	require.NoError(t, err)
	require.Len(t, rebuilt, 1)
	// Not the whole of it: rpmbuild notes in a binary RPM the source RPM that it has built beside.
	what := func(rpm string) string {
		return output(t, "rpm", "-qp", "--scripts", "--requires", "--provides", "--qf", `%{NEVRA} [%{PAYLOADDIGEST}]\n`, rpm)
	}
	require.Equal(t, what(filepath.Join(dist, filepath.Base(rebuilt[0]))), what(rebuilt[0]))
}

// TestRPMForARM builds for another kind of machine than this one. It costs a build, so only CI does it.
func TestRPMForARM(t *testing.T) {
	if os.Getenv("CI") != "true" {
		t.Skip("another build; set CI=true to run it")
	}
	built := rpmFile(t)
	t.Setenv("RPM_TARGET", "aarch64")
	dist := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, buildRPM(dist))
	arm, err := binaryRPM(dist)
	require.NoError(t, err)
	require.Equal(t, "aarch64", output(t, "rpm", "-qp", "--qf", "%{ARCH}", arm))
	require.Equal(t, output(t, "rpm", "-qpl", built), output(t, "rpm", "-qpl", arm))
	root := t.TempDir()
	sh(t, `rpm2archive - <"$1" | tar -xzf - -C "$2"`, arm, root)
	for _, program := range []string{"usr/libexec/fenced/fenced", "usr/libexec/fenced/fenced-login", "usr/bin/fencectl"} {
		f, err := elf.Open(filepath.Join(root, program))
		require.NoError(t, err)
		require.Equal(t, elf.EM_AARCH64, f.Machine, program)
		require.NoError(t, f.Close())
	}
	text, err := os.ReadFile(filepath.Join(root, docDir, "sbom.cdx.json"))
	require.NoError(t, err)
	require.Regexp(t, `"go:GOARCH",\s*"value": "arm64"`, string(text))
}

func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	text, err := exec.Command("bash", append([]string{"-c", "umask 077; " + script, "sh"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func sum(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(data))
}
