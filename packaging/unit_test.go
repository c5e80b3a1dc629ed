package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/login"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

// What the units expose at most, in tenths, as systemd-analyze's --threshold takes it. It is higher where the host's own BMC is
// opened. What remains of the daemon is its work: the network, and users to be known by name (docs/adr/0026).
const (
	maxExposure      = "12"
	maxExposureIPMI  = "14"
	maxExposureLogin = "7"
)

// TestUnitIsUnderstood: systemd only warns of keys and values it does not
// know, and then runs the daemon without what they were for. The same with the example drop-ins, which take effect.
func TestUnitIsUnderstood(t *testing.T) {
	need(t, "systemd-analyze", "systemd")
	root := t.TempDir()
	sh(t, `cp -a "$2/." "$1" && cd /usr/lib/systemd/system && cp ./*.target ./*.slice ./*.mount "$1/usr/lib/systemd/system" &&
		mkdir -p "$1/usr/bin" && cp -L /bin/sh /bin/rm /usr/bin/install "$1/usr/bin" && { [ -e "$1/bin" ] || ln -s usr/bin "$1/bin"; }`, root, rpmRoot(t)) // what any host has
	output(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "fenced.service", "fenced.socket", "fenced-login.service", "fenced-login.socket", "fenced-pause.service", "fenced-resume.service")

	dir := filepath.Join(root, "usr/lib/systemd/system")
	sh(t, `mkdir "$1/fenced.service.d" && cp "$2"/*.conf "$1/fenced.service.d/" && sed -i 's,^#\(LoadCredentialEncrypted=\),\1,' "$1/fenced.service.d/fenced-credentials.conf"`,
		dir, filepath.Join(root, shareDir, "systemd"))
	output(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "fenced.service")
	sh(t, `cp "$2"/*.service "$1"`, dir, filepath.Join(root, shareDir, "systemd"))
	output(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "fenced-webhook.service", "fenced-mail.service")
	t.Setenv("SYSTEMD_UNIT_PATH", dir+":")
	require.Contains(t, output(t, "systemd-analyze", "security", "--offline=true", "--threshold="+maxExposure, "--no-pager", filepath.Join(dir, "fenced.service")),
		"Service defines IP address allow list with non-localhost entries")
}

func TestUnitsAreConfined(t *testing.T) {
	need(t, "systemd-analyze", "systemd")
	for unit, exposed := range map[string]string{"fenced.service": maxExposure, "fenced-login.service": maxExposureLogin} {
		output(t, "systemd-analyze", "security", "--offline=true", "--threshold="+exposed, "--no-pager", "systemd/"+unit)
	}
}

