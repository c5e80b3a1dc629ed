package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// drills is a world in which one trouble after the other is made and mended. After each, the first screen of an operator
// says what is wrong and which command comes next; between them it is green. The Kubernetes API is a stand-in.
type drills struct {
	*scene.Scene
	ahead  atomic.Int64 // of the clock of the API server, in nanoseconds
	away   atomic.Bool  // the API server is, for fenced
	daemon *scene.Daemon
}

func setDrills(t *testing.T, o scene.Options) *drills {
	t.Helper()
	d := &drills{}
	clock := func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }
	before := func(_ context.Context, q apiserver.Request) error {
		if d.away.Load() && q.User == rig.FencedUser {
			return apierrors.NewServiceUnavailable("no endpoints available")
		}
		return nil
	}
	o.StandIn = func(audit io.Writer) (rig.API, error) {
		return apiserver.Start(apiserver.Options{Audit: audit, Clock: clock, Before: before})
	}
	o.Set = append(o.Set, "sweep.interval=10s", "power.readTimeout=2s", "guards.viewMaxAge=20s")
	d.Scene = set(t, o)
	return d
}

// masks are what differs from one screen to the next.
var masks = []struct {
	what *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`/\S*fenced-scene-\d+(/fenced-rig-\d+)?`), "DIR"},
	{regexp.MustCompile(`kubeconfig-\d+`), "kubeconfig"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "BMC"},
	{regexp.MustCompile(`(read power state of BMC): [^(.;]+ exceeded`), "$1: no answer"},
	{regexp.MustCompile(`\b[0-9a-z]{8}-[0-9a-f]{6}\b`), "RUN"},
	{regexp.MustCompile(`(watch|list) \w+:`), "watch KIND:"},
	{regexp.MustCompile(`on host "[^"]+"`), `on host "HOST"`},
	{regexp.MustCompile(`next try (now|in [0-9.hms]+)`), "next try SOON"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m\d*s?|h\d*m?)\b`), "AGE"},
}

// plainScreen is a screen without what differs each time: each sentence and each row of a table on a line of its own. What
// ran on the day is left out.
func plainScreen(screen string) string {
	screen, _, _ = strings.Cut(screen, "\nLAST 24 HOURS\n")
	var lines []string
	for line := range strings.Lines(screen) {
		words := strings.Join(strings.Fields(line), " ")
		switch {
		case words == "":
		case strings.HasPrefix(line, " ") && len(lines) > 0:
			lines[len(lines)-1] += " " + words
		default:
			lines = append(lines, words)
		}
	}
	return masked(strings.Join(lines, "\n"))
}

func masked(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.mask)
	}
	return text
}

// shows waits until `fencectl status` on a terminal of 80 columns is this screen, with this exit status. Every sentence of a
// trouble ends with what comes next.
func (d *drills) shows(t *testing.T, exit int, want string) {
	t.Helper()
	d.showsAt(t, d.Socket(), exit, want)
}

// showsAt is shows of another daemon.
func (d *drills) showsAt(t *testing.T, socket string, exit int, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want = strings.TrimSpace(want)
	var why []string
	for line := range strings.SplitSeq(want, "\n") {
		if sentence, ok := strings.CutPrefix(line, "degraded: "); ok {
			assert.Contains(t, sentence, ". Next: ")
			why = append(why, sentence)
		}
	}
	wanted, before := strings.Join(why, "\n"), "nothing"
	var last scene.Screen
	for last.Exit != exit || plainScreen(last.All) != want {
		select {
		case <-ctx.Done():
			require.Equal(t, want, plainScreen(last.All), "exit status %d, not %d:\n%s", last.Exit, exit, last.All)
			require.Equal(t, exit, last.Exit)
		case <-time.After(300 * time.Millisecond):
		}
		st, err := api.New(socket).Status(ctx) // a process for each question would cost more than the daemon
		sentences := masked(strings.Join(st.Value.Degraded(), "\n"))
		if err != nil || sentences != wanted && sentences == before {
			continue
		}
		if s, err := d.Terminal(ctx, "", "", "status", "--socket", socket); err == nil {
			last, before = s, sentences
		}
	}
	for line := range strings.Lines(last.All) {
		line = strings.TrimRight(line, "\n")
		if strings.Contains(strings.TrimSpace(line), " ") { // a word that is wider is not broken
			assert.LessOrEqual(t, len(line), 80, line)
		}
	}
}

// types runs a command, checks its exit status, and that it says something.
func (d *drills) types(t *testing.T, exit int, says string, args ...string) {
	t.Helper()
	r := fencectl(within(t), t, d.Scene, exit, args...)
	assert.Contains(t, plainScreen(r.Stdout)+"\n"+plainScreen(r.Stderr), says)
}

// reload is `systemctl reload fenced`.
func (d *drills) reload(t *testing.T) {
	t.Helper()
	require.NoError(t, syscall.Kill(d.daemon.PID(), syscall.SIGHUP))
}

// edit writes a file beside fenced.yaml, and reloads.
func (d *drills) edit(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(d.Config()), name), []byte(text), 0o600))
	d.reload(t)
}

func (d *drills) file(t *testing.T, name string) string {
	t.Helper()
	return string(must.Do(os.ReadFile(filepath.Join(filepath.Dir(d.Config()), name)))(t))
}

// Drills of dead hardware: a dead node with a dead BMC, then another one beyond the limit of the check, a host that a person
// says is off, and a BMC that refuses the password. The confirmation is marked for ever, and not taken where a BMC says
// otherwise. // I26
func TestDrillsOfPower(t *testing.T) {
	t.Parallel()
	check := scene.Metal("2s")
	check.MaxUnhealthy = int64(1)
	d := setDrills(t, scene.Options{Checks: []rig.Check{check}, Workers: []scene.Spec{
		{Name: "worker-1", Protocol: scene.IPMI}, {Name: "worker-2", Protocol: scene.Redfish}, {Name: "worker-3", Protocol: scene.Redfish, Metal3: true},
	}})
	d.daemon = must.Do(d.StartDaemon(within(t)))(t)
	const green = `
