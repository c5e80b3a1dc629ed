package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// misnamed are workers whose entry in the inventory is wrong in some way, and why
// they are refused, once they were looked at.
var misnamed = []struct {
	scene.Spec
	reason string
}{
	{scene.Spec{Name: "swapped-a", Protocol: scene.IPMI, At: "swapped-b"}, "IdentityMismatch"},
	{scene.Spec{Name: "swapped-b", Protocol: scene.Redfish, At: "swapped-a"}, "IdentityMismatch"},
	{scene.Spec{Name: "twice-a", Protocol: scene.IPMI, Metal3: true}, "DuplicateHost"},
	{scene.Spec{Name: "twice-b", Protocol: scene.IPMI, Metal3: true, At: "twice-a"}, "DuplicateHost"},
	{scene.Spec{Name: "alias", Protocol: scene.IPMI, Metal3: true}, "DuplicateHost"},
}

// Nobody's power is switched in another's name: not by swapped addresses, not by
// two entries for one BMC, nor by two addresses that lead to one BMC.
func TestPowerOfAnotherIsNotTouched(t *testing.T) {
	t.Parallel()
	o := scene.Options{Workers: []scene.Spec{{Name: "healthy", Protocol: scene.IPMI}, {Name: "owner", Protocol: scene.IPMI}}}
	for _, m := range misnamed {
		o.Workers = append(o.Workers, m.Spec)
	}
	s := onStandIn(t, o)
	ctx := within(t)
	pointAt(ctx, t, s, "alias", "ipmi://"+s.Worker("owner").BMC.Addr()) // not the address that owner's entry has
	must.Do(s.StartDaemon(ctx))(t)
	requireGaps(ctx, t, s)
	for _, name := range []string{"owner", "swapped-a", "swapped-b", "alias"} { // nobody may ask the other two
		must.Do(s.BMCs(ctx, "test", name))(t)
	}
	fencectl(ctx, t, s, 3, "bmc", "test", "twice-a")
	list := fencectl(ctx, t, s, 2, "bmc", "list", "-o", "wide")
	for _, m := range misnamed {
		s.Worker(m.Name).Kubelet.Hang()
		if !strings.HasPrefix(m.Name, "twice") {
			assert.Contains(t, lineOf(list.Stdout, m.Name), m.reason)
		}
	}
	for _, m := range misnamed {
		x := awaitRefusal(ctx, t, s, m.Name, m.reason)
		assert.Nil(t, x.Run, "%s: a run was begun", m.Name)
		r := fencectl(ctx, t, s, 3, "fence", m.Name, "--reason", "test", "--yes")
		assert.Contains(t, r.Stderr, m.reason, "people are bound, too")
		if strings.HasPrefix(m.Name, "twice") { // a person can say which of them is right
			continue
		}
		r = fencectl(ctx, t, s, 3, "bmc", "enroll", m.Name, "--reason", "test", "--yes")
		assert.Contains(t, r.Stderr, m.reason, "nobody can vouch for it")
	}
	r := fencectl(ctx, t, s, 3, "bmc", "enroll", "twice-b", "--reason", "test", "--yes")
	assert.Contains(t, r.Stderr, "IdentityMismatch")
	for _, w := range s.Workers {
		if b, ok := w.BMC.(*ipmisim.GoBMC); ok {
			assert.Zero(t, b.Counts().Off+b.Counts().On, "commands to the BMC of %s", w.Name)
		} else {
			assert.Empty(t, w.Service.System(0).Commands(), "commands to the BMC of %s", w.Name)
		}
		untouched(ctx, t, s, w)
	}
}

