package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// switchedOff waits until a run has switched the host off, which is long before the Node
// is isolated: its Lease must stand still first.
func switchedOff(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) wire.RunRecord {
	t.Helper()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultRunning))
	require.Eventually(t, func() bool { return !w.BMC.Power() }, patience, 20*time.Millisecond)
	requireNoDeletion(t, s, w)
	return r
}

// A held Node is left alone until it is released, a file pauses a run in its middle,
// and another is aborted: their hosts are back On and their Nodes were never deleted.
func TestPeopleStopRuns(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "held", Protocol: scene.IPMI}, {Name: "paused", Protocol: scene.Redfish}, {Name: "aborted", Protocol: scene.IPMI, Metal3: true},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	held, paused, aborted := s.Worker("held"), s.Worker("paused"), s.Worker("aborted")

	fencectl(ctx, t, s, 0, "hold", held.Name, "--reason", "ticket 4711", "--for", "1h")
	held.Kubelet.Hang()
	paused.Kubelet.Hang()
	switchedOff(ctx, t, s, paused)
	code := filepath.Join(t.TempDir(), "reason") // the file is to be there whole
	require.NoError(t, os.WriteFile(code, []byte("smoke in the hall\n"), 0o600))
	require.NoError(t, os.Rename(code, pauseFile(s)))
	r := awaitRun(ctx, t, s, paused.Name, result(wire.ResultAborted))
	assert.Equal(t, "Paused", r.Reason)
	assert.Contains(t, r.Note, "smoke in the hall")
	assert.True(t, paused.BMC.Power())
	st := requireStatus(ctx, t, s, 2)
	assert.Contains(t, st.PausedReason, "smoke in the hall")
	require.NoError(t, os.Remove(pauseFile(s)))

	aborted.Kubelet.Hang()
	r = switchedOff(ctx, t, s, aborted)
	out := fencectl(ctx, t, s, 0, "abort", r.ID, "--reason", "wrong node", "--wait")
	assert.Contains(t, out.Stdout, "Aborted")
	assert.True(t, aborted.BMC.Power())
	awaitText(ctx, t, s, 0, `^20\S+Z +Order +`+r.ID+` +- +.* aborts: wrong node$`, "timeline", aborted.Name, "-o", "wide")
	for _, w := range []*scene.Worker{paused, aborted} {
		must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
		untouched(ctx, t, s, w)
	}

	st = requireStatus(ctx, t, s, 2)
	require.Len(t, st.Blocked, 1, "a held Node that is not healthy is not remediated")
	assert.Equal(t, held.Name+" Hold", st.Blocked[0].Node+" "+st.Blocked[0].Reason)
	require.Len(t, st.Clusters[0].Holds, 1)
	assert.Equal(t, "ticket 4711", st.Clusters[0].Holds[0].Reason)
	x := must.Do(s.Explain(ctx, held.Name))(t)
	assert.Equal(t, "Hold", x.Refused)
	assert.Zero(t, held.FirstAsked(), "nobody asked the BMC of a held host")
	fencectl(ctx, t, s, 0, "release", held.Name, "--reason", "disk replaced")
	awaitRun(ctx, t, s, held.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, held)
	untouched(ctx, t, s, s.Worker("healthy"))
}

func pauseFile(s *scene.Scene) string { return filepath.Join(filepath.Dir(s.Config()), "paused") }

// fencectl runs a verb and checks its exit status.
func fencectl(ctx context.Context, t *testing.T, s *scene.Scene, exit int, args ...string) scene.Result {
	t.Helper()
	r := must.Do(s.Fencectl(ctx, args...))(t)
	require.Equal(t, exit, r.Exit, "fencectl %v\n%s\n%s", args, r.Stdout, r.Stderr)
	return r
}

