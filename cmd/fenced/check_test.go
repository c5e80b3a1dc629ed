package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmclib"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/fenceagent"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

// A port that another program has is a warning: the daemon fences without metrics. One that
// the running daemon has is what a restart finds free.
func TestCheckPort(t *testing.T) {
	assert.Empty(t, checkPort(""))
	assert.Empty(t, checkPort("127.0.0.1:0"))
	other := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer other.Close()
	go func() { _ = http.Serve(other, http.NotFoundHandler()) }() // until it is closed
	said := checkPort(other.Addr().String())
	assert.Contains(t, said, "address already in use; the daemon would run without metrics and try again, and fencing goes on")

	d := &fenced{metrics: newMetrics("1")}
	own := httptest.NewServer(d.pages())
	defer own.Close()
	assert.Empty(t, checkPort(strings.TrimPrefix(own.URL, "http://")))
}

const someKubeconfig = `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://192.0.2.1"}}],
users: [{name: u, user: {token: t}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`

// Root checks, and another user runs: what that user may not read keeps the daemon down, or
// a host from being fenced.
func TestCheckAsTheServicesUser(t *testing.T) {
	asroot.Need(t, "try as another user")
	const nobody = 65534
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	for name, text := range map[string]string{
		"fenced.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\nstate: {path: state/state.db}\nmetrics: {listen: \"\"}\n",
		"kc":          someKubeconfig, "hosts.d/a.yaml": "hosts: [{node: n, bmc: {address: 192.0.2.1, username: u, passwordFile: ../password}}]\n", "password": "s3cret",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path(name)), 0o755))
		require.NoError(t, os.WriteFile(path(name), []byte(text), 0o600))
	}
	require.NoError(t, os.Mkdir(path("state"), 0o700))
	require.NoError(t, os.Chown(path("state"), nobody, nobody))

	warnings, err := config.Check(path("fenced.yaml"), checkRestart)
	require.Error(t, err)
	for _, name := range []string{"fenced.yaml", "hosts.d/a.yaml", "kc"} {
		assert.ErrorContains(t, err, path(name)+": the daemon runs as user nobody, who may not read it; run: chgrp ")
	}
	require.Len(t, warnings, 1, "%q", warnings)
	assert.Contains(t, warnings[0], path("password")+": the daemon runs as user nobody, who may not read it")
	_, err = os.ReadFile(path("kc"))
	require.NoError(t, err, "the process is still root's")

	for _, name := range []string{"fenced.yaml", "hosts.d/a.yaml", "kc", "password"} {
		require.NoError(t, os.Chown(path(name), 0, nobody))
		require.NoError(t, os.Chmod(path(name), 0o640))
	}
	warnings = must.Do(config.Check(path("fenced.yaml"), checkRestart))(t)
	require.Empty(t, warnings)

	// The key that a kubeconfig names belongs to it.
	require.NoError(t, os.WriteFile(path("kc"), []byte(strings.Replace(someKubeconfig, "token: t", "tokenFile: token", 1)), 0o640))
	require.NoError(t, os.WriteFile(path("token"), []byte("t"), 0o600))
	_, err = config.Check(path("fenced.yaml"), checkRestart)
	require.ErrorContains(t, err, "the daemon runs as user nobody: ")
	require.ErrorContains(t, err, path("token")+": permission denied")
	require.NoError(t, os.Chmod(path("token"), 0o604))

	require.NoError(t, os.Chmod(path("hosts.d"), 0o700))
	_, err = config.Check(path("fenced.yaml"), checkRestart)
	require.ErrorContains(t, err, path("hosts.d")+": the daemon runs as user nobody")
}