fenced development: armed
BMCs: 3, 0 not dependable
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 3 0`
	d.shows(t, 0, green)

	dead, other := d.Worker("worker-1"), d.Worker("worker-2")
	require.NoError(t, dead.LoseMains())
	d.shows(t, 2, `
fenced development: armed
degraded: worker-1 in scene is not remediated (MachineHealthCheck openshift-machine-api/workers): BMCUnreachable: host: read power state of BMC: no answer (needed: a usable BMC); since TIME, next try TIME. Next: fencectl bmc test worker-1 --cluster scene shows what its BMC answers; to fence it without the BMC: go there, cut its mains, then run fencectl confirm-off worker-1 --cluster scene --reason WHY
degraded: 1 of 3 BMCs are not dependable. Next: fencectl bmc list
BMCs: 3, 1 not dependable
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 3 1
DEVIATING
CLUSTER NODE VERDICT REASON SINCE BLOCKED BY
scene worker-1 Unhealthy NodeCondition AGE ago BMCUnreachable for AGE, next try SOON`)
	d.types(t, 2, "BMCUnreachable: read power state of BMC: no answer", "bmc", "test", "worker-1", "--cluster", "scene")

	require.NoError(t, other.BMC.SetPower(false))
	d.shows(t, 2, `
fenced development: armed
degraded: check openshift-machine-api/workers in scene allows no remediation (ShortCircuit): 2 of 3 not healthy, at most 1 (1). Next: find the common cause: fencectl plan --cluster scene
degraded: worker-1 in scene is covered by a check, and could not be fenced: BMCUnreachable: read power state of BMC: no answer. Next: fencectl bmc test worker-1 --cluster scene shows what its BMC answers; to fence it without the BMC: go there, cut its mains, then run fencectl confirm-off worker-1 --cluster scene --reason WHY
degraded: 2 targets in scene are not remediated (MachineHealthCheck openshift-machine-api/workers), worker-1 and others: ShortCircuit: limit: 2 of 3 not healthy (needed: at most 1 (1)); since TIME. Next: fencectl explain worker-1 --cluster scene shows every gate
degraded: 1 of 3 BMCs are not dependable. Next: fencectl bmc list
BMCs: 3, 1 not dependable
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 3 2
DEVIATING
CLUSTER NODE VERDICT REASON SINCE BLOCKED BY
scene worker-1 Unhealthy NodeCondition AGE ago ShortCircuit for AGE, until that changes
scene worker-2 Unhealthy NodeCondition AGE ago ShortCircuit for AGE, until that changes`)
	d.types(t, 0, "ShortCircuit", "plan", "--cluster", "scene")
	require.NoError(t, other.BMC.SetPower(true))
	must.Do(d.Cluster.WaitNode(within(t), other.Name, scene.IsReady))(t)
	assert.Empty(t, other.Service.System(0).Commands(), "beyond the limit nobody's power is switched")

	d.types(t, 3, "ConfirmedOffContradicted", "confirm-off", "worker-3", "--cluster", "scene", "--reason", "its mains are cut", "--yes")
	require.Eventually(t, func() bool {
		all := entriesOf(t, filepath.Join(filepath.Dir(d.Config()), "audit.jsonl"), "worker-3")
		return len(all) > 0 && all[0].Reason == "ConfirmedOffContradicted" && all[0].Why == "its mains are cut" && all[0].Actor != ""
	}, patience, 50*time.Millisecond, "who was refused is on record")
	known := fencectl(within(t), t, d.Scene, 0, "confirm-off", "worker-1", "--cluster", "scene", "--reason", "its mains are cut", "--dry-run")
	assert.Contains(t, known.Stdout, "cannot be read")
	assert.Contains(t, known.Stdout, "lease: renewed")
	d.types(t, 0, "worker-1: Held (ConfirmedOff)", "confirm-off", "worker-1", "--cluster", "scene", "--reason", "its mains are cut", "--yes", "--wait")
	d.shows(t, 2, `