// What people order: pause and resume, off and on again.
func TestPeopleGiveOrders(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Checks: []rig.Check{scene.Metal("5m")}, Workers: []scene.Spec{ // only orders fence, also where a kubelet is late
		{Name: "bystander", Protocol: scene.IPMI}, {Name: "ordered", Protocol: scene.Redfish, Metal3: true, SeldomRenews: true},
	}})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("ordered")
	requireGoodStatus(ctx, t, s)
	requireUnknownNames(ctx, t, s)

	fencectl(ctx, t, s, 0, "pause", "--reason", "maintenance")
	st := requireStatus(ctx, t, s, 2)
	assert.True(t, st.Paused)
	assert.Contains(t, st.PausedReason, "maintenance")
	refused := fencectl(ctx, t, s, 3, "fence", w.Name, "--yes", "--reason", "test")
	assert.Contains(t, refused.Stderr, "Paused")
	fencectl(ctx, t, s, 0, "resume", "--reason", "over")

	fencectl(ctx, t, s, 64, "fence", w.Name, "--yes")
	dry := fencectl(ctx, t, s, 0, "fence", w.Name, "--dry-run", "--reason", "test")
	assert.Contains(t, dry.Stdout, "identity")
	require.True(t, w.BMC.Power())

	off := fencectl(ctx, t, s, 0, "fence", w.Name, "--off-only", "--wait", "--yes", "--reason", "disk fails")
	assert.Contains(t, off.Stdout, "2/6 DeleteNode")
	assert.False(t, w.BMC.Power())
	requireOneDeletion(t, s, w)
	st = requireStatus(ctx, t, s, 2)
	require.Len(t, st.Runs, 1)
	assert.Equal(t, "Held", st.Runs[0].Step)
	assert.Equal(t, "OperatorOff", st.Runs[0].Reason)
	x := must.Do(s.Explain(ctx, w.Name))(t)
	assert.Equal(t, "OperatorOff", x.Refused)

	fencectl(ctx, t, s, 0, "unfence", w.Name, "--wait", "--reason", "disk replaced")
	assert.True(t, w.BMC.Power())
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireGoodStatus(ctx, t, s)
	untouched(ctx, t, s, s.Worker("bystander"))
}

// requireUnknownNames gives orders for what is not there: exit statuses and words are
// a contract with scripts.
func requireUnknownNames(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	for _, tc := range []struct {
		order []string
		exit  int
		want  string
	}{
		{[]string{"fence", "typo", "--yes"}, 1, "no Node is named typo"},
		{[]string{"unfence", "typo"}, 7, "no run is open on typo"},
		{[]string{"confirm-off", "typo", "--yes"}, 1, "no Node is named typo"},
		{[]string{"abort", "ty-po"}, 1, "no run ty-po"},
		{[]string{"retry", "ty-po"}, 1, "no run ty-po"},
		{[]string{"release", "typo"}, 7, "nobody holds typo"},
		{[]string{"hold", "typo"}, 0, "fenced sees no Node of this name now"},
		{[]string{"release", "typo"}, 0, "typo is no longer held"},
		{[]string{"hold", "--all-in-rack", "bystander"}, 1, "no Node has topology.kubernetes.io/rack=bystander"},
		{[]string{"hold", "--selector", scene.WornLabel + "=typo"}, 1, "the values of scene/rack are bystander"},
		{[]string{"hold", "--selector", scene.WornLabel + "=bystander", "--dry-run"}, 0, "scene/rack=bystander: 1 would be held"},
		{[]string{"release", "--selector", scene.WornLabel + "=bystander"}, 7, "nobody holds the Nodes with scene/rack=bystander"},
		{[]string{"hold", "--selector", scene.WornLabel + "=bystander", "--for", "1h"}, 0, "scene/rack=bystander: 1 held until 2"},
		{[]string{"release", "--selector", scene.WornLabel + "=bystander"}, 0, "scene/rack=bystander: 1 released"},
		{[]string{"pause", "--cluster", "typo"}, 1, `no cluster "typo" is configured`},
		{[]string{"hold", "bystander", "--cluster", "typo"}, 1, `no cluster "typo" is configured`},
	} {
		r := fencectl(ctx, t, s, tc.exit, append(tc.order, "--reason", "test")...)
		assert.Contains(t, r.Stdout+r.Stderr, tc.want, "fencectl %v", tc.order)
	}
}

func requireStatus(ctx context.Context, t *testing.T, s *scene.Scene, exit int) wire.Status {
	t.Helper()
	r := fencectl(ctx, t, s, exit, "status", "-o", "json")
	var st wire.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &st))
	return st
}

// requireGoodStatus waits until the first view is whole, then checks what a
// status says when all is well.
func requireGoodStatus(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	awaitFencedStatus(ctx, t, s, func(st wire.Status) bool { return len(st.Degraded()) == 0 })
	st := requireStatus(ctx, t, s, 0)
	assert.True(t, st.Armed)
	assert.False(t, st.Paused)
	assert.Empty(t, st.Runs)
	c := st.Clusters[0]
	assert.Equal(t, scene.ClusterName, c.Name)
	assert.Equal(t, "evaluate", c.Mode)
	assert.Equal(t, len(s.Workers), c.Nodes)
	assert.True(t, c.Checks[0].Allowed)
	assert.Equal(t, len(s.Workers), c.Checks[0].Expected)
}

