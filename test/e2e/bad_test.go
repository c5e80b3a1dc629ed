package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// bad is a worker with something wrong about it, and the reason code that
// explain gives when it hangs.
var bad = []struct {
	scene.Spec
	reason string
	result string // of the run that was begun; "": there is none
}{
	{Spec: scene.Spec{Name: "no-host", Protocol: scene.IPMI, Unlisted: true}, reason: "NoHost"},
	{Spec: scene.Spec{Name: "no-secret", Protocol: scene.Redfish, Metal3: true, NoSecret: true}, reason: "SecretMissing"},
	{Spec: scene.Spec{Name: "wrong-password", Protocol: scene.IPMI, WrongPassword: true}, reason: "BMCAuth"},
	{Spec: scene.Spec{Name: "wrong-password-2", Protocol: scene.Redfish, Metal3: true, WrongPassword: true}, reason: "BMCAuth"},
	{Spec: scene.Spec{Name: "stranger", Protocol: scene.IPMI, Metal3: true, OtherUUID: true}, reason: "IdentityMismatch"},
	{Spec: scene.Spec{Name: "stranger-2", Protocol: scene.Redfish, OtherUUID: true}, reason: "IdentityMismatch"},
	{Spec: scene.Spec{Name: "negative", Protocol: scene.IPMI, Pool: "negative"}, reason: "InvalidCheck"},
	{Spec: scene.Spec{Name: "garbled", Protocol: scene.IPMI, Pool: "garbled"}, reason: "InvalidCheck"},
	{Spec: scene.Spec{Name: "stays-on", Protocol: scene.IPMI, Metal3: true}, reason: "PowerOffFailed", result: wire.ResultWaiting},
	{Spec: scene.Spec{Name: "zombie", Protocol: scene.IPMI}, reason: "FalseOff", result: wire.ResultHeld},
}

// Whatever is wrong, there is a reason code for it, no Node is deleted and no
// host is left off.
func TestBadInputDeletesNothing(t *testing.T) {
	t.Parallel()
	o := scene.Options{
		Set: []string{"power.offDeadline=12s"},
		Checks: []rig.Check{
			scene.Metal("2s"),
			invalid("negative", "-5m"),
			invalid("garbled", "foo10m"),
		},
		Workers: []scene.Spec{{Name: "healthy", Protocol: scene.IPMI}}, // or everything is down
	}
	for _, b := range bad {
		o.Workers = append(o.Workers, b.Spec)
	}
	s := set(t, o)
	ctx := within(t)
	require.NoError(t, s.Worker("stays-on").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("zombie").BMC.IgnoreOff(true))
	require.NoError(t, s.Worker("zombie").BMC.LieOff(true))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	for _, b := range bad {
		s.Worker(b.Name).Kubelet.Hang()
	}
	renewOnceOff(ctx, t, s, s.Worker("zombie"))

	for _, b := range bad {
		w := s.Worker(b.Name)
		x := awaitRefusal(ctx, t, s, b.Name, b.reason)
		if b.result != "" {
			require.NotNil(t, x.Run, b.Name)
			assert.Equal(t, b.result, x.Run.Result)
			assert.Equal(t, b.reason, x.Run.Reason)
		} else {
			assert.Nil(t, x.Run, "%s: a run was begun", b.Name)
			assert.True(t, refuses(x, b.reason), "%s: the gates are %+v", b.Name, x.Gates)
		}
		assert.True(t, w.BMC.Power(), "%s is on", b.Name)
	}
	for _, b := range bad {
		untouched(ctx, t, s, s.Worker(b.Name))
	}
	st, err := s.Status(ctx)
	require.NoError(t, err)
	assert.NotEmpty(t, st.Degraded())
}

// invalid is a check of a pool with a start-up timeout that is none.
func invalid(pool, startup string) rig.Check {
	k := scene.Metal("2s")
	k.Name, k.Match, k.NodeStartupTimeout = pool, scene.Pool(pool), startup
	return k
}

// renewOnceOff renews the Lease of a host again and again once fenced has sent
// Off to its BMC: the kubelet lives although the BMC says that the host is off.
func renewOnceOff(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	b, ok := w.BMC.(*ipmisim.GoBMC)
	require.True(t, ok)
	require.Eventually(t, func() bool { return b.Counts().Off > 0 }, patience, 50*time.Millisecond, "Off was sent to %s", w.Name)
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			err := s.Cluster.PutLease(ctx, rig.Lease{
				Namespace: "kube-node-lease", Name: w.Name, Holder: w.Name, Duration: 40 * time.Second,
			})
			assert.True(t, err == nil || ctx.Err() != nil, "renew the Lease: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// awaitRefusal waits until explain gives a reason for a node; questions that are
// refused are repeated, because the daemon may not have seen the cluster yet.
func awaitRefusal(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) wire.Explanation {
	t.Helper()
	var last wire.Explanation
	var lastErr error
	for ctx.Err() == nil {
		last, lastErr = s.Explain(ctx, node)
		if lastErr == nil && last.Refused == code {
			return last
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Failf(t, "no such refusal", "%s of %s; the last one: %+v; last error: %v", code, node, last, lastErr)
	return last
}

// refuses says whether a gate is closed for a reason.
func refuses(x wire.Explanation, code string) bool {
	for _, g := range x.Gates {
		if !g.Pass && g.Reason == reason.Code(code) {
			return true
		}
	}
	return false
}