fenced development: armed
degraded: run RUN of worker-1 is held: ConfirmedOff; last error at TIME: BMCUnreachable: read power state of BMC: no answer. Next: bring the host back with fencectl unfence worker-1 --cluster scene --reason WHY
degraded: 1 of 3 BMCs are not dependable. Next: fencectl bmc list
BMCs: 3, 1 not dependable
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 2 1
DEVIATING
CLUSTER NODE VERDICT REASON SINCE BLOCKED BY
scene worker-1 Indeterminate UnderRemediation - -
RUNS
RUN CLUSTER NODE STEP ATTEMPT STARTED REASON
RUN scene worker-1 Held 1 AGE ago ConfirmedOff`)
	d.types(t, 0, "worker-1 was deleted by run RUN, Held: ConfirmedOff since TIME", "explain", "worker-1", "--cluster", "scene")
	requireOneDeletion(t, d.Scene, dead)
	held := awaitRun(within(t), t, d.Scene, dead.Name, result(wire.ResultHeld))
	assert.Equal(t, []string{"Human", "its mains are cut"}, []string{held.Proof, held.ConfirmedReason})
	assert.Contains(t, held.ConfirmedBy, "uid")
	require.NoError(t, dead.RestoreMains(false))
	d.types(t, 0, "worker-1: Done after AGE", "unfence", "worker-1", "--cluster", "scene", "--reason", "its mains are back", "--wait")
	requireBack(within(t), t, d.Scene, dead)
	d.shows(t, 0, green)
	assert.Regexp(t, `(?m)^\S+( ago)? +\S+ +scene +worker-1 +Done `, fencectl(within(t), t, d.Scene, 0, "status").Stdout, "of the last 24 hours")

	password := d.file(t, "worker-1.password")
	d.edit(t, "worker-1.password", scene.WrongPassword+"\n")
	require.NoError(t, goBMC(t, dead).Restart()) // without its sessions
	d.shows(t, 2, `
fenced development: armed
degraded: worker-1 in scene is covered by a check, and could not be fenced: BMCAuth: read power state of BMC: wrong password, or no such user. Next: write the password of user fence at ipmi://BMC into DIR/worker-1.password (no reload is needed), then fencectl bmc test worker-1 --cluster scene
degraded: 1 of 3 BMCs are not dependable. Next: fencectl bmc list
BMCs: 3, 1 not dependable
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 3 0`)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(d.Config()), "worker-1.password"), []byte(password), 0o600))
	d.types(t, 0, "worker-1", "bmc", "test", "worker-1", "--cluster", "scene")
	d.shows(t, 0, green)
	untouched(within(t), t, d.Scene, d.Worker("worker-3"))
}

// The policy of the drills, as somebody wrote it who made no slip.
const drillPolicy = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: workers}
spec:
  nodeSelector: {matchLabels: {scene/pool: metal}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`

