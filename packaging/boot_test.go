package packaging_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

// driver is the unit whose script acts as the administrator.
const driver = `[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/share/script.sh
TimeoutStartSec=900
StandardOutput=file:/share/said
StandardError=file:/share/complained
`

// administered is what administrator.sh says.
var administered = []string{
	"ok checked as the user of the daemon", "ok enabled and ready", "ok it knows the addresses of its host, in its sandbox", "ok paused by the unit", "ok resumed by the unit", "ok back after kill -9",
	"ok back after a hang", "ok paused from the start", "ok reloaded", "ok a bad file fails the reload, and changes nothing", "ok down with a bad configuration",
}

// TestInstalledUnitsUnderSystemd lets a real systemd run what the package installs, as
// it is: the daemon in its sandbox becomes ready and knows its host, people pause it by a unit, it comes
// back when it is killed or hangs, and a bad configuration keeps it down. // I13, I23
func TestInstalledUnitsUnderSystemd(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "administrator.sh")
	sh(t, `mkdir "$1/fenced.service.d" && printf '[Service]\nWatchdogSec=4s\n' >"$1/fenced.service.d/soon.conf"`, filepath.Join(dir, unitDir))

	requireBoots(t, dir, "administrator.service", nil, administered...)
}

// unitDir is where units are, below what boot is given.
const unitDir = "tree/usr/lib/systemd/system"

// shareInstalled makes a directory for boot: what the package installs, with a
// configuration, and administrator.service, which runs a script of testdata.
func shareInstalled(t *testing.T, script string) string {
	t.Helper()
	needBoot(t)
	dir := shareScript(t, script)
	sh(t, `umask 022; cp -R --preserve=mode,links "$2/." "$1/tree/"; cp "$3/fenced.yaml" "$3/nowhere.kubeconfig" "$1/tree/etc/fenced/"`,
		dir, rpmRoot(t), absolute(t, "testdata"))
	return dir
}

// shareScript makes a directory for boot with administrator.service and the script that it
// runs, and nothing that is installed.
func shareScript(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, `umask 022; chmod 755 "$1"; mkdir -p "$1/$4"; cp "$2/$3" "$1/script.sh"; cp "$2/kit.sh" "$1/"; printf "older=%s newer=%s\n" "$5" "$6" >"$1/versions"`, dir, absolute(t, "testdata"), script, unitDir, versions().this, versions().newer)
	require.NoError(t, os.WriteFile(filepath.Join(dir, unitDir, "administrator.service"), []byte(driver), 0o644))
	return dir
}

// needBoot skips the test where no systemd of its own can be booted.
func needBoot(t *testing.T) {
	t.Helper()
	asroot.Need(t, "boot a systemd of its own")
	need(t, "unshare", "util-linux")
	need(t, "ip", "iproute2")
	need(t, "systemd-sysusers", "systemd")
}

// absolute is the path for a program that is run elsewhere.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path = must.Do(filepath.Abs(path))(t)
	return path
}

// read gives a file that systemd wrote for the unit; one that never started has none.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return string(text)
}

// What boot takes into the environment of boot.sh.
const (
	hostNet = "BOOT_NET=host"
	treeOf  = "BOOT_TREE="
)

// boot runs a systemd until a unit of dir has ended, and gives what the boot said.
func boot(t *testing.T, dir, unit string, env ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, absolute(t, "testdata/boot.sh"), dir, unit)
	cmd.Env = append(os.Environ(), env...)
	// The first process of the namespace ends with this one, and all others with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	t.Cleanup(func() { removeCgroup(t, dir) })
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// requireBoots boots until a unit has ended well, and its script has said what it found.
func requireBoots(t *testing.T, dir, unit string, env []string, want ...string) {
	t.Helper()
	console, err := boot(t, dir, unit, env...)
	requireSaid(t, dir, console, err, want)
}

func requireSaid(t *testing.T, dir, console string, err error, want []string) {
	t.Helper()
	said, complained := read(t, dir, "said"), read(t, dir, "complained")+read(t, dir, "unit-said")
	require.NoError(t, err, "%s%s%s", said, complained, console)
	assert.Equal(t, want, lines(said), "%s%s", complained, console)
}

