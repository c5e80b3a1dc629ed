package e2e

import (
	"bufio"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/port"
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

// A dead worker with a dead BMC that a person holds, and a run whose BMC falls silent, are
// on the first screen: the reason, since when, what comes next, and exit status 2. The timeline
// has the same, and what people ordered, also after a restart.
func TestStatusTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "dead", Protocol: scene.IPMI}, {Name: "silent", Protocol: scene.IPMI},
			{Name: "well-1", Protocol: scene.IPMI}, {Name: "well-2", Protocol: scene.IPMI},
		},
		Set: []string{"power.readTimeout=3s", "power.offDeadline=3m"},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	dead, silent := s.Worker("dead"), s.Worker("silent")
	awaitText(ctx, t, s, 0, `^BMCs: 4, 0 not dependable, 4 not checked yet$`, "status")

	dead.KillBMC()
	for range 3 {
		fencectl(ctx, t, s, 2, "bmc", "test", dead.Name)
	}
	awaitText(ctx, t, s, 2, `^degraded: 1 of 4 BMCs are not dependable\. Next: fencectl bmc list$`, "status")

	dead.Kubelet.Hang()
	awaitText(ctx, t, s, 2, `^scene +dead +Unhealthy +NodeCondition +\S+ ago +BMCUnreachable for \S+, next try `, "status")
	st := requireStatus(ctx, t, s, 2)
	require.Len(t, st.Blocked, 1)
	assert.Equal(t, wire.BMCCount{Total: 4, NotDependable: 1, NotChecked: 3}, st.BMCs)
	awaitText(ctx, t, s, 0, `^blocked: the remediation by MachineHealthCheck .*/workers: BMCUnreachable for `, "timeline", dead.Name)

	fencectl(ctx, t, s, 0, "hold", dead.Name, "--reason", "new mainboard")
	awaitText(ctx, t, s, 2, `^scene +dead +Unhealthy +NodeCondition +\S+ ago +Hold for \S+, until that changes$`, "status")
	exit := must.Do(d.Terminate(ctx))(t)
	require.Zero(t, exit)
	must.Do(s.StartDaemon(ctx))(t)
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

// A BMC that dies while its host is well is known before it is needed: by the
// list, by a metric, and once in the journal. Looking at BMCs switches nothing.
func TestSweepFindsTheDeadBMC(t *testing.T) {
	t.Parallel()
	needDebian(t, "ipmi_sim")
	metrics := freeAddress(t)
	s := onStandIn(t, scene.Options{
		Set: []string{"sweep.interval=10s", "power.readTimeout=5s", "metrics.listen=" + metrics},
		Workers: []scene.Spec{
			{Name: "dies", Protocol: scene.IPMI}, {Name: "open-to-all", Protocol: scene.IPMISim},
			{Name: "unverified", Protocol: scene.Redfish, Metal3: true}, {Name: "verified", Protocol: scene.Redfish},
		},
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	awaitAll(ctx, t, s, func(b wire.BMC) bool {
		return b.State == "ok" && b.Dependable && b.Identity == "match" && b.Power == "On"
	})
	fencectl(ctx, t, s, 0, "bmc", "list")
	assert.Equal(t, "0", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))

	w := s.Worker("dies")
	w.KillBMC()
	now := fencectl(ctx, t, s, 2, "bmc", "test", w.Name)
	assert.Contains(t, now.Stdout, "BMCUnreachable")
	awaitListed(ctx, t, s, w.Name, "BMCUnreachable")
	list := awaitAll(ctx, t, s, func(b wire.BMC) bool { return b.Dependable == (b.Node != w.Name) })
	assert.Len(t, list, 4)
	assert.Equal(t, "1", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))
	time.Sleep(15 * time.Second) // another look or two
	assert.Equal(t, 1, strings.Count(s.LogTail(10000), "of scene/dies is not dependable"), "told once")

	w.ReviveBMC()
	fencectl(ctx, t, s, 0, "bmc", "test", w.Name)
	fencectl(ctx, t, s, 0, "bmc", "list")
	assert.Equal(t, "0", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))
	assert.Equal(t, 1, strings.Count(s.LogTail(10000), "of scene/dies is dependable again"))

	for node, want := range map[string]string{"open-to-all": "CipherZero", "unverified": "CertificateTrust"} {
		r := fencectl(ctx, t, s, 2, "bmc", "audit", node)
		assert.Contains(t, r.Stdout, want)
	}
	verified := fencectl(ctx, t, s, 2, "bmc", "audit", "verified")
	assert.NotContains(t, verified.Stdout, "CertificateTrust")
	everything := fencectl(ctx, t, s, 2, "bmc", "audit")
	assert.Contains(t, everything.Stdout, "CipherZero", "what was found is kept")

	assert.Zero(t, goBMC(t, w).Counts().Off+goBMC(t, w).Counts().On, "commands to the BMC of %s", w.Name)
	for _, name := range []string{"unverified", "verified"} {
		sim := s.Worker(name).Service
		assert.Empty(t, sim.System(0).Commands(), "commands to the BMC of %s", name)
		assert.Eventually(t, func() bool { return sim.OpenSessions() <= 1 }, patience, 100*time.Millisecond, "sessions are ended")
	}
	for _, w := range s.Workers {
		assert.True(t, w.On(), w.Name)
		untouched(ctx, t, s, w)
	}
}