// requireGaps waits until the first view is whole, and wants nothing wrong but that some Nodes could not
// be fenced: hosts that nobody has enrolled, or that are there twice.
func requireGaps(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	awaitFencedStatus(ctx, t, s, func(st wire.Status) bool {
		if len(st.Clusters) != 1 || st.Clusters[0].Cover == nil || len(st.Clusters[0].Cover.Gaps) == 0 {
			return false
		}
		st.Clusters[0].Cover, st.BMCs = nil, wire.BMCCount{}
		return len(st.Degraded()) == 0
	})
}

// awaitFencedStatus waits until the one check has found every worker healthy, and the status is as it must be.
func awaitFencedStatus(ctx context.Context, t *testing.T, s *scene.Scene, is func(wire.Status) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Clusters) == 1 && len(st.Clusters[0].Checks) == 1 && st.Clusters[0].Checks[0].Healthy == len(s.Workers) && is(st)
	}, patience, 100*time.Millisecond)
}

// The audit log tells a fence from the decision to the end, and whoever changes it
// is found, with the daemon running and without it. // I24
func TestAuditLogTellsAndIsProven(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI},
		{Name: "ordered", Protocol: scene.Redfish, Metal3: true},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	s.Worker("hung").Kubelet.Hang()
	awaitRun(ctx, t, s, "hung", result(wire.ResultDone))
	log := filepath.Join(filepath.Dir(s.Config()), "audit.jsonl")
	exported := strings.TrimSpace(fencectl(ctx, t, s, 0, "audit", "show", "--head", "--file", log).Stdout)
	fencectl(ctx, t, s, 0, "audit", "verify", "--config", s.Config(), "--head", exported)

	d.Kill()
	must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	s.Worker("ordered").Kubelet.Hang()
	fencectl(ctx, t, s, 0, "fence", "ordered", "--reason", "it smells", "--yes", "--wait", "--timeout", "2m")
	proof := fencectl(ctx, t, s, 0, "audit", "verify", "--file", log, "--head", exported)
	assert.Contains(t, proof.Stdout, "are as they were written")

	requireStory(t, entriesOf(t, log, "hung"), "Started", "SendOff", "BackupNode", "IsolateNode", "SendOn", "Done")
	ordered := entriesOf(t, log, "ordered")
	requireStory(t, ordered, "Order", "Started", "SetHold", "SendOff", "BackupNode", "IsolateNode", "SendOn", "Done")
	order := ordered[0]
	assert.NotEmpty(t, order.Actor)
	assert.Equal(t, "it smells", order.Why)
	for _, e := range append(entriesOf(t, log, "hung"), ordered...) {
		switch {
		case e.Type == "Started":
			assert.Greater(t, len(e.Gates), 10, "the decision carries every gate that was asked")
			for _, g := range e.Gates {
				assert.True(t, g.Pass, "%+v", g)
			}
		case e.Action == "IsolateNode":
			assert.Contains(t, e.Inputs, "power=Off")
			assert.Contains(t, e.Inputs, "proven=true")
		}
	}

	original := must.Do(os.ReadFile(log))(t)
	forged := filepath.Join(t.TempDir(), "audit.jsonl")
	for what, change := range map[string]func([]byte) []byte{
		"edited": func(b []byte) []byte { return bytes.Replace(b, []byte("it smells"), []byte("it stinks"), 1) },
		"line gone": func(b []byte) []byte {
			i := bytes.IndexByte(b, '\n') + 1
			return append(b[:i:i], b[bytes.Index(b[i:], []byte("\n"))+i+1:]...)
		},
		"end gone": func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
	} {
		require.NoError(t, os.WriteFile(forged, change(bytes.Clone(original)), 0o600))
		r := fencectl(ctx, t, s, 1, "audit", "verify", "--file", forged, "--head", exported)
		assert.Contains(t, r.Stderr, "the audit log is broken", what)
	}
}

// entriesOf gives what the log tells of a Node.
func entriesOf(t *testing.T, log, node string) (all []audit.Entry) {
	t.Helper()
	must.Do(audit.Walk(log, func(l audit.Line) error {
		if l.Entry.Node == node {
			all = append(all, l.Entry)
		}
		return nil
	}))(t)
	return all
}

