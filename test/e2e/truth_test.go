package e2e

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// awaitText runs a verb of fencectl until what it prints and its exit status are as wanted.
func awaitText(ctx context.Context, t *testing.T, s *scene.Scene, exit int, want string, args ...string) string {
	t.Helper()
	pattern := regexp.MustCompile("(?m)" + want)
	var last scene.Result
	require.Eventually(t, func() bool {
		r, err := s.Fencectl(ctx, args...)
		last = r
		return err == nil && r.Exit == exit && pattern.MatchString(r.Stdout)
	}, patience, 200*time.Millisecond, "fencectl %v prints %s with exit status %d", args, want, exit)
	return last.Stdout
}

// A dead worker with a dead BMC, a run whose BMC falls silent and BMCs that are not dependable are
// on the first screen: the reason, since when, what comes next, and exit status 2. The timeline
// has the same, and what people ordered, also after a restart.
func TestStatusTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "dead", Protocol: scene.IPMI}, {Name: "silent", Protocol: scene.IPMI},
			{Name: "well-1", Protocol: scene.IPMI}, {Name: "well-2", Protocol: scene.IPMI},
		},
		Set: []string{"power.readTimeout=3s", "power.offDeadline=3m"},
	})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	dead, silent := s.Worker("dead"), s.Worker("silent")
	awaitText(ctx, t, s, 0, `^BMCs: 4, 0 not dependable, 4 not checked yet$`, "status")

	dead.KillBMC()
	for range 3 {
		fencectl(ctx, t, s, 2, "bmc", "test", dead.Name)
	}
	awaitText(ctx, t, s, 2, `^degraded: 1 of 4 BMCs are not dependable: fencectl bmc list$`, "status")

	dead.Kubelet.Hang()
	awaitText(ctx, t, s, 2, `^degraded: dead in scene is not remediated \(MachineHealthCheck .*/workers\): BMCUnreachable: host: .*; since 20.*Z, next try 20.*Z$`, "status")
	awaitText(ctx, t, s, 2, `^scene +dead +Unhealthy +NodeCondition +\S+ +BMCUnreachable for \S+, next try `, "status")
	st := requireStatus(ctx, t, s, 2)
	require.Len(t, st.Blocked, 1)
	assert.Equal(t, wire.BMCCount{Total: 4, NotDependable: 1, NotChecked: 3}, st.BMCs)
	awaitText(ctx, t, s, 0, `^blocked: the remediation by MachineHealthCheck .*/workers: BMCUnreachable for `, "timeline", dead.Name)

	fencectl(ctx, t, s, 0, "hold", dead.Name, "--reason", "new mainboard")
	awaitText(ctx, t, s, 2, `^scene +dead +Unhealthy +NodeCondition +\S+ +Hold for \S+, until that changes$`, "status")
	exit, err := d.Terminate(ctx)
	require.NoError(t, err)
	require.Zero(t, exit)
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	notes := awaitText(ctx, t, s, 0, `^blocked: .*: Hold for `, "timeline", dead.Name, "-o", "wide")
	assert.Regexp(t, `(?m)^20\S+Z +Order +- +- +.* holds it: new mainboard$`, notes)
	assert.Regexp(t, `(?m)^20\S+Z +Refused +- +BMCUnreachable +host: `, notes)
	fencectl(ctx, t, s, 0, "release", dead.Name, "--reason", "mainboard replaced")
	awaitText(ctx, t, s, 0, `^20\S+Z +Order +- +- +.* releases it: mainboard replaced$`, "timeline", dead.Name, "-o", "wide")

	silent.Kubelet.Hang()
	awaitOff(t, silent)
	require.NoError(t, goBMC(t, silent).Hang(true))
	awaitText(ctx, t, s, 2, `^degraded: run \S+ of silent is in step PowerOff; last error at 20\S+Z: BMCUnreachable: `, "status")
	awaitText(ctx, t, s, 2, `^\S+ +scene +silent +1/6 PowerOff .* BMCUnreachable, \S+ ago$`, "status")
	awaitText(ctx, t, s, 0, `^  last error: \S+ ago: BMCUnreachable: `, "timeline", silent.Name)
	require.NoError(t, goBMC(t, silent).Hang(false))
	awaitRun(ctx, t, s, silent.Name, result(wire.ResultDone))

	dead.ReviveBMC()
	fencectl(ctx, t, s, 0, "bmc", "test", dead.Name)
	awaitRun(ctx, t, s, dead.Name, result(wire.ResultDone))
	awaitText(ctx, t, s, 0, `^BMCs: 4, 0 not dependable`, "status")
	untouched(ctx, t, s, s.Worker("well-1"))
}