// removeCgroup removes what boot.sh made outside of its namespaces.
func removeCgroup(t *testing.T, dir string) {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	sh(t, `find "$1" -depth -type d -exec rmdir {} + && if mountpoint -q "$2/v2"; then umount "$2/v2"; fi`, strings.TrimSpace(string(name)), dir)
}

// newerRelease has systemd 257, as RHEL 10 has. Every other test here boots the systemd of
// this machine, in CI 252 as in RHEL 9.
const newerRelease = "trixie"

// newerTree is what boot takes to boot that release.
func newerTree(t *testing.T) string {
	t.Helper()
	need(t, "debootstrap", "debootstrap")
	tree, err := exec.Command("testdata/tree.sh", newerRelease).Output()
	require.NoError(t, err, "make a tree of Debian %s", newerRelease)
	return treeOf + strings.TrimSpace(string(tree))
}

// TestInstalledUnitsUnderNewerSystemd: the newer systemd has nothing to say against the
// units, and runs the installed daemon as the older one does.
func TestInstalledUnitsUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	tree := newerTree(t)
	dir := shareInstalled(t, "newer.sh")
	sh(t, `cp testdata/administrator.sh "$1/"; mkdir "$1/$2/fenced.service.d" && printf '[Service]\nWatchdogSec=4s\n' >"$1/$2/fenced.service.d/soon.conf"`, dir, unitDir)
	require.NoError(t, os.Chmod(filepath.Join(dir, "administrator.sh"), 0o755))
	understood := []string{"ok it is systemd 257", "ok the units are understood", "ok the units are confined"}
	requireBoots(t, dir, "administrator.service", []string{tree}, append(understood, administered...)...)
}

// TestLifeOfThePackageUnderNewerSystemd lets rpm install, upgrade and erase the package where nothing is dpkg's. The upgrade in mid-run and the downgrade are those of TestLifeOfThePackage.
func TestLifeOfThePackageUnderNewerSystemd(t *testing.T) {
	t.Parallel()
	needBoot(t)
	tree := newerTree(t)
	dir := shareScript(t, "rpm.sh")
	older := rpmFile(t)
	newer := must.Do(builtNewVersion())(t)
	sh(t, `umask 022; cp "$2" "$3"/*.rpm testdata/fenced.yaml testdata/nowhere.kubeconfig "$1/"; rm "$1"/*.src.rpm; cp -R "$4" "$1/old"`, dir, older, newer, oldPackages(t))
	requireBoots(t, dir, "administrator.service", []string{tree},
		"ok it is systemd 257 and rpm 4.20", "ok installed: nothing enabled, nothing started", "ok started", "ok upgraded: restarted, and the configuration kept",
		"ok erased: stopped, state and changed configuration kept",
		"ok upgraded from the old layout: restarted, the configuration kept, and nothing left behind")
}

// builtOld is a directory with an RPM and a Debian package that have their files where packages had them once.
var builtOld = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "old")
	root, err := unpacked()
	if err != nil {
		return "", err
	}
	text, err := exec.Command("testdata/old.sh", root, out).CombinedOutput()
	return out, wrapOutput(err, text)
})

func oldPackages(t *testing.T) string {
	t.Helper()
	rpmRoot(t)
	return must.Do(builtOld())(t)
}

// TestInstalledDaemonInTheJournal: `journalctl -p warning -u fenced` shows what is wrong,
// the fields find everything, and a journald that takes nothing holds up no decision: the
// watchdog of the unit would end the daemon.
func TestInstalledDaemonInTheJournal(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "journal.sh")
	need(t, "journalctl", "systemd")
	sh(t, `mkdir "$1/fenced.service.d" && printf '[Service]\nWatchdogSec=20s\n' >"$1/fenced.service.d/soon.conf"`, dir+"/"+unitDir)
	requireBoots(t, dir, "administrator.service", nil,
		"ok what is wrong has a priority", "ok what people do is found by its field",
		"ok a journald that hangs holds up nothing", "ok it is all there when journald goes on")
}

