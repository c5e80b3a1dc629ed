package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
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
	s := set(t, o)
	ctx := within(t)
	pointAt(ctx, t, s, "alias", "ipmi://"+s.Worker("owner").BMC.Addr()) // not the address that owner's entry has
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	for _, name := range []string{"owner", "swapped-a", "swapped-b", "alias"} { // nobody may ask the other two
		_, err := s.BMCs(ctx, "test", name)
		require.NoError(t, err)
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
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "moved", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	fencectl(ctx, t, s, 0, "bmc", "test", "moved") // what the health check would do in a minute
	w := s.Worker("moved")
	pointAt(ctx, t, s, w.Name, "ipmi://"+w.BMC.Addr()) // the same BMC, but who can tell before it is asked
	w.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, w.Name, "AddressChanged")
	assert.Nil(t, x.Run)
	d.Kill()
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
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
	_, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
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