// requireStory checks that the entries have these types, actions or steps, in this
// order, others between them.
func requireStory(t *testing.T, all []audit.Entry, want ...string) {
	t.Helper()
	left := want
	for _, e := range all {
		if len(left) > 0 && (e.Type == left[0] || e.Action == left[0] || e.Step == left[0]) {
			left = left[1:]
		}
	}
	text := must.Do(json.MarshalIndent(all, "", " "))(t)
	require.Empty(t, left, "of %v, in\n%s", want, text)
}

// requireStopped stops a process, and waits until each of its threads has stopped: on a busy machine one that
// runs can answer in between.
func requireStopped(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		threads := must.Do(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)))(t)
		for _, stat := range threads {
			text, err := os.ReadFile(stat)
			if err != nil { // it has ended
				continue
			}
			if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return len(threads) > 0
	}, time.Minute, 10*time.Millisecond)
}

// The safe path of a new operator: the cluster is only observed, a dry run asks everything, an
// administrator fences one node by hand, and arm shows first what would be fenced, and waits.
func TestSafePath(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Mode: "observe", Set: []string{"guards.quietPeriod=20s"}, Workers: []scene.Spec{
		{Name: "sick", Protocol: scene.IPMI}, {Name: "second", Protocol: scene.Redfish}, {Name: "third", Protocol: scene.IPMI}, {Name: "fourth", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	sick, second := s.Worker("sick"), s.Worker("second")
	sick.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, sick.Name, unknown))(t)
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Clusters) == 1 && st.Clusters[0].Problem == "" && len(st.Clusters[0].Deviating) == 1
	}, patience, 100*time.Millisecond)
	status := fencectl(ctx, t, s, 2, "status")
	assert.Contains(t, status.Stdout, "cluster "+scene.ClusterName+" is in mode observe and not armed: fenced fences nothing there by itself. Next: fencectl arm --cluster "+scene.ClusterName+" --reason WHY")
	assert.Regexp(t, `(?m)^`+scene.ClusterName+` +observe +yes `, status.Stdout)

	dry := fencectl(ctx, t, s, 0, "fence", sick.Name, "--dry-run", "--reason", "is it safe?")
	assert.Regexp(t, `(?m)^mode +yes +- +observe: an`, dry.Stdout)
	assert.Regexp(t, `(?m)^identity +yes +- +match`, dry.Stdout)
	assert.NotZero(t, sick.FirstAsked(), "the BMC was asked")
	assert.True(t, sick.BMC.Power())
	nothing := fencectl(ctx, t, s, 0, "resume", "--reason", "just in case")
	assert.Equal(t, "nothing that this order ends was paused: nothing changed\n", nothing.Stdout)

	byHand := fencectl(ctx, t, s, 0, "fence", sick.Name, "--yes", "--wait", "--reason", "ticket 4711")
	assert.Contains(t, byHand.Stdout, sick.Name+": Done after")
	requireBack(ctx, t, s, sick)
	log := filepath.Join(filepath.Dir(s.Config()), "audit.jsonl")
	require.Eventually(t, func() bool {
		for _, e := range entriesOf(t, log, sick.Name) {
			if e.Type == "Order" && e.Why == "ticket 4711" && e.Actor != "" {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "who fenced by hand is on record")
	assert.False(t, requireStatus(ctx, t, s, 2).Armed)

	second.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, second.Name, unknown))(t)
	require.Eventually(t, func() bool {
		p, err := s.Plan(ctx)
		return err == nil && len(p.Clusters[0].Actions) == 1 && p.Clusters[0].Actions[0].Refused == "Observing"
	}, patience, 100*time.Millisecond)
	wrong := must.Do(s.Terminal(ctx, "to arm it: ", "prod", "arm", "--reason", "tested"))(t)
	assert.Equal(t, 1, wrong.Exit, wrong.All)
	assert.Contains(t, wrong.All, "not confirmed: nothing was done")
	require.False(t, requireStatus(ctx, t, s, 2).Armed)

	armed := must.Do(s.Terminal(ctx, "to arm it: ", scene.ClusterName, "arm", "--reason", "tested"))(t)
	require.Equal(t, 0, armed.Exit, armed.All)
	requireFits(t, armed.Asked)
	assert.Contains(t, armed.Asked, "1 target would be fenced when the quiet period ends:")
	assert.Regexp(t, `(?m)^  second +PowerCycle `, armed.Asked)
	until := regexp.MustCompile(`nothing is fenced before (\S+)`).FindStringSubmatch(armed.All)
	require.Len(t, until, 2, armed.All)
	quietUntil := must.Do(time.Parse(time.RFC3339, until[1]))(t)
	st := must.Do(s.Status(ctx))(t)
	require.True(t, st.Armed)
	shown := must.Do(s.Fencectl(ctx, "status"))(t)
	assert.Contains(t, shown.Stdout, "observe (armed)")
	r := awaitRun(ctx, t, s, second.Name, result(wire.ResultDone))
	assert.False(t, r.Started.Before(quietUntil), "the run began at %s, in the quiet period", r.Started)
	requireBack(ctx, t, s, second)
	again := fencectl(ctx, t, s, 0, "arm", "--yes", "--reason", "again")
	assert.Contains(t, again.Stdout, "is armed already")
	untouched(ctx, t, s, s.Worker("third"))
}