// awaitAll waits until bmc list says of each device what is wanted.
func awaitAll(ctx context.Context, t *testing.T, s *scene.Scene, ok func(wire.BMC) bool) []wire.BMC {
	t.Helper()
	var list []wire.BMC
	require.Eventually(t, func() bool {
		var err error
		if list, err = s.BMCs(ctx, "list"); err != nil || len(list) != len(s.Workers) {
			return false
		}
		for i := range list {
			if !ok(list[i]) {
				return false
			}
		}
		return true
	}, patience, 200*time.Millisecond, "the devices are %+v", list)
	return list
}

// freeAddress is one that nobody listens at now.
func freeAddress(t *testing.T) string {
	t.Helper()
	return must.Do(port.Free("tcp", "127.0.0.1"))(t)
}

// metric is the value of one line of the daemon's metrics; empty if there is none, or while the
// daemon does not listen yet.
func metric(ctx context.Context, t *testing.T, addr, name string) string {
	t.Helper()
	req := must.Do(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil))(t)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Logf("read the metrics: %v", err)
		return ""
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return value
		}
	}
	require.NoError(t, lines.Err())
	return ""
}

// described are the Events that `kubectl describe` shows about an object, of fenced alone,
// the first first. About a Node it searches twice: with its UID and with its name. What was
// tried again is left out: a controller may change a Node just when it is restored.
func described(ctx context.Context, t *testing.T, c *rig.ControlPlane, objects ...runtime.Object) []string {
	t.Helper()
	typed := must.Do(kubernetes.NewForConfig(must.Do(c.RESTConfig("describer", rig.AdminGroup))(t)))(t)
	var found []corev1.Event
	for _, o := range objects {
		list := must.Do(typed.CoreV1().Events(metav1.NamespaceAll).SearchWithContext(ctx, scheme.Scheme, o))(t)
		found = append(found, list.Items...)
	}
	found = slices.DeleteFunc(found, func(e corev1.Event) bool { return e.Source.Component != "fenced" || e.Reason == "ActionFailed" })
	slices.SortStableFunc(found, func(a, b corev1.Event) int {
		return strings.Compare(a.Name[strings.LastIndex(a.Name, ".")+1:], b.Name[strings.LastIndex(b.Name, ".")+1:]) // when it happened, in nanoseconds
	})
	var texts []string
	for i := range found {
		texts = append(texts, found[i].Type+" "+found[i].Reason)
	}
	return texts
}

// ofRuns are the Events about runs. Before a run begins, a gate may refuse it for a moment.
func ofRuns(events []string) []string {
	return slices.DeleteFunc(events, func(e string) bool { return e == "Warning RemediationSkipped" })
}