// Drills of what the daemon stands on: its files, its disk, its clock, its API server, and another installation. The screen
// is green only while every Node that a check covers could be fenced.
func TestDrillsOfTheDaemon(t *testing.T) {
	t.Parallel()
	asroot.Need(t, "give fenced a small disk of its own")
	needDebian(t, "unshare")
	d := setDrills(t, scene.Options{Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Workers: []scene.Spec{
		{Name: "worker-1", Protocol: scene.Redfish}, {Name: "worker-2", Protocol: scene.Redfish},
	}})
	disk := d.launchOnASmallDisk(t)
	const head, clusters = "fenced development: armed\n", `
CLUSTERS
CLUSTER MODE OWNER EPOCH VIEW AGE NODES DEVIATING
scene evaluate yes 1 AGE 2 0`
	green := head + "BMCs: 2, 0 not dependable" + clusters
	trouble := func(why ...string) string {
		return head + "degraded: " + strings.Join(why, "\ndegraded: ") + "\nBMCs: 2, 0 not dependable" + clusters
	}
	const uncovered = "no check covers any Node of cluster scene: fenced fences nothing there by itself. Next: see which checks it knows: fencectl check-config --cluster scene"

	// Nothing is covered, or what is covered could not be fenced.
	d.shows(t, 2, trouble(uncovered))
	d.edit(t, "policies.d/workers.yaml", drillPolicy)
	d.shows(t, 0, green)
	hosts := d.file(t, "hosts.d/hosts.yaml")
	d.edit(t, "hosts.d/hosts.yaml", "hosts: []\n")
	d.shows(t, 2, head+"degraded: 2 Nodes in scene are covered by checks, and could not be fenced, worker-1 among them: NoHost: neither hosts.d nor a BareMetalHost names its BMC. "+
		"Next: give the host a BareMetalHost, or an entry in hosts.d; fencectl explain worker-1 --cluster scene shows what was looked for"+clusters)
	d.types(t, 2, "NoHost", "nodes", "--cluster", "scene")
	d.edit(t, "hosts.d/hosts.yaml", hosts)
	d.shows(t, 0, green)

	// A slip in a policy.
	d.edit(t, "policies.d/workers.yaml", strings.Replace(drillPolicy, "pool: metal", "pool: mettal", 1))
	d.shows(t, 2, trouble("check workers in scene selects nothing, so it protects no target. Next: fencectl check-config workers --cluster scene", uncovered))
	d.types(t, 2, "FencePolicy workers SelectsNothing the selector matches nothing in this cluster", "check-config", "workers", "--cluster", "scene")
	d.edit(t, "policies.d/workers.yaml", strings.Replace(drillPolicy, "type: Ready", "type: ready", 1))
	d.shows(t, 2, trouble("check workers in scene has a rule that never takes effect: no Node has the condition ready; did you mean Ready?. Next: fencectl check-config workers --cluster scene"))
	d.types(t, 2, "FencePolicy workers UnknownCondition no Node has the condition ready; did you mean Ready?", "check-config", "workers", "--cluster", "scene")
	d.edit(t, "policies.d/workers.yaml", drillPolicy)
	d.shows(t, 0, green)

	// A slip in fenced.yaml, and a reload.
	config := d.file(t, "fenced.yaml")
	line := strconv.Itoa(strings.Count(config, "\n") + 1)
	d.edit(t, "fenced.yaml", config+"guard: {maxInFlight: 1}\n")
	d.shows(t, 2, trouble("the reload at TIME was refused: DIR/fenced.yaml:"+line+": guard: unknown key (did you mean guards?). Until this is corrected or undone, "+
		"fenced runs on what it had before, and a restart would fail. Next: correct it, run fenced --check-config, then systemctl reload fenced"))
	d.checksConfig(t, 78, "fenced.yaml:"+line+": guard: unknown key")
	d.edit(t, "fenced.yaml", config)
	d.shows(t, 0, green)
	d.checksConfig(t, 0, "")

	// A full disk.
	filler := disk.fill(t)
	for n := 0; must.Do(d.Status(t.Context()))(t).Audit == nil; n++ { // until the audit log needs another page
		require.Less(t, n, 100, "each order is written there")
		d.types(t, 0, "worker-1", "bmc", "test", "worker-1")
	}
	d.shows(t, 2, trouble("nothing destructive is done: the audit log cannot be written since TIME: append to the audit log: write DIR/small/audit.jsonl: no space left on device. Next: make room: df -h DIR/small; fenced goes on by itself"))
	d.types(t, 3, "AuditFailed", "fence", "worker-1", "--reason", "drill", "--dry-run")
	require.NoError(t, os.Remove(filler))
	d.shows(t, 0, green)

	// A clock that is wrong.
	d.ahead.Store(int64(20 * time.Second))
	d.shows(t, 2, trouble("cluster scene: the clock of this host is AGE behind that of the API server. "+
		"Next: chronyc tracking (or timedatectl timesync-status), on this host and on that of the API server, shows which clock is wrong; correct it there"))
	d.types(t, 3, "ClockSkew", "fence", "worker-1", "--reason", "drill", "--dry-run")
	d.ahead.Store(0)
	d.shows(t, 0, green)

	// An API server that is away.
	d.away.Store(true)
	d.shows(t, 2, trouble("cluster scene: the view is AGE old; watch KIND: no endpoints available. Next: kubectl --kubeconfig DIR/kubeconfig.yaml get nodes shows whether the API server answers, and allows it"))
	d.types(t, 3, "ViewStale", "fence", "worker-1", "--reason", "drill", "--dry-run")
	d.away.Store(false)
	d.shows(t, 0, green)

	// A second installation, with a store of its own.
	second := launchPeer(t, d.Scene, "second")
	d.showsAt(t, second.socket, 2, head+`degraded: cluster scene: fenced instance "prompter" on host "HOST", with a store of its own, holds the Lease kube-system/fenced since TIME. `+
		"Next: decide which of the two fences scene, and on the host of the other one run systemctl disable --now fenced; within a minute this one may act\n"+
		"BMCs: 2, 0 not dependable"+strings.Replace(clusters, "yes 1 AGE 2 0", `no: fenced instance 1 AGE 2 0 "prompter"`, 1))
	d.types(t, 3, "NotOwner", "fence", "worker-1", "--reason", "drill", "--dry-run", "--socket", second.socket)
	d.shows(t, 0, green) // of the first one
	hung := d.Worker("worker-2")
	hung.Kubelet.Hang()
	awaitRun(within(t), t, d.Scene, hung.Name, result(wire.ResultDone))
	requireBack(within(t), t, d.Scene, hung)
	requireOneDeletion(t, d.Scene, hung)
	seen := must.Do(second.client.NodeTimeline(t.Context(), scene.ClusterName, hung.Name))(t)
	assert.Empty(t, seen.Value.Runs, "the second one began nothing")
	must.Do(d.daemon.Terminate(within(t)))(t)
	d.showsAt(t, second.socket, 0, green)
	well := d.Worker("worker-1")
	assert.Empty(t, well.Service.System(0).Commands(), "commands to its BMC")
	untouched(within(t), t, d.Scene, well)
}