// Whoever may write a BareMetalHost cannot point fenced to another BMC: the one
// that was seen while all was well stays, until a person enrolls the other.
func TestBareMetalHostThatMoves(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "moved", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	fencectl(ctx, t, s, 0, "bmc", "test", "moved") // what the health check would do in a minute
	w := s.Worker("moved")
	pointAt(ctx, t, s, w.Name, "ipmi://"+w.BMC.Addr()) // the same BMC, but who can tell before it is asked
	w.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, w.Name, "AddressChanged")
	assert.Nil(t, x.Run)
	d.Kill()
	must.Do(s.StartDaemon(ctx))(t)
	awaitRefusal(ctx, t, s, w.Name, "AddressChanged")
	r := fencectl(ctx, t, s, 3, "fence", w.Name, "--reason", "test", "--yes")
	assert.Contains(t, r.Stderr, "AddressChanged", "people are bound, too")
	r = fencectl(ctx, t, s, 3, "bmc", "test", w.Name)
	assert.Contains(t, r.Stderr, "AddressChanged", "its password is not sent there before it is enrolled")
	require.Zero(t, goBMC(t, w).Counts().Off)
	untouched(ctx, t, s, w)

	fencectl(ctx, t, s, 0, "bmc", "enroll", w.Name, "--reason", "new address of the same BMC", "--yes")
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// pointAt gives a BareMetalHost another address.
func pointAt(ctx context.Context, t *testing.T, s *scene.Scene, name, address string) {
	t.Helper()
	patch := []byte(`{"spec":{"bmc":{"address":"` + address + `"}}}`)
	must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
}

// lineOf is the line of a table that begins with a node's name.
func lineOf(table, node string) string {
	for line := range strings.Lines(table) {
		if first, _, _ := strings.Cut(line, " "); first == node {
			return line
		}
	}
	return ""
}

// Whoever may write BareMetalHosts, and the Machines of Nodes of their own, is sent no
// password of another host, keeps no other host from being fenced, and locks no account.
func TestForeignBareMetalHosts(t *testing.T) { // I9, I10
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Set: []string{"sweep.interval=10s"},
		Workers: []scene.Spec{
			{Name: "pinned", Protocol: scene.Redfish, Metal3: true}, {Name: "listed", Protocol: scene.IPMI},
			{Name: "thief"}, {Name: "plain"}, {Name: "rival-1"}, {Name: "rival-2"},
		},
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	requireGaps(ctx, t, s)
	pinned, listed := s.Worker("pinned"), s.Worker("listed")
	fencectl(ctx, t, s, 0, "bmc", "test", pinned.Name) // what the health check would do in ten seconds

	trap, other := newTrap(t), newTrap(t)
	for _, h := range []rig.Host{
		{Name: "thief", Address: trap.https, SkipVerify: true, Secret: "pinned-bmc"},
		{Name: "thief-of-none", Address: other.https, SkipVerify: true, Secret: "pinned-bmc", Machine: "pinned"}, // pinned's Machine names another
		{Name: "plain", Address: trap.http, User: scene.User, Password: scene.Password},
		{Name: "rival-1", Address: pinned.Service.BMCAddress(), SkipVerify: true, User: scene.User, Password: scene.WrongPassword},
		{Name: "rival-2", Address: listed.Address(), User: scene.User, Password: scene.WrongPassword},
	} {
		must.Do(s.Management.CreateHost(ctx, h))(t)
	}
	refused := map[string]string{"thief": "SecretShared", "plain": "InvalidHost", "rival-1": "DuplicateHost", "rival-2": "DuplicateHost"}
	for name := range refused {
		nameHost(ctx, t, s, name)
	}
	for name, code := range refused {
		awaitListed(ctx, t, s, name, code) // as its health check found
		for _, args := range [][]string{{"bmc", "test", name}, {"fence", name, "--reason", "test", "--yes"}} {
			assert.Contains(t, fencectl(ctx, t, s, 3, args...).Stderr, code, "%v", args)
		}
	}
	for _, w := range []*scene.Worker{pinned, listed} {
		w.Kubelet.Hang()
	}
	for _, w := range []*scene.Worker{pinned, listed} {
		awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
		requireBack(ctx, t, s, w)
		requireOneDeletion(t, s, w)
	}
	assert.Zero(t, trap.sent.Load()+other.sent.Load(), "what a trap was sent")
	assert.Zero(t, pinned.Service.WrongLogins(), "a wrong password would lock the account")
	for name := range refused {
		untouched(ctx, t, s, s.Worker(name))
	}
}