// describedNode is what `kubectl describe node` shows of fenced.
func describedNode(ctx context.Context, t *testing.T, c *rig.ControlPlane, name string) []string {
	t.Helper()
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))(t)
	byName := n.DeepCopy()
	byName.UID = types.UID(name)
	return described(ctx, t, c, n, byName)
}

func machineObject(ctx context.Context, t *testing.T, s *scene.Scene, name string) *unstructured.Unstructured {
	t.Helper()
	return must.Do(s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
}

// nodeCourse is what is reported on a Node of a run without an accident.
var nodeCourse = []string{"Normal RemediationStarted", "Normal HostPoweredOff", "Normal NodeDeleted", "Normal HostPoweredOn", "Normal NodeRegistered", "Normal RemediationFinished"}

// Who describes the Node, its Machine or the check sees the whole course of a fence, and why
// a held Node is not fenced. Without the right to write Events, and the right to mark, everything is
// fenced as well, and the journal names what is missing, once.
func TestEventsTellOfAFence(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "untold", Protocol: scene.IPMI}, {Name: "hung", Protocol: scene.IPMI}, {Name: "held", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	fenceWithoutTheRightToTell(ctx, t, s)
	must.Do(s.StartDaemon(ctx))(t)
	fencectl(ctx, t, s, 0, "hold", "held", "--reason", "its disk is being replaced")
	s.Worker("held").Kubelet.Hang()
	awaitRefusal(ctx, t, s, "held", "Hold")
	s.Worker("hung").Kubelet.Hang()
	awaitRun(ctx, t, s, "hung", result(wire.ResultDone))
	requireBack(ctx, t, s, s.Worker("hung"))

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, nodeCourse, ofRuns(describedNode(ctx, t, s.Cluster, "hung")))
		onMachine := append([]string{"Normal ExternalAnnotationAdded"}, nodeCourse[1:]...)
		assert.Equal(c, onMachine, ofRuns(described(ctx, t, s.Cluster, machineObject(ctx, t, s, "hung"))))
		assert.Equal(c, []string{nodeCourse[0], nodeCourse[5]}, described(ctx, t, s.Cluster, checkObject(ctx, t, s)))
		assert.Contains(c, describedNode(ctx, t, s.Cluster, "held"), "Warning RemediationSkipped")
		assert.Contains(c, described(ctx, t, s.Cluster, machineObject(ctx, t, s, "held")), "Warning RemediationSkipped")
	}, patience, 200*time.Millisecond)
	assert.Empty(t, describedNode(ctx, t, s.Cluster, "healthy"))
	list := must.Do(s.Cluster.Client().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=RemediationSkipped,involvedObject.name=held"}))(t)
	require.NotEmpty(t, list.Items)
	assert.Contains(t, list.Items[0].Message, "Hold: ")
	assert.Contains(t, list.Items[0].Message, "its disk is being replaced")
}

// fenceWithoutTheRightToTell fences a host with a daemon of its own, and gives the rights back.
func fenceWithoutTheRightToTell(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	telling := map[string]string{"events": "create patch", "machines": "patch"}
	workload, management := withhold(ctx, t, s, "fenced", telling), withhold(ctx, t, s, "fenced-management", telling)
	d := must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("untold")
	w.Kubelet.Hang()
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	assert.Empty(t, describedNode(ctx, t, s.Cluster, w.Name))
	for _, once := range []string{"Kubernetes Events cannot be written", "mark what is being remediated"} {
		assert.Equal(t, 1, strings.Count(s.LogTail(100000), once), once)
	}
	must.Do(d.Terminate(ctx))(t)
	workload()
	management()
}

// marksOf are fenced's marks among annotations: run, step and instance.
func marksOf(annotations map[string]string) [3]string {
	return [3]string{annotations["fenced.io/run"], annotations["fenced.io/step"], annotations["fenced.io/instance"]}
}