// TestDaemonsUserLeavesLinksForRoot lets a real systemd and a real root work in the
// directory of the daemon's user, who left links, pipes and other directories there:
// nothing that is root's changes its owner, its mode or a byte, each refusal says what
// it found, and what is asked for in good faith works. // I23
func TestDaemonsUserLeavesLinksForRoot(t *testing.T) {
	t.Parallel()
	need(t, "runuser", "util-linux")
	dir := shareInstalled(t, "links.sh")
	// One pause begins with the boot, before there is a daemon or its directory. What the units say goes where the script
	// can read it: no journal runs there.
	sh(t, `umask 022; cd "$1"; rm -r ../../../../var/lib/fenced; mkdir fenced-pause.service.d sysinit.target.wants
		printf '[Unit]\nBefore=sysinit.target\n[Service]\nStandardError=append:/share/unit-said\n' >fenced-pause.service.d/early.conf
		ln -s ../fenced-pause.service sysinit.target.wants/`, filepath.Join(dir, unitDir))

	requireBoots(t, dir, "administrator.service", nil,
		"ok paused early in the boot, before the daemon ever ran",
		"ok resumed",
		"ok paused while the daemon hangs",
		"ok pause: a link to nothing", "ok pause: a link to root's file", "ok pause: a pipe", "ok pause: a hard link",
		"ok import: a link to nothing", "ok import: a link to root's file", "ok import: a hard link", "ok import: a pipe", "ok import: another directory",
		"ok export: a link to root's file",
		"ok imported, and the daemon runs with it",
		"ok exported")
}

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
	asroot.CanLogIn(t)
	dir := shareInstalled(t, "persons.sh")
	sh(t, `cp "$2/persons.yaml" "$1/etc/fenced/fenced.yaml"; printf "$3" >"$1/usr/lib/sysusers.d/people.conf"`,
		filepath.Join(dir, "tree"), absolute(t, "testdata"), people)

	requireBoots(t, dir, "administrator.service", env,
		"ok nobody knows who is root, or the daemon", "ok a service is nobody", "ok sudo makes no second person", "ok two people are two persons",
		"ok the daemon sees no process of others, and who does is nobody", "ok the daemon cannot lead systemd to another file",
		"ok who is not told of counts as nobody: it hangs", "ok who is not told of counts as nobody: it is stopped", "ok it comes and goes with the daemon")
}

// replaced is what of the unit is another for the test: the program, and how its
// end is taken. Every line of the sandbox stays.
const replaced = `[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=exec
ExecStart=
ExecStart=/share/sandbox
Restart=no
WatchdogSec=0
StandardOutput=file:/share/said
StandardError=file:/share/complained
`

// TestUnitLetsEveryDriverWork runs a program in the sandbox of the shipped unit,
// under a real systemd, that switches hosts through each kind of driver:
// ipmitool, Python with its own HTTP, and agents that talk on a terminal.
func TestUnitLetsEveryDriverWork(t *testing.T) {
	t.Parallel()
	needBoot(t)
	need(t, "ipmitool", "ipmitool")
	need(t, "ipmi_sim", "openipmi")
	need(t, "fence_ipmilan", "fence-agents")
	dir := t.TempDir()
	sh(t, `umask 022; chmod 755 "$1"; cd "$1"; mkdir -p tree/usr/lib/{sysusers.d,systemd/system/fenced.service.d}
		cp "$2/fenced.sysusers" tree/usr/lib/sysusers.d/fenced.conf
		cp "$2/fenced.service" tree/usr/lib/systemd/system/`, dir, absolute(t, "systemd"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tree/usr/lib/systemd/system/fenced.service.d/sandbox.conf"), []byte(replaced), 0o644))
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", filepath.Join(dir, "sandbox"), "./sandbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)

	requireBoots(t, dir, "fenced.service", nil,
		"ok confined", "ok simulators", "ok ipmi", "ok redfish", "ok bmclib ipmitool", "ok bmclib gofish",
		"ok fence_ipmilan", "ok fence_redfish", "ok fence_alom on a terminal",
		"ok a hung agent is ended", "ok nothing is left behind")
}

// TestSocketActivation: with fenced.socket under a real systemd a call starts the daemon,
// no call fails while the daemon restarts, who may use the socket stays the same, and both
// units can be stopped for good.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	dir := shareInstalled(t, "socket.sh")
	requireBoots(t, dir, "administrator.service", nil,
		"ok disabled as installed", "ok a call starts the daemon", "ok a call is answered after kill -9", "ok no call fails while the daemon restarts",
		"ok the daemon cannot lead systemd to another file",
		"ok the group and nobody else has the socket", "ok another path is told", "ok stopped means stopped",
		"ok without the unit the daemon makes its socket again")
}