// trap is two services of somebody who waits for a password.
type trap struct {
	http, https string
	sent        atomic.Int64 // connections and requests
}

func newTrap(t *testing.T) *trap {
	x := &trap{}
	const system = "/redfish/v1/Systems/1"
	x.http = "redfish+" + x.serve(t, (*httptest.Server).Start) + system
	x.https = "redfish+" + x.serve(t, (*httptest.Server).StartTLS) + system
	return x
}

func (x *trap) serve(t *testing.T, start func(*httptest.Server)) (url string) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		x.sent.Add(1)
		http.Error(w, "thank you", http.StatusUnauthorized)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			x.sent.Add(1)
		}
	}
	start(server)
	t.Cleanup(server.Close)
	return server.URL
}

// nameHost has the Machine of a worker name the BareMetalHost of that name.
func nameHost(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	at := rig.Namespace + "/" + name
	patch := strings.NewReplacer("AT", at).Replace(`{"metadata":{"annotations":{"metal3.io/BareMetalHost":"AT"}},"spec":{"providerID":"baremetalhost:///AT"}}`)
	must.Do(s.Management.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

// A BareMetalHost leads to no address of this host unless the configuration says so,
// whatever name that has.
func TestBareMetalHostLeadsNowhereNear(t *testing.T) { // I10
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Set:     []string{"sweep.interval=10s", "bmcNetworks="},
		Workers: []scene.Spec{{Name: "healthy", Protocol: scene.IPMI}, {Name: "near"}, {Name: "by-name"}},
	})
	ctx := within(t)
	trap := newTrap(t)
	for name, address := range map[string]string{"near": trap.https, "by-name": strings.Replace(trap.https, "127.0.0.1", "localhost", 1)} {
		must.Do(s.Management.CreateHost(ctx, rig.Host{Name: name, Address: address, SkipVerify: true, User: scene.User, Password: scene.Password}))(t)
		nameHost(ctx, t, s, name)
	}
	must.Do(s.StartDaemon(ctx))(t)
	requireGaps(ctx, t, s)
	awaitListed(ctx, t, s, "near", "InvalidHost")
	assert.Contains(t, fencectl(ctx, t, s, 3, "bmc", "test", "near").Stderr, "bmcNetworks")
	awaitListed(ctx, t, s, "by-name", "BMCUnreachable") // what the name stands for is seen when it is dialed
	assert.Contains(t, fencectl(ctx, t, s, 2, "bmc", "test", "by-name", "-o", "wide").Stdout, "loopback")
	assert.Zero(t, trap.sent.Load(), "what a trap was sent")
}