// logged are the events of the journal that are kept, each as its type, what it is about and its
// reason.
func logged(t *testing.T, s *scene.Scene, keep func(kind, text string) bool) (list []string) {
	t.Helper()
	for line := range strings.Lines(s.LogTail(100000)) {
		var e struct{ Event, Node, Reason, Msg string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Event != "" && keep(e.Event, e.Node+e.Msg) {
			list = append(list, strings.Join(strings.Fields(e.Event+" "+e.Node+" "+e.Reason), " "))
		}
	}
	return list
}

// What the checks refuse is told once, in the journal and as a metric: the limit that is found
// closed at the start, and two checks that refuse one host for different reasons. The changes of
// a check are told, too.
func TestRefusalsAreToldOnce(t *testing.T) {
	t.Parallel()
	metrics := freeAddress(t)
	closed, second := scene.Metal("2s"), scene.Metal("2s")
	closed.MaxUnhealthy, second.Name = "0", "second"
	s := set(t, scene.Options{
		Workers: []scene.Spec{{Name: "sick", Protocol: scene.IPMI}, {Name: "well-1", Protocol: scene.IPMI}, {Name: "well-2", Protocol: scene.IPMI}},
		Checks:  []rig.Check{closed, second},
		Set:     []string{"metrics.listen=" + metrics},
	})
	ctx := within(t)
	s.Worker("sick").Kubelet.Hang()
	_, err := s.Cluster.WaitNode(ctx, "sick", unknown)
	require.NoError(t, err)
	time.Sleep(3 * time.Second) // the timeout of the checks is over at the start
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	const gauge = `fenced_targets_refused{cluster="scene",reason=`
	require.Eventually(t, func() bool {
		return metric(ctx, t, metrics, gauge+`"ShortCircuit"}`) == "1" && metric(ctx, t, metrics, gauge+`"Overlap"}`) == "1"
	}, patience, 200*time.Millisecond)
	awaitText(ctx, t, s, 2, `^degraded: sick in scene is not remediated \(MachineHealthCheck .*/second\): Overlap: overlap: the limit of this check is exceeded`, "status")
	time.Sleep(16 * time.Second) // three more evaluations
	ofSick := func(kind, text string) bool { return kind == "Refused" && strings.HasPrefix(text, "sick") }
	ofChecks := func(kind, _ string) bool {
		return kind == "CheckChanged" || kind == "LimitClosed" || kind == "LimitOpened"
	}
	var reasons []string
	for _, told := range logged(t, s, ofSick) {
		if told == "Refused sick ShortCircuit" || told == "Refused sick Overlap" {
			reasons = append(reasons, told)
		}
	}
	assert.ElementsMatch(t, []string{"Refused sick ShortCircuit", "Refused sick Overlap"}, reasons, "once each")
	assert.Equal(t, []string{"LimitClosed ShortCircuit"}, logged(t, s, ofChecks), "as it was at the start")

	changeCheck := func(name, patch string) {
		t.Helper()
		gvr := schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machinehealthchecks"}
		_, err := s.Management.Dynamic().Resource(gvr).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	awaitTold := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, logged(t, s, ofChecks)) }, patience, 200*time.Millisecond,
			"the changes of the checks: %v", want)
	}
	changeCheck("second", `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	awaitTold("LimitClosed ShortCircuit", "CheckChanged Paused")
	changeCheck("workers", `{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Bogus"}]}}}`)
	awaitTold("LimitClosed ShortCircuit", "CheckChanged Paused", "CheckChanged InvalidCheck")
	awaitText(ctx, t, s, 2, `^degraded: check .*/workers in scene is invalid and protects no target: `, "status")
	changeCheck("workers", `{"spec":{"selector":{"matchExpressions":null},"maxUnhealthy":"100%"}}`)
	awaitTold("LimitClosed ShortCircuit", "CheckChanged Paused", "CheckChanged InvalidCheck", "CheckChanged", "LimitOpened")
	awaitRun(ctx, t, s, "sick", result(wire.ResultDone))
	awaitText(ctx, t, s, 0, `armed`, "status")
	assert.Empty(t, metric(ctx, t, metrics, gauge+`"ShortCircuit"}`))
}

// explain and bmc list say the same of a BMC: that it was not checked yet, that it refuses the
// account, and that it is good again.
func TestExplainAgreesWithBMCList(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "locked", Protocol: scene.Redfish, Metal3: true, WrongPassword: true}, {Name: "well", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	awaitText(ctx, t, s, 2, `^locked .* not checked yet +- `, "bmc", "list", "-o", "wide")
	text := fencectl(ctx, t, s, 0, "explain", "locked", "-o", "wide").Stdout
	assert.Regexp(t, `(?m)^not checked yet: .*host.*identity`, text)
	assert.Regexp(t, `(?m)^host +not yet +- +\S+: the BMC is not checked yet; `, text)

	fencectl(ctx, t, s, 2, "bmc", "test", "locked")
	awaitText(ctx, t, s, 2, `^locked .* BMCAuth: `, "bmc", "list", "-o", "wide")
	text = awaitText(ctx, t, s, 0, `^host +no +BMCAuth +`, "explain", "locked", "-o", "wide")
	assert.NotContains(t, text, "not checked yet: host")
	awaitText(ctx, t, s, 2, `^degraded: 1 of 2 BMCs are not dependable: `, "status")

	setPassword(ctx, t, s, s.Worker("locked"), scene.Password)
	awaitText(ctx, t, s, 0, `^locked .* match +\S+ +20\S+Z +- `, "bmc", "test", "locked", "-o", "wide")
	awaitText(ctx, t, s, 2, `^locked .* match +\S+ +20\S+Z +- `, "bmc", "list", "-o", "wide") // the other one is not checked yet
	awaitText(ctx, t, s, 0, `^host +yes +- +\S+: read On by the BMC health check at 20\S+Z `, "explain", "locked", "-o", "wide")
	awaitText(ctx, t, s, 0, `^identity +yes +- +match `, "explain", "locked", "-o", "wide")
	fencectl(ctx, t, s, 0, "bmc", "test", "well")
	fencectl(ctx, t, s, 0, "bmc", "list")
}