// TestSocketsOfSystemdAreInDirectoriesOfRoot: systemd, as root, gives a socket to its user and group by the path, and follows links.
// Whoever owned the directory could have any file.
func TestSocketsOfSystemdAreInDirectoriesOfRoot(t *testing.T) {
	units := must.Do(filepath.Glob("systemd/*.socket"))(t)
	require.Len(t, units, 2)
	for _, name := range units {
		unit := readFile(t, name)
		listens := regexp.MustCompile(`(?m)^Listen\w+=(.*)/[^/]+$`).FindAllStringSubmatch(unit, -1)
		require.Len(t, listens, 1, name)
		if dir := listens[0][1]; dir != "/run" {
			require.Contains(t, unit, "\nExecStartPre=/usr/bin/install -d -o root -g root -m 00755 "+dir+"\n", name)
			require.Regexp(t, `(?m)^ExecStartPre=\+/bin/sh -c 'systemctl --quiet is-active `+filepath.Base(name)+` \|\| install -d -o fenced \S+ \S+ -m 2755 `+dir+` `,
				readFile(t, "systemd/fenced.service"), "the daemon's unit must leave it so")
		}
	}
}

// TestSocketUnitIsWhereFencectlLooks: a socket elsewhere would be answered and never called.
func TestSocketUnitIsWhereFencectlLooks(t *testing.T) {
	unit := must.Do(os.ReadFile("systemd/fenced.socket"))(t)
	require.Regexp(t, `(?m)^ListenStream=`+config.Default().Control.Socket+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketGroup=`+config.ViewGroup+`$`, string(unit))
	require.Regexp(t, `(?m)^SocketMode=0660$`, string(unit))
}

// TestViewersReadNoPassword: who may look connects to the socket and reads nothing that the
// daemon does, takes no connection of an admin, and an installation whose viewers were in the daemon's own group goes on.
func TestViewersReadNoPassword(t *testing.T) {
	t.Parallel()
	need(t, "python3", "python3")
	dir := shareInstalled(t, "viewers.sh")
	sh(t, `rpm -qp --qf '%{PREIN}' "$2" >"$1/../prein"; printf 'u vera 4005\nm vera fenced-view\nu nina 4006\nu otto 4007\n' >"$1/usr/lib/sysusers.d/people.conf"`, filepath.Join(dir, "tree"), rpmFile(t))
	requireBoots(t, dir, "administrator.service", nil,
		"ok who is in fenced-view looks, and reads no password", "ok others cannot connect", "ok the examples tell elsewhere what happens", "ok viewers take no seat of an admin",
		"ok an installation from before goes on, and is told what to change", "ok it is as it should be once that is done",
		"ok without the group root looks, and the daemon goes on")
}

// TestPauseUnits runs what the two units run, below another directory: the file that
// pauses everything comes, keeps its reason, and goes. A link of that name pauses as it
// is. // I23
func TestPauseUnits(t *testing.T) {
	dir := t.TempDir()
	start := func(unit string) {
		t.Helper()
		text := must.Do(os.ReadFile("systemd/" + unit))(t)
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
	text := must.Do(os.ReadFile(file))(t)
	require.Equal(t, "systemctl start fenced-pause\n", string(text))

	require.NoError(t, os.WriteFile(file, []byte("ticket 4711\n"), 0o644))
	start("fenced-pause.service")
	text = must.Do(os.ReadFile(file))(t)
	require.Equal(t, "ticket 4711\n", string(text))

	start("fenced-resume.service")
	require.NoFileExists(t, file)
	start("fenced-resume.service")

	require.NoError(t, os.Symlink(other, file))
	start("fenced-pause.service")
	require.NoFileExists(t, other)
	start("fenced-resume.service")
	_, err := os.Lstat(file)
	require.ErrorIs(t, err, os.ErrNotExist)
}