// Whoever may write BareMetalHosts and Nodes reaches no other host with that: neither
// before a run nor in the middle of one.
func TestHostilePointersReachNoOtherHost(t *testing.T) { // I9, I10
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{
		{Name: "before", Protocol: scene.IPMI, Metal3: true}, {Name: "during", Protocol: scene.IPMI, Metal3: true},
		{Name: "doubled", Protocol: scene.IPMI}, {Name: "victim", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	requireGoodStatus(ctx, t, s)
	before, during, doubled, victim := s.Worker("before"), s.Worker("during"), s.Worker("doubled"), s.Worker("victim")
	at, asked := decoy(t, victim)
	for _, w := range []*scene.Worker{before, during} {
		fencectl(ctx, t, s, 0, "bmc", "test", w.Name) // what the health check would do in a minute
	}
	home := addressOf(ctx, t, s, during.Name)

	pointAt(ctx, t, s, before.Name, at)
	forged := must.Do(s.Cluster.CreateNode(ctx, rig.Node{Name: "forged", SystemUUID: doubled.UUID}))(t)
	for _, w := range []*scene.Worker{before, during, doubled} {
		w.Kubelet.Hang()
	}
	require.Eventually(t, func() bool { return goBMC(t, during).Counts().Off > 0 }, patience, 20*time.Millisecond)
	pointAt(ctx, t, s, during.Name, at)

	x := awaitRefusal(ctx, t, s, before.Name, "AddressChanged")
	assert.Nil(t, x.Run)
	x = awaitRefusal(ctx, t, s, doubled.Name, "DuplicateUUID")
	assert.Nil(t, x.Run)
	require.NoError(t, s.Cluster.Client().CoreV1().Nodes().Delete(ctx, forged.Name, metav1.DeleteOptions{}))

	r := awaitRun(ctx, t, s, during.Name, func(r wire.RunRecord) bool { return r.Result == wire.ResultHeld || r.Result == wire.ResultDone })
	t.Logf("the run whose BareMetalHost was pointed elsewhere: %s, %s: %s", r.Result, r.Reason, r.Note)
	awaitRun(ctx, t, s, doubled.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, doubled)
	pointAt(ctx, t, s, during.Name, home)
	if r.Result == wire.ResultHeld {
		fencectl(ctx, t, s, 0, "unfence", during.Name, "--reason", "pointed back")
	}
	requireNodes(ctx, t, s, during.Name)
	assert.True(t, during.BMC.Power(), "it is not left off")

	assert.Zero(t, asked.Load(), "datagrams to the BMC of another host")
	assert.Zero(t, goBMC(t, before).Counts().Off)
	assert.Zero(t, goBMC(t, victim).Counts())
	untouched(ctx, t, s, before)
	untouched(ctx, t, s, victim)
}

// decoy is another address of a worker's BMC, and how many datagrams came there.
func decoy(t *testing.T, w *scene.Worker) (address string, asked *atomic.Int64) {
	t.Helper()
	relay := must.Do(ipmisim.StartRelay(w.BMC.Addr()))(t)
	t.Cleanup(relay.Stop)
	asked = &atomic.Int64{}
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if !d.FromBMC {
			asked.Add(1)
		}
		return []ipmisim.Datagram{d}
	})
	return "ipmi://" + relay.Addr(), asked
}

// addressOf is where a BareMetalHost says that its BMC is.
func addressOf(ctx context.Context, t *testing.T, s *scene.Scene, name string) string {
	t.Helper()
	u := must.Do(s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
	spec, ok := u.Object["spec"].(map[string]any)
	require.True(t, ok)
	bmc, ok := spec["bmc"].(map[string]any)
	require.True(t, ok)
	address, ok := bmc["address"].(string)
	require.True(t, ok)
	return address
}

// Machines that never joined: one whose BMC reports the serial number of the inspection
// is power-cycled once and joins, one whose BMC reports another is refused, and one that
// was never inspected waits for a person who enrolls it by the name of the Machine.
func TestMachinesThatNeverJoined(t *testing.T) { // I8
	t.Parallel()
	check := scene.Metal("2s")
	check.NodeStartupTimeout, check.MaxUnhealthy = "20s", "100%"
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "inspected", Protocol: scene.Redfish, Metal3: true, Serial: "CZJ0A1B2C3"},
			{Name: "other-serial", Protocol: scene.Redfish, Metal3: true, Serial: "CZJ0A1B2C4"},
			{Name: "by-hand", Protocol: scene.IPMI, Metal3: true},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{check},
	})
	ctx := within(t)
	for _, name := range []string{"inspected", "other-serial", "by-hand"} {
		neverJoined(ctx, t, s, name)
	}
	inspect(ctx, t, s, "inspected", "CZJ0A1B2C3")
	inspect(ctx, t, s, "other-serial", "CZJ0A1B2C9")
	must.Do(s.StartDaemon(ctx))(t)

	linkWhenRegistered(ctx, t, s, "inspected")
	r := awaitMachineRun(ctx, t, s, "inspected", wire.ResultDone)
	assert.Empty(t, r.Node)
	assert.Equal(t, rig.Namespace+"/inspected", r.Machine)
	assert.Len(t, s.Worker("inspected").Service.System(0).Commands(), 2, "off and on, once")
	requireNoDeletion(t, s, s.Worker("healthy-1"))

	x := awaitMachineRefusal(ctx, t, s, "other-serial", "IdentityMismatch")
	assert.Nil(t, x.Run)
	assert.Contains(t, x.Message, "fencectl bmc enroll --machine "+rig.Namespace+"/other-serial", "what to do")
	refused := fencectl(ctx, t, s, 3, "fence", "--machine", rig.Namespace+"/other-serial", "--reason", "test", "--yes")
	assert.Contains(t, refused.Stderr, "IdentityMismatch", "people are bound, too")
	assert.Empty(t, s.Worker("other-serial").Service.System(0).Commands())

	w, machine := s.Worker("by-hand"), rig.Namespace+"/by-hand"
	awaitMachineRefusal(ctx, t, s, w.Name, "IdentityUnknown")
	require.Zero(t, goBMC(t, w).Counts().Off)
	fencectl(ctx, t, s, 0, "hold", "--machine", machine, "--reason", "somebody is at the rack")
	fencectl(ctx, t, s, 0, "bmc", "enroll", "--machine", machine, "--reason", "looked at the console", "--yes")
	awaitMachineRefusal(ctx, t, s, w.Name, "Hold")
	require.Zero(t, goBMC(t, w).Counts().Off, "a hold of the Machine binds")
	linkWhenRegistered(ctx, t, s, w.Name)
	fencectl(ctx, t, s, 0, "release", "--machine", machine, "--reason", "done")
	awaitMachineRun(ctx, t, s, w.Name, wire.ResultDone)
	assert.Equal(t, 1, goBMC(t, w).Counts().Off)
	untouched(ctx, t, s, s.Worker("healthy-2"))
}