// TestLoginUnitIsWhereTheDaemonAsks: at another path, or of another kind, it would never be asked.
func TestLoginUnitIsWhereTheDaemonAsks(t *testing.T) {
	unit := must.Do(os.ReadFile("systemd/fenced-login.socket"))(t)
	require.Regexp(t, `(?m)^ListenSequentialPacket=`+login.Socket+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketMode=0600$`, string(unit), "nobody but the daemon asks")
}

// TestUnitLetsDriversRunPrograms: ipmitool and fence agents are programs of other
// packages, and talk to devices by themselves.
func TestUnitLetsDriversRunPrograms(t *testing.T) {
	unit := must.Do(os.ReadFile("systemd/fenced.service"))(t)
	require.NotRegexp(t, `(?m)^(NoExecPaths|ExecPaths|RootDirectory|RootImage|InaccessiblePaths|PrivateNetwork)=`, string(unit))
	require.NotRegexp(t, `(?m)^Environment=.*\bPATH=`, string(unit), "agents get a PATH of their own")
	require.NotRegexp(t, `(?m)^KillMode=(process|none)`, string(unit), "an agent of a daemon that died would switch beside the next one's")
}

// TestUnitLeavesNoCore: a dump of the daemon would hold every password. // I25
func TestUnitLeavesNoCore(t *testing.T) {
	unit := must.Do(os.ReadFile("systemd/fenced.service"))(t)
	require.Regexp(t, `(?m)^LimitCORE=0$`, string(unit))
}

// TestUnitIsStartedAgainForEver: what a start needs may be away for longer than any number of tries: the quorum of an etcd on hosts that
// boot for minutes, a disk that is full. A host that a run has left off comes back only if the daemon does.
func TestUnitIsStartedAgainForEver(t *testing.T) {
	for _, file := range []string{"systemd/fenced.service", "image/fenced.container"} {
		unit := string(must.Do(os.ReadFile(file))(t))
		require.Regexp(t, `(?m)^StartLimitIntervalSec=0$`, unit, file)
		require.Regexp(t, `(?m)^Restart=always$`, unit, file)
		require.Regexp(t, `(?m)^RestartPreventExitStatus=78$`, unit, "what no other start can cure: %s", file)
	}
}

// TestUnitBoundsTheMemory: what others write fills the memory of the daemon, and not that of its host. The document
// says which figures the bounds come from.
func TestUnitBoundsTheMemory(t *testing.T) {
	unit := must.Do(os.ReadFile("systemd/fenced.service"))(t)
	sizing := must.Do(os.ReadFile("../docs/sizing.md"))(t)
	bounds := regexp.MustCompile(`(?m)^Memory(High|Max)=\d+G$`).FindAllString(string(unit), -1)
	require.Len(t, bounds, 2)
	for _, bound := range bounds {
		require.Contains(t, string(sizing), "`"+bound+"`")
	}
}

// TestLocalIPMIDropIn: it opens the one device and nothing else.
func TestLocalIPMIDropIn(t *testing.T) {
	need(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	sh(t, `cp systemd/fenced.service "$1" && mkdir "$1/fenced.service.d" && cp local-ipmi/fenced-local-ipmi.conf "$1/fenced.service.d/"`, dir)
	t.Setenv("SYSTEMD_UNIT_PATH", dir+":")
	report := output(t, "systemd-analyze", "security", "--offline=true", "--threshold="+maxExposureIPMI, "--no-pager", filepath.Join(dir, "fenced.service"))
	// ProtectClock= adds the first.
	require.Contains(t, report, "Service has a device ACL with some special devices: char-rtc:r /dev/ipmi0:rw ")
	require.Regexp(t, `PrivateDevices= +Service potentially has access`, report)

	rule := must.Do(os.ReadFile("local-ipmi/60-fenced-ipmi.rules"))(t)
	require.Regexp(t, `(?m)^KERNEL=="ipmi0", SUBSYSTEM=="ipmi", GROUP="fenced", MODE="0660"$`, string(rule))
}

// TestSysusersAndTmpfiles: the files that rpm does not run on every host say
// the same as the package does.
func TestSysusersAndTmpfiles(t *testing.T) {
	need(t, "systemd-sysusers", "systemd")
	need(t, "systemd-tmpfiles", "systemd")
	root := t.TempDir()
	for _, dir := range []string{"etc", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	sh(t, `cp systemd/fenced.sysusers "$1/usr/lib/sysusers.d/fenced.conf" && cp systemd/fenced.tmpfiles "$1/usr/lib/tmpfiles.d/fenced.conf"`, root)
	text, err := exec.Command("systemd-sysusers", "--root="+root, "--dry-run").CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "fenced")
	asroot.Need(t, "create the user and its directories")
	text, err = exec.Command("systemd-sysusers", "--root="+root).CombinedOutput()
	require.NoError(t, err, "%s", text)
	text, err = exec.Command("systemd-tmpfiles", "--root="+root, "--create", "--prefix=/etc").CombinedOutput()
	require.NoError(t, err, "%s", text)
	info := must.Do(os.Stat(filepath.Join(root, "etc/fenced/credentials")))(t)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
}

// TestInstallKeepsTheConfiguration: `make install` again never writes over
// what an administrator wrote, and the unit follows the prefix.
func TestInstallKeepsTheConfiguration(t *testing.T) {
	tree, dest := t.TempDir(), t.TempDir()
	sh(t, `cd .. && cp -r --parents packaging/install.sh packaging/systemd packaging/local-ipmi configs docs README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md LICENSE THIRD_PARTY_NOTICES "$1" && cd "$1" && mkdir bin &&
		printf '#!/bin/sh\necho "$2"\n' >bin/fencectl && chmod 755 bin/fencectl && cp bin/fencectl bin/fenced && cp bin/fencectl bin/fenced-login && echo {} >bin/sbom.cdx.json`, tree)
	install := filepath.Join(tree, "packaging/install.sh")
	sh(t, `"$1" "$2" /opt/fenced && echo mine >"$2/etc/fenced/fenced.yaml" && "$1" "$2" /opt/fenced`, install, dest)

	mine := must.Do(os.ReadFile(filepath.Join(dest, "etc/fenced/fenced.yaml")))(t)
	require.Equal(t, "mine\n", string(mine))
	require.FileExists(t, filepath.Join(dest, "etc/fenced/fenced.yaml.new"))
	unit := must.Do(os.ReadFile(filepath.Join(dest, "opt/fenced/lib/systemd/system/fenced.service")))(t)
	require.Contains(t, string(unit), "\nExecStart=/opt/fenced/libexec/fenced/fenced\n")
	unit = must.Do(os.ReadFile(filepath.Join(dest, "opt/fenced/lib/systemd/system/fenced-login.service")))(t)
	require.Contains(t, string(unit), "\nExecStart=/opt/fenced/libexec/fenced/fenced-login\n")
	info := must.Do(os.Stat(filepath.Join(dest, "etc/fenced/credentials")))(t)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
	completion := must.Do(os.ReadFile(filepath.Join(dest, "opt/fenced/share/zsh/site-functions/_fencectl")))(t)
	require.Equal(t, "zsh\n", string(completion))
}
