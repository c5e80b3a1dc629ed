package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Whoever may write BareMetalHosts, and the Machines of Nodes of their own, is sent no
// password of another host, keeps no other host from being fenced, and locks no account.
func TestForeignBareMetalHosts(t *testing.T) { // I9, I10
	t.Parallel()
	s := set(t, scene.Options{
		Set: []string{"sweep.interval=10s"},
		Workers: []scene.Spec{
			{Name: "pinned", Protocol: scene.Redfish, Metal3: true}, {Name: "listed", Protocol: scene.IPMI},
			{Name: "thief"}, {Name: "plain"}, {Name: "rival-1"}, {Name: "rival-2"},
		},
	})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
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
		_, err := s.Management.CreateHost(ctx, h)
		require.NoError(t, err)
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
	_, err := s.Management.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// A BareMetalHost leads to no address of this host unless the configuration says so,
// whatever name that has.
func TestBareMetalHostLeadsNowhereNear(t *testing.T) { // I10
	t.Parallel()
	s := set(t, scene.Options{
		Set:     []string{"sweep.interval=10s", "bmcNetworks="},
		Workers: []scene.Spec{{Name: "healthy", Protocol: scene.IPMI}, {Name: "near"}, {Name: "by-name"}},
	})
	ctx := within(t)
	trap := newTrap(t)
	for name, address := range map[string]string{"near": trap.https, "by-name": strings.Replace(trap.https, "127.0.0.1", "localhost", 1)} {
		_, err := s.Management.CreateHost(ctx, rig.Host{Name: name, Address: address, SkipVerify: true, User: scene.User, Password: scene.Password})
		require.NoError(t, err)
		nameHost(ctx, t, s, name)
	}
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	awaitListed(ctx, t, s, "near", "InvalidHost")
	assert.Contains(t, fencectl(ctx, t, s, 3, "bmc", "test", "near").Stderr, "bmcNetworks")
	awaitListed(ctx, t, s, "by-name", "BMCUnreachable") // what the name stands for is seen when it is dialed
	assert.Contains(t, fencectl(ctx, t, s, 2, "bmc", "test", "by-name", "-o", "wide").Stdout, "loopback")
	assert.Zero(t, trap.sent.Load(), "what a trap was sent")
}