// Each driver that hosts.d knows leads to its own code; one that it does not
// know is refused and never taken for another.
func TestOpener(t *testing.T) {
	open := opener(time.Second)
	at := func(address string) bmc.Endpoint {
		return must.Do(bmc.ParseEndpoint(address))(t)
	}
	for _, c := range []struct {
		device bmc.Device
		want   bmc.Power
	}{
		{bmc.Device{Driver: bmc.DriverIPMI, Endpoint: at("ipmi://127.0.0.1")}, &ipmi.Client{}},
		{bmc.Device{Driver: bmc.DriverRedfish, Endpoint: at("redfish://127.0.0.1")}, &redfish.Client{}},
		{bmc.Device{Driver: bmc.DriverBMCLib, Endpoint: at("redfish://127.0.0.1"), Provider: "gofish"}, &bmclib.Client{}},
	} {
		p, err := open(c.device)
		require.NoError(t, err, c.device.Driver)
		require.IsType(t, c.want, p)
		require.NoError(t, p.Close(t.Context()))
	}

	// Whether it is installed or not, it is asked for as a fence agent.
	p, err := open(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_no_such_agent"})
	require.ErrorContains(t, err, "the fence agent fence_no_such_agent is not installed")
	require.Nil(t, p)
	if _, err := os.Stat("/usr/sbin/fence_ipmilan"); err == nil {
		p := must.Do(open(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_ipmilan"}))(t)
		require.IsType(t, &fenceagent.Client{}, p)
	}

	for _, driver := range []bmc.Driver{"", "auto", "ilo"} {
		_, err := open(bmc.Device{Driver: driver, Endpoint: at("ipmi://127.0.0.1")})
		require.Equal(t, bmc.KindUnsupported, bmc.KindOf(err), driver)
	}
}

func TestHosts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte("s3cret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long"), []byte("a-password-of-28-bytes-is-it"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(`hosts:
- {node: b, cluster: prod, bmc: {address: 192.0.2.1, username: u, passwordFile: pw}}
- node: a
  cluster: prod
  levels:
  - devices: [{address: 192.0.2.2, username: u, passwordFile: long}]
  - devices: [{driver: fence-agent, agent: fence_apc, address: pdu, parameters: {plug: 1}, passwordFile: pw, username: u}]
- {node: a, cluster: lab, bmc: {address: 192.0.2.3, username: u, passwordFile: gone}}
`), 0o600))
	c := config.Default()
	c.Hosts, c.Clusters = dir, []config.Cluster{{Name: "prod"}, {Name: "lab"}}
	var h hosts.Inventory = newInventory(config.ReadHosts(c))

	require.ElementsMatch(t, []string{"a", "b"}, h.List("prod"))
	require.Equal(t, []string{"a"}, h.List("lab"))
	require.Empty(t, h.List("other"))

	require.Empty(t, h.Unread())
	require.Empty(t, h.Refused("prod", "a"))
	_, found, err := h.Find(t.Context(), "other", "a")
	require.NoError(t, err)
	require.False(t, found)

	host, found, err := h.Find(t.Context(), "prod", "a")
	require.NoError(t, err)
	require.True(t, found)
	refusal, ok := errors.AsType[*reason.Refusal](host.Levels[0].Devices[0].Unusable)
	require.True(t, ok, "what the engine can say why")
	require.Equal(t, reason.SecretMissing, refusal.Reason)
	require.Contains(t, refusal.Message, "it has 28 bytes, and IPMI 2.0 takes 20")
	second := host.Levels[1].Devices[0]
	require.NoError(t, second.Unusable, "one device that cannot be used leaves the others")
	require.Equal(t, "s3cret", second.Password.Reveal())

	host, _, err = h.Find(t.Context(), "lab", "a")
	require.NoError(t, err)
	require.ErrorContains(t, host.Levels[0].Devices[0].Unusable, "no such file")
}

// What is indexed of an entry is the entry itself: it holds no password, also after it was read with them, and a pin or an enrolment of one
// is valid for the other. // I8, I25
func TestBareHosts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte("s3cret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(`hosts:
- node: a
  levels:
  - devices: [{driver: fence-agent, agent: fence_apc_snmp, address: pdu, parameters: {plug: 1}, secretParameters: {community: pw}}]
  - devices: [{address: 192.0.2.2, username: u, passwordFile: pw, kgFile: pw}]
`), 0o600))
	c := config.Default()
	c.Hosts, c.Clusters = dir, []config.Cluster{{Name: "prod"}}
	h := newInventory(config.ReadHosts(c))
	require.Nil(t, h.Bare("prod", "b"))
	full, found, err := h.Find(t.Context(), "prod", "a")
	require.NoError(t, err)
	require.True(t, found)
	bare := h.Bare("prod", "a")
	require.Len(t, bare.Levels, 2)
	require.Equal(t, "s3cret", full.Levels[0].Devices[0].SecretParameters["community"].Reveal())
	require.Equal(t, "s3cret", full.Levels[1].Devices[0].BMCKey.Reveal())
	for i := range bare.Levels {
		d := bare.Levels[i].Devices[0]
		require.Equal(t, full.Levels[i].Devices[0].Fingerprint(), d.Fingerprint())
		require.Equal(t, bmc.Secret{}, d.Password)
		require.Equal(t, bmc.Secret{}, d.BMCKey)
		require.Equal(t, bmc.Secret{}, d.SecretParameters["community"])
	}
}

// TestEveryDriverIsOpened: what an entry of hosts.d may name, the daemon can open.
func TestEveryDriverIsOpened(t *testing.T) {
	for _, d := range bmc.Drivers() {
		require.NotNil(t, drivers[d.Name], d.Name)
	}
	require.Len(t, drivers, len(bmc.Drivers()))
}

// Whatever the sweep knows reaches the socket: no field of the wire type is
// forgotten.
func TestEveryFieldOfABMCIsTold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := sweep.Result{
		Cluster: "prod", Node: "n-1", Machine: "ns/m-1", Host: "prod/n-1", Source: "hosts.d", Level: 1, Device: 1, Address: "ipmi://bmc", Driver: bmc.DriverIPMI,
		Assurance: bmc.AssuranceStrict, State: sweep.StateOK, Dependable: true, Reason: "BMCBusy", Problem: "busy", User: "fence", PasswordFrom: "file /etc/p", Power: bmc.On, Raw: "01",
		Identity: guard.IdentityMatches, UUID: "4c4c", Serial: "S1", Latency: time.Second, LatencyP95: 2 * time.Second, Checked: at, LastGood: at,
		Next: at, Failures: 1, Audited: at, AuditProblem: "no session", DescribeProblem: "slow",
		Description: bmc.Description{Manufacturer: "Dell", Model: "R650", Firmware: "7", MACs: []string{"m"}, RestorePolicy: "previous",
			CertificateUntil: at, PowerEvents: []bmc.PowerEvent{{At: at, Text: "off"}}},
		Findings: []bmc.Finding{{Code: bmc.FindingClock, Message: "late"}},
		Refused:  []reason.Refusal{{Reason: reason.Frozen, Message: "it lied"}},
	}
	b := wireBMC(&r)
	v := reflect.ValueOf(b)
	for i := range v.NumField() {
		assert.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	assert.Equal(t, 2, b.Level, "people count from 1")
	assert.Equal(t, "Frozen", b.Refused[0].Code)

	unusable := wireBMC(&sweep.Result{Cluster: "prod", Node: "n-2", State: sweep.StateFailed, Reason: reason.InvalidHost, Problem: "no scheme"})
	assert.Zero(t, unusable.Level)
	text := must.Do(json.Marshal(unusable))(t)
	assert.NotContains(t, string(text), "0001-01-01", "a time that is not known is left out")
}

// A person sees what the confirmation stands on.
func TestEnrolledText(t *testing.T) {
	d := hosts.EnrolledDevice{Device: "ipmi://192.0.2.1:623", Driver: bmc.DriverIPMI, Power: bmc.On, UUID: "4c4c4544", Assurance: bmc.AssuranceStrict}
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance strict) reads On and says it is 4c4c4544", enrolledText(d))
	d.UUID, d.Assurance = "", bmc.AssuranceLower
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance lower) reads On and reports no identity: your confirmation replaces it", enrolledText(d))
	d.System, d.Serial, d.MACs = "/redfish/v1/Systems/system", "SRV1234", []string{"b8:ca:3a:00:00:01", "b8:ca:3a:00:00:02"}
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance lower) reads On and reports no identity: your confirmation replaces it, "+
		"system /redfish/v1/Systems/system, serial SRV1234, MAC addresses b8:ca:3a:00:00:01 b8:ca:3a:00:00:02. The enrolment ends if one of these changes", enrolledText(d))
}

// nobody is a user of every host, here the one whose the state is.
const nobody = 65534

// rootsDir is a directory that everybody may pass, where only root may write.
func rootsDir(t *testing.T) string {
	t.Helper()
	asroot.Need(t, "become somebody else")
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return dir
}

// TestFirstOwner: whoever could put something in the way to the state is whom fenced
// becomes, and root only where nobody else could.
func TestFirstOwner(t *testing.T) {
	base := rootsDir(t)
	mkdir := func(name string, mode os.FileMode, uid int) {
		require.NoError(t, os.Mkdir(filepath.Join(base, name), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(base, name), mode))
		require.NoError(t, os.Chown(filepath.Join(base, name), uid, 0))
	}
	link := func(name, target string, uid int) {
		require.NoError(t, os.Symlink(target, filepath.Join(base, name)))
		require.NoError(t, os.Lchown(filepath.Join(base, name), uid, uid))
	}
	mkdir("root", 0o775, 0)
	mkdir("theirs", 0o700, nobody)
	mkdir("theirs/root", 0o755, 0)
	mkdir("open", 0o777, 0)
	mkdir("group", 0o775, 0)
	require.NoError(t, os.Chown(filepath.Join(base, "group"), 0, nobody))
	mkdir("sticky", 0o777|os.ModeSticky, 0)
	mkdir("sticky/root", 0o755, 0)
	link("sticky/planted", "/etc", nobody)
	link("to-theirs", "theirs/root", 0)
	link("to-root", filepath.Join(base, "root")+"/../sticky/root/.", 0)
	link("loop", "loop", 0)
	require.NoError(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))

	for dir, want := range map[string]uint32{
		"root": 0, "root/": 0, "to-root": 0, "sticky/root": 0, "root/../sticky": 0,
		"theirs": nobody, "theirs/root": nobody, "theirs/absent": nobody, "to-theirs": nobody, "to-theirs/../..": nobody, "sticky/planted": nobody,
	} {
		got, err := firstOwner(base + "/" + dir)
		require.NoError(t, err, dir)
		assert.Equal(t, want, got, dir)
	}
	for dir, want := range map[string]string{
		"open": "others may write in it", "open/absent": "others may write in it", "group": "others may write in it",
		"loop": "too many levels", "absent": "no such file", "file": "not a directory", "file/..": "not a directory",
	} {
		_, err := firstOwner(base + "/" + dir)
		require.ErrorContains(t, err, want, dir)
	}
	t.Chdir(filepath.Join(base, "root"))
	got := must.Do(firstOwner("../theirs/"))(t)
	assert.EqualValues(t, nobody, got)
}

// moved runs fenced as root over the state of base/state, and gives what it said.
func moved(base string, args ...string) (string, error) {
	out, err := exec.Command("fenced", append([]string{"--config", filepath.Join(base, "fenced.yaml")}, args...)...).CombinedOutput()
	return string(out), err
}

// theirState is a directory of nobody's, with a configuration beside it and an export
// that only root may read.
func theirState(t *testing.T) (base, path string) {
	t.Helper()
	base = rootsDir(t)
	path = filepath.Join(base, "state/state.db")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(base, "fenced.yaml"), []byte("clusters: [{name: prod, kubeconfig: kc}]\nstate: {path: "+path+"}\n"), 0o600))
	script := must.Do(txtar.ParseFile("testdata/script/move.txtar"))(t)
	for _, f := range script.Files {
		if f.Name == "pin.ndjson" {
			require.NoError(t, os.WriteFile(filepath.Join(base, "export"), f.Data, 0o600))
		}
	}
	t.Setenv("TMPDIR", base) // where only root may write
	require.NoError(t, os.Chown(filepath.Dir(path), nobody, nobody))
	return base, path
}

func ownedBy(t *testing.T, path string, uid uint32, mode os.FileMode) {
	t.Helper()
	fi := must.Do(os.Lstat(path))(t)
	is, ok := fi.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.Equal(t, uid, is.Uid, path)
	require.Equal(t, mode, fi.Mode(), path)
}

// TestMoveAsRootIsDoneAsTheOwner: what an import makes is the daemon's, what an export
// makes is root's.
func TestMoveAsRootIsDoneAsTheOwner(t *testing.T) {
	base, path := theirState(t)
	out, err := moved(base, "--import", filepath.Join(base, "export"))
	require.NoError(t, err, "%s", out)
	ownedBy(t, path, nobody, 0o600)
	again := filepath.Join(base, "again")
	out, err = moved(base, "--export", again)
	require.NoError(t, err, "%s", out)
	ownedBy(t, again, 0, 0o600)
}

// TestMoveAsRootTouchesNothingElse: links that the daemon's user left change nothing
// of root's.
func TestMoveAsRootTouchesNothingElse(t *testing.T) {
	base, path := theirState(t)
	roots := filepath.Join(base, "roots")
	for name, plant := range map[string]func() error{
		"symbolic link":    func() error { return os.Symlink(roots, path) },
		"belongs to uid 0": func() error { return os.Link(roots, path) },
	} {
		require.NoError(t, os.WriteFile(roots, nil, 0o644)) // what is empty is laid out as a state
		require.NoError(t, plant())
		out, err := moved(base, "--import", filepath.Join(base, "export"))
		require.Error(t, err, name)
		require.Contains(t, out, name)
		again := filepath.Join(base, "again")
		out, err = moved(base, "--export", again)
		require.Error(t, err, name)
		require.Contains(t, out, name)
		require.Contains(t, out, "not a whole export; remove it")
		require.NoError(t, os.Remove(again))
		ownedBy(t, roots, 0, 0o644)
		text := must.Do(os.ReadFile(roots))(t)
		require.Empty(t, text)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Remove(roots))
	}
}
