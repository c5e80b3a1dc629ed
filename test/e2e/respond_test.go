package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// annotated says whether OpenShift's check, or its stand-in, has asked for a Machine.
func annotated(ctx context.Context, t *testing.T, s *scene.Scene, machine string) bool {
	t.Helper()
	m, err := s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, machine, metav1.GetOptions{})
	require.NoError(t, err)
	_, is := m.GetAnnotations()[scene.Requested]
	return is
}

// OpenShift's controller evaluates, and fenced executes: nothing before the annotation, and the six
// steps after it. fenced takes the annotation off, also from a Machine that has recovered by itself.
// While the bare-metal actuator is alive, the annotation is its business. A stand-in evaluates the
// documented check; another Lease is all there is of the actuator.
func TestRespondToOpenShiftsAnnotation(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Mode: "respond", Checks: []rig.Check{},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI}, {Name: "recovered", Protocol: scene.Redfish}, {Name: "well-1"}, {Name: "well-2"}, {Name: "well-3"},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift")))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, w.Name, unknown)
	require.NoError(t, err)
	awaitVerdict(ctx, t, s, w.Name, "Unhealthy")
	requireNotAsked(ctx, t, s, w.Name)

	actuator := rig.Lease{Namespace: rig.Namespace, Name: "controller-leader-election-capbm", Holder: scene.ActuatorUser, Duration: time.Hour}
	require.NoError(t, s.Cluster.PutLease(ctx, actuator))
	empty := ""
	require.NoError(t, s.Cluster.Annotate(ctx, rig.MachineResource, "recovered", scene.Requested, &empty))
	require.NoError(t, s.RunHealthChecks(ctx))
	awaitRefusal(ctx, t, s, w.Name, "Contested")
	assert.True(t, annotated(ctx, t, s, w.Name))
	time.Sleep(5 * time.Second) // what should not happen has time to
	assert.True(t, annotated(ctx, t, s, "recovered"), "the actuator is alive")
	requireNotAsked(ctx, t, s, "recovered")
	requireNoDeletion(t, s, w)

	actuator.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, actuator))
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	for _, name := range []string{w.Name, "recovered"} {
		require.Eventually(t, func() bool { return !annotated(ctx, t, s, name) }, patience, 100*time.Millisecond, "the request on %s is cleared", name)
	}
	requireNotAsked(ctx, t, s, "recovered")
	require.Eventually(t, func() bool {
		out, err := s.Fencectl(ctx, "status")
		return err == nil && out.Exit == 0 && strings.Contains(out.Stdout, ": armed\n")
	}, patience, 200*time.Millisecond, "fenced does its whole job in this mode")
	refused := fencectl(ctx, t, s, 3, "disarm", "--reason", "stop it")
	assert.Contains(t, refused.Stderr, "is in mode respond, which disarm does not stop: nothing changed")
	assert.Contains(t, refused.Stderr, "fencectl pause --reason WHY")
}

// On a stock OpenShift cluster a check with the documented template asks fenced, beside a living
// actuator. Stand-ins evaluate the check, with the rights of configs/crds/rbac.yaml on the requests,
// and act on annotations; there are none.
func TestRespondBesideALivingActuator(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Mode: "respond", Checks: []rig.Check{},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true}, {Name: "well", Protocol: scene.IPMI, Metal3: true},
		},
	})
	ctx := within(t)
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift-template")))
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	require.NoError(t, s.RunActuator(ctx))
	require.NoError(t, s.RunHealthChecks(ctx, requesters))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Equal(t, "requested by FencedRemediation "+rig.Namespace+"/hung", r.Trigger)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requester{s.Cluster}.awaitGone(ctx, t, w.Name)
	assert.False(t, annotated(ctx, t, s, w.Name))
	requireNotAsked(ctx, t, s, "healthy", "well")
}

// Where Metal3's provider does not run, fenced carries out its requests, if that is configured.
// While the provider is alive, they are its business.
func TestRespondToMetal3Remediation(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		Mode: "respond", Metal3Requests: true, Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallCRDs(ctx, rig.Metal3Remediation))
	require.NoError(t, s.Cluster.CreateNamespace(ctx, "capm3-system"))
	provider := rig.Lease{Namespace: "capm3-system", Name: "controller-leader-election-capm3", Holder: "provider-0", Duration: time.Hour}
	require.NoError(t, s.Cluster.PutLease(ctx, provider))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	_, err = s.Cluster.WaitNode(ctx, w.Name, unknown)
	require.NoError(t, err)
	_, err = s.Cluster.CreateTemplate(ctx, "reboot")
	require.NoError(t, err)
	machine, err := s.Cluster.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = s.Cluster.CreateRemediation(ctx, machine, "reboot")
	require.NoError(t, err)
	x := awaitRefusal(ctx, t, s, w.Name, "Contested")
	_, value, _, _ := gateOf(t, x, "Contested")
	assert.Contains(t, value, provider.Holder)
	out, err := s.Fencectl(ctx, "status")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^scene +Metal3Remediation `+rig.Namespace+`/hung +hung +Pending +- +Contested$`, out.Stdout)
	requireNoDeletion(t, s, w)

	provider.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, provider))
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	require.Eventually(t, func() bool {
		obj, err := s.Cluster.Dynamic().Resource(rig.RemediationResource).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return err == nil && phase == "Waiting" && obj.GetAnnotations()["fenced.io/power-phase"] == "Succeeded" && !held(obj)
	}, patience, 100*time.Millisecond, "the request is told, in the words of the provider, and let go")
}