// On a terminal of 80x24 a person sees above the question what is about to be fenced, and then
// only the steps of this run, with their times.
func TestPromptsOnATerminal(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Mode: "observe", Set: []string{"guards.quietPeriod=1h", "power.readTimeout=30s"}, Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	daemon := must.Do(s.StartDaemon(ctx))(t)
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Clusters) == 1 && st.Clusters[0].Problem == ""
	}, patience, 100*time.Millisecond, "the view is whole")
	hung := s.Worker("hung")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: hung.Name, Containers: []corev1.Container{{Name: "web", Image: "web"}}, AutomountServiceAccountToken: new(bool)}}
	must.Do(s.Cluster.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}))(t)
	hung.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, hung.Name, unknown))(t)

	const question = "type the node's name to fence it: "
	wrong := must.Do(s.Terminal(ctx, question, "healthy", "fence", hung.Name, "--reason", "it hangs"))(t)
	assert.Equal(t, 1, wrong.Exit, wrong.All)
	assert.Contains(t, wrong.All, "not confirmed: nothing was done")
	requireFits(t, wrong.Asked)
	for _, line := range []string{
		`^hung would be fenced$`, `^  cluster  scene$`, `^  Node     hung Ready is Unknown for \S+$`, `^  pods     1: default/web$`,
		`^  BMC      ipmi://127\.0\.0\.1:\d+$`, `^  identity match: the BMC is that of \S+$`, `^  - the power of hung is cut at once, without a shutdown$`,
		`^  waived: quietPeriod: until `,
	} {
		assert.Regexp(t, `(?m)`+line, wrong.Asked)
	}
	for _, passes := range []string{"viewAge", "quorum", "clockSkew", "contested"} {
		assert.NotContains(t, wrong.Asked, passes, "a gate that passes")
	}
	require.True(t, hung.BMC.Power())

	off := must.Do(s.Terminal(ctx, question, hung.Name, "fence", hung.Name, "--off-only", "--wait", "--reason", "it hangs"))(t)
	require.Equal(t, 0, off.Exit, off.All)
	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\dZ  1/6 PowerOff +\S+, deadline \d\d:\d\d:\d\dZ \(in `, off.All)
	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\dZ  2/6 DeleteNode `, off.All)
	assert.Regexp(t, `(?m)^run \S+: Running, \S+ elapsed$`, off.All)
	assert.Contains(t, off.All, "hung: Held (OperatorOff)")
	assert.NotContains(t, off.All, "6/6")

	back := must.Do(s.Fencectl(ctx, "unfence", hung.Name, "--wait", "--reason", "repaired"))(t)
	require.Equal(t, 0, back.Exit, "%s\n%s", back.Stdout, back.Stderr)
	assert.NotContains(t, back.Stdout, "1/6 PowerOff", "a step from before the order")
	assert.Contains(t, back.Stdout, "3/6 PowerOn started, deadline ")
	assert.NotContains(t, back.Stdout, "6/6")
	requireBack(ctx, t, s, hung)
	untouched(ctx, t, s, s.Worker("healthy"))

	requireStopped(t, daemon.PID())
	silent := fencectl(ctx, t, s, 5, "status")
	require.NoError(t, syscall.Kill(daemon.PID(), syscall.SIGCONT))
	assert.Contains(t, silent.Stderr, "it accepts connections and answers nothing since 10s")
	assert.Contains(t, silent.Stderr, "hint: it is stopped or hangs: systemctl status fenced")
	requireStatus(ctx, t, s, 2)
}

// requireFits checks that what stands above a question fits on a terminal of 80x24.
func requireFits(t *testing.T, screen string) {
	t.Helper()
	lines := regexp.MustCompile(`\n`).Split(screen, -1)
	assert.LessOrEqual(t, len(lines), 24, screen)
	for _, line := range lines {
		assert.LessOrEqual(t, len([]rune(line)), 80, line)
	}
}