// neverJoined takes the Node from a Machine, as if it had never had one.
func neverJoined(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	s.Worker(name).Kubelet.Hang()
	require.NoError(t, s.Cluster.Client().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	err := s.Cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{})
	require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err) // the Lease belongs to the Node
	patchStatus(ctx, t, s, rig.MachineResource.Resource, name, map[string]any{
		"nodeRef": nil, "phase": "Provisioned", "lastUpdated": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
}

// inspect writes what an inspection of a host found.
func inspect(ctx context.Context, t *testing.T, s *scene.Scene, name, serial string) {
	t.Helper()
	patchStatus(ctx, t, s, rig.HostResource.Resource, name, map[string]any{"hardware": map[string]any{
		"hostname": name, "ramMebibytes": 1024, "systemVendor": map[string]any{"manufacturer": "HPE", "serialNumber": serial},
	}})
}

// linkWhenRegistered plays the controller that links a Node to its Machine, once the
// kubelet has registered it.
func linkWhenRegistered(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	go func() {
		if _, err := s.Cluster.WaitNode(ctx, name, func(n *corev1.Node) bool { return n != nil }); err == nil {
			patchStatus(ctx, t, s, rig.MachineResource.Resource, name, map[string]any{
				"nodeRef": map[string]any{"kind": "Node", "name": name}, "phase": "Running"})
		}
	}()
}

func patchStatus(ctx context.Context, t *testing.T, s *scene.Scene, resource, name string, status map[string]any) {
	t.Helper()
	gvr := rig.MachineResource
	if resource == rig.HostResource.Resource {
		gvr = rig.HostResource
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	assert.NoError(t, err)
	_, err = s.Management.Dynamic().Resource(gvr).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	assert.NoError(t, err)
}

// explainMachine polls explain of a Machine until ok.
func explainMachine(ctx context.Context, t *testing.T, s *scene.Scene, name string, ok func(wire.Explanation) bool) wire.Explanation {
	t.Helper()
	return awaitAnswer(ctx, t, "what explain says of Machine "+name, func() (wire.Explanation, error) { return s.ExplainMachine(ctx, rig.Namespace+"/"+name) }, ok)
}

func awaitMachineRefusal(ctx context.Context, t *testing.T, s *scene.Scene, name, code string) wire.Explanation {
	t.Helper()
	return explainMachine(ctx, t, s, name, func(x wire.Explanation) bool { return x.Refused == code })
}

func awaitMachineRun(ctx context.Context, t *testing.T, s *scene.Scene, name, result string) wire.RunRecord {
	t.Helper()
	x := explainMachine(ctx, t, s, name, func(x wire.Explanation) bool { return x.Run != nil && x.Run.Result == result })
	return *x.Run
}
