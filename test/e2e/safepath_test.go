package e2e

import (
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

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// requireStopped stops a process, and waits until each of its threads has stopped: on a busy machine one that
// runs can answer in between.
func requireStopped(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
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
	s := set(t, scene.Options{Mode: "observe", Set: []string{"guards.quietPeriod=20s"}, Workers: []scene.Spec{
		{Name: "sick", Protocol: scene.IPMI}, {Name: "second", Protocol: scene.Redfish}, {Name: "third", Protocol: scene.IPMI}, {Name: "fourth", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	sick, second := s.Worker("sick"), s.Worker("second")
	sick.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, sick.Name, unknown)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Clusters) == 1 && st.Clusters[0].Problem == "" && len(st.Clusters[0].Deviating) == 1
	}, patience, 100*time.Millisecond)
	status := fencectl(ctx, t, s, 2, "status")
	assert.Contains(t, status.Stdout, "cluster "+scene.ClusterName+" is in mode observe and not armed: fenced fences nothing there by itself. To arm it: fencectl arm --cluster "+scene.ClusterName+" --reason WHY")
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
	_, err = s.Cluster.WaitNode(ctx, second.Name, unknown)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p, err := s.Plan(ctx)
		return err == nil && len(p.Clusters[0].Actions) == 1 && p.Clusters[0].Actions[0].Refused == "Observing"
	}, patience, 100*time.Millisecond)
	wrong, err := s.Terminal(ctx, "to arm it: ", "prod", "arm", "--reason", "tested")
	require.NoError(t, err)
	assert.Equal(t, 1, wrong.Exit, wrong.All)
	assert.Contains(t, wrong.All, "not confirmed: nothing was done")
	require.False(t, requireStatus(ctx, t, s, 2).Armed)

	armed, err := s.Terminal(ctx, "to arm it: ", scene.ClusterName, "arm", "--reason", "tested")
	require.NoError(t, err)
	require.Equal(t, 0, armed.Exit, armed.All)
	requireFits(t, armed.Asked)
	assert.Contains(t, armed.Asked, "1 target would be fenced when the quiet period ends:")
	assert.Regexp(t, `(?m)^  second +PowerCycle `, armed.Asked)
	until := regexp.MustCompile(`nothing is fenced before (\S+)`).FindStringSubmatch(armed.All)
	require.Len(t, until, 2, armed.All)
	quietUntil, err := time.Parse(time.RFC3339, until[1])
	require.NoError(t, err)
	st, err := s.Status(ctx)
	require.NoError(t, err)
	require.True(t, st.Armed)
	shown, err := s.Fencectl(ctx, "status")
	require.NoError(t, err)
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
	s := set(t, scene.Options{Mode: "observe", Set: []string{"guards.quietPeriod=1h"}, Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	daemon, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	hung := s.Worker("hung")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: hung.Name, Containers: []corev1.Container{{Name: "web", Image: "web"}}, AutomountServiceAccountToken: new(bool)}}
	_, err = s.Cluster.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	hung.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, hung.Name, unknown)
	require.NoError(t, err)

	const question = "type the node's name to fence it: "
	wrong, err := s.Terminal(ctx, question, "healthy", "fence", hung.Name, "--reason", "it hangs")
	require.NoError(t, err)
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

	off, err := s.Terminal(ctx, question, hung.Name, "fence", hung.Name, "--off-only", "--wait", "--reason", "it hangs")
	require.NoError(t, err)
	require.Equal(t, 0, off.Exit, off.All)
	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\dZ  1/6 PowerOff +\S+, deadline \d\d:\d\d:\d\dZ \(in `, off.All)
	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\dZ  2/6 DeleteNode `, off.All)
	assert.Regexp(t, `(?m)^run \S+: Running, \S+ elapsed$`, off.All)
	assert.Contains(t, off.All, "hung: Held (OperatorOff)")
	assert.NotContains(t, off.All, "6/6")

	back, err := s.Fencectl(ctx, "unfence", hung.Name, "--wait", "--reason", "repaired")
	require.NoError(t, err)
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
