package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// answerTime is how long a daemon may take to answer, whatever its store does.
const answerTime = 2 * time.Second

// peer is one of several fenced that a scene has, with a name and files of its own.
type peer struct {
	*scene.Daemon
	name, socket string
	client       *api.Client
	start        func() *peer // again, with the same files
}

// launchPeer starts a fenced by the name beside others; env says where its state is.
func launchPeer(t *testing.T, s *scene.Scene, name string, env ...string) *peer {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(s.Config()), name+"-")
	require.NoError(t, err)
	own := []string{"INSTANCE=" + name, "CONTROL_SOCKET=" + filepath.Join(dir, "sock"), "CONTROL_PAUSEFILE=" + filepath.Join(dir, "paused"),
		"AUDIT_PATH=" + filepath.Join(dir, "audit.jsonl"), "STATE_PATH=" + filepath.Join(dir, "state.db")}
	var all []string
	for _, kv := range append(own, env...) {
		all = append(all, "FENCED_"+kv)
	}
	programs, err := builds()
	require.NoError(t, err)
	p := &peer{name: name, socket: filepath.Join(dir, "sock")}
	p.client = api.New(p.socket)
	p.start = func() *peer {
		d, err := s.Launch(programs.Fenced, all...)
		require.NoError(t, err)
		t.Cleanup(func() { // before the etcd that it may use goes
			select {
			case <-d.Done():
			default:
				d.Kill()
			}
		})
		again := *p
		again.Daemon = d
		return &again
	}
	return p.start()
}

// shareEtcd starts an etcd of three members that ask for certificates, and says what
// makes a fenced use it.
func shareEtcd(t *testing.T, s *scene.Scene) (*rig.EtcdCluster, []string) {
	t.Helper()
	c, err := rig.StartEtcd(t.Context(), rig.EtcdOptions{TLS: true, Dir: filepath.Dir(s.Config())})
	require.NoError(t, err)
	t.Cleanup(func() {
		if !assert.NoError(t, c.Died()) || t.Failed() {
			c.KeepLogs()
		}
		c.Stop()
	})
	return c, []string{"STATE_ENGINE=etcd", "STATE_ETCD_ENDPOINTS=" + strings.Join(c.Endpoints(), ","),
		"STATE_ETCD_CA=" + c.CA(), "STATE_ETCD_CERT=" + c.Cert(), "STATE_ETCD_KEY=" + c.Key()}
}

// cluster is what a peer says about the cluster, and about its open runs.
func (p *peer) cluster(ctx context.Context) (wire.ClusterStatus, []wire.RunStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := p.client.Status(ctx)
	if err != nil || len(r.Value.Clusters) != 1 {
		return wire.ClusterStatus{}, nil, err
	}
	return r.Value.Clusters[0], r.Value.Runs, nil
}

// awaitCluster waits until a peer says about the cluster what ok wants.
func (p *peer) awaitCluster(ctx context.Context, t *testing.T, what string, ok func(wire.ClusterStatus) bool) wire.ClusterStatus {
	t.Helper()
	var last wire.ClusterStatus
	var err error
	for ctx.Err() == nil {
		last, _, err = p.cluster(ctx)
		if err == nil && ok(last) {
			return last
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Failf(t, "fenced "+p.name+" never says that "+what, "it says %+v, %v", last, err)
	return last
}

// acting: this instance owns the cluster, and nothing keeps it from acting.
func acting(c wire.ClusterStatus) bool { return c.Owner && c.Problem == "" }

// awaitOwner waits until one of two peers acts.
func awaitOwner(ctx context.Context, t *testing.T, a, b *peer) (owner, other *peer, is wire.ClusterStatus) {
	t.Helper()
	for ctx.Err() == nil {
		for _, pair := range [][2]*peer{{a, b}, {b, a}} {
			if is, _, err := pair[0].cluster(ctx); err == nil && acting(is) {
				return pair[0], pair[1], is
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Fail(t, "nobody takes the cluster")
	return nil, nil, is
}

// openRun is a peer's open run on a worker, which is there.
func (p *peer) openRun(ctx context.Context, t *testing.T, w *scene.Worker) wire.RunStatus {
	t.Helper()
	for ctx.Err() == nil {
		_, runs, err := p.cluster(ctx)
		if err != nil {
			continue // the machine is busy
		}
		for _, r := range runs {
			if r.Node == w.Name {
				return r
			}
		}
		break
	}
	require.Failf(t, "no open run", "on %s", w.Name)
	return wire.RunStatus{}
}

// awaitDone waits until a peer shows that the newest run on a worker is done.
func (p *peer) awaitDone(ctx context.Context, t *testing.T, w *scene.Worker) wire.RunRecord {
	t.Helper()
	var last wire.RunRecord
	for ctx.Err() == nil {
		r, err := p.client.NodeTimeline(ctx, scene.ClusterName, w.Name)
		if err == nil && len(r.Value.Runs) > 0 {
			if last = r.Value.Runs[len(r.Value.Runs)-1]; last.Result == wire.ResultDone {
				return last
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "the run is not done", "on %s: %+v", w.Name, last)
	return last
}

// fencectl runs the built one against this peer.
func (p *peer) fencectl(ctx context.Context, t *testing.T, args ...string) (out string, exit int) {
	t.Helper()
	programs, err := builds()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, programs.Fencectl, append([]string{"--socket", p.socket}, args...)...)
	text, err := cmd.CombinedOutput()
	require.GreaterOrEqual(t, cmd.ProcessState.ExitCode(), 0, err)
	return string(text), cmd.ProcessState.ExitCode()
}

// switched is how often a worker's host went off and on.
func switched(t *testing.T, w *scene.Worker) (offs, ons int) {
	t.Helper()
	b, ok := w.BMC.(*ipmisim.GoBMC)
	require.True(t, ok)
	for _, c := range b.Changes() {
		if c.On {
			ons++
		} else {
			offs++
		}
	}
	return offs, ons
}