// checksConfig runs `fenced --check-config` on the files as they are.
func (d *drills) checksConfig(t *testing.T, exit int, says string) {
	t.Helper()
	programs := must.Do(builds())(t)
	out, err := exec.CommandContext(within(t), programs.Fenced, "--check-config", "--config", d.Config()).CombinedOutput()
	status := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		status = e.ExitCode()
	}
	assert.Equal(t, exit, status, "%s", out)
	assert.Contains(t, string(out), says)
}

// smallDisk is a disk on which only the daemon of a scene has its state and its audit log.
type smallDisk struct{ dir string }

// launchOnASmallDisk starts the daemon with its state on a file system of 2 MiB, which only it sees.
func (d *drills) launchOnASmallDisk(t *testing.T) smallDisk {
	t.Helper()
	dir := filepath.Join(filepath.Dir(d.Config()), "small")
	require.NoError(t, os.Mkdir(dir, 0o700))
	programs := must.Do(builds())(t)
	program := filepath.Join(t.TempDir(), "fenced-on-a-small-disk")
	require.NoError(t, os.WriteFile(program, []byte(`#!/bin/sh
exec unshare --mount --propagation private sh -c '
mount -t tmpfs -o size=2m,mode=700 tmpfs `+dir+` && exec `+programs.Fenced+` "$@"' fenced "$@"
`), 0o700))
	d.daemon = must.Do(d.Launch(program, "FENCED_STATE_PATH="+filepath.Join(dir, "state.db")))(t)
	require.NoError(t, d.WaitSocket(within(t), d.daemon))
	return smallDisk{filepath.Join("/proc", strconv.Itoa(d.daemon.PID()), "root", dir)}
}

// fill leaves no free page, and returns the file that has them all.
func (s smallDisk) fill(t *testing.T) string {
	t.Helper()
	f := must.Do(os.Create(filepath.Join(s.dir, "filler")))(t)
	defer f.Close()
	for size := 1 << 16; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			size /= 2
		}
	}
	return f.Name()
}
