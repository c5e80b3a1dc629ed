package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// The owner stands still, with a proof in its memory, until another one has taken over, and then goes on: it finds that nothing is
// its any more. Then the new owner is killed while a host is off: the first one, over the same etcd, goes on with that very run.
// Started again, the killed one leaves the cluster where it is. // I19
func TestOwnerFrozenThenKilledInMidRun(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, threeWorkers())
	_, shared := shareEtcd(t, s)
	ctx := within(t)
	first, second, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	w, later := s.Worker("halfway"), s.Worker("later")
	hang(ctx, t, s, w)
	awaitOff(t, w)
	require.NoError(t, syscall.Kill(first.PID(), syscall.SIGSTOP))
	requireNoDeletion(t, s, w)
	taken := second.awaitCluster(ctx, t, "it owns the cluster", func(c wire.ClusterStatus) bool { return c.Owner })
	require.NoError(t, syscall.Kill(first.PID(), syscall.SIGCONT))
	assert.Greater(t, taken.Epoch, before.Epoch)
	first.awaitCluster(ctx, t, "the other one acts", func(c wire.ClusterStatus) bool { return c.OwnerName == second.name && !c.Owner })
	second.awaitDone(ctx, t, w)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	first.awaitDone(ctx, t, w) // it sees what the other one did
	offs, ons := switched(t, w)
	assert.Equal(t, []int{1, 1}, []int{offs, ons}, "off once and on once, whoever was awake")

	hang(ctx, t, s, later)
	awaitOff(t, later)
	run := second.openRun(ctx, t, later)
	second.Kill()
	requireNoDeletion(t, s, later)
	done := first.awaitDone(ctx, t, later)
	assert.Equal(t, run.ID, done.ID, "it is the same run")
	requireBack(ctx, t, s, later)
	requireOneDeletion(t, s, later)
	now := first.awaitCluster(ctx, t, "it acts", acting)
	assert.Equal(t, first.name, now.OwnerName)
	assert.Greater(t, now.Epoch, taken.Epoch)
	text, exit := first.fencectl(ctx, t, "status")
	assert.Zero(t, exit, text)
	assert.Contains(t, text, strconv.FormatUint(now.Epoch, 10))

	again := second.start()
	is := again.awaitCluster(ctx, t, "the other one acts, and it sees the Nodes", func(c wire.ClusterStatus) bool { return c.OwnerName == first.name && c.Nodes == 3 })
	assert.False(t, is.Owner)
	assert.Equal(t, now.Epoch, is.Epoch)
	text, _ = again.fencectl(ctx, t, "status")
	assert.Contains(t, text, first.name)
	text, exit = again.fencectl(ctx, t, "fence", "healthy", "--reason", "test", "--yes")
	assert.Equal(t, 3, exit, text)
	assert.Contains(t, text, first.name, "orders are given there")
	untouched(ctx, t, s, s.Worker("healthy"))
}

// etcd loses its quorum while a host is off: nothing new is begun and nothing is sent,
// the host stays off on record, and comes back with the quorum. // I19, I20
func TestEtcdQuorumLostInMidRun(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, threeWorkers())
	etcd, shared := shareEtcd(t, s)
	ctx := within(t)
	only := launchPeer(t, s, "one", shared...)
	before := only.awaitCluster(ctx, t, "it acts", acting)
	w, later := s.Worker("halfway"), s.Worker("later")
	hang(ctx, t, s, w)
	awaitOff(t, w)
	for _, member := range []int{1, 2} { // their connections stay open
		require.NoError(t, etcd.Freeze(member))
	}
	hang(ctx, t, s, later)

	only.awaitCluster(ctx, t, "it owns the cluster no more", func(c wire.ClusterStatus) bool { return !c.Owner && c.Problem != "" })
	only.awaitCluster(ctx, t, "it would begin with another host", func(c wire.ClusterStatus) bool {
		for _, d := range c.Deviating {
			if d.Node == later.Name && d.Verdict == "Unhealthy" {
				return true
			}
		}
		return false
	})
	time.Sleep(2 * time.Second) // it could begin now
	x := must.Do(only.client.Explain(ctx, scene.ClusterName, later.Name))(t)
	assert.Equal(t, "NotOwner", x.Value.Refused)
	only.openRun(ctx, t, w)
	offs, ons := switched(t, w)
	assert.Equal(t, []int{1, 0}, []int{offs, ons}, "off, and nothing sent since")
	offs, ons = switched(t, later)
	assert.Equal(t, []int{0, 0}, []int{offs, ons})
	requireNoDeletion(t, s, w)
	requireNoDeletion(t, s, later)

	for _, member := range []int{1, 2} {
		require.NoError(t, etcd.Thaw(member))
	}
	only.awaitDone(ctx, t, w)
	only.awaitDone(ctx, t, later)
	for _, each := range []*scene.Worker{w, later} {
		requireBack(ctx, t, s, each)
		requireOneDeletion(t, s, each)
	}
	assert.Greater(t, only.awaitCluster(ctx, t, "it acts", acting).Epoch, before.Epoch)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// threeWorkers are two that a test hangs, one after the other, and one that nothing happens to. There are 12 s
// between Off and its proof, in which a test can break something.
func threeWorkers() scene.Options {
	return scene.Options{Set: []string{"power.offReadSpacing=12s"}, Workers: []scene.Spec{
		{Name: "halfway", Protocol: scene.IPMI}, {Name: "later", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI},
	}}
}

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
	dir := must.Do(os.MkdirTemp(filepath.Dir(s.Config()), name+"-"))(t)
	own := []string{"INSTANCE=" + name, "CONTROL_SOCKET=" + filepath.Join(dir, "sock"), "CONTROL_PAUSEFILE=" + filepath.Join(dir, "paused"),
		"AUDIT_PATH=" + filepath.Join(dir, "audit.jsonl"), "STATE_PATH=" + filepath.Join(dir, "state.db")}
	var all []string
	for _, kv := range append(own, env...) {
		all = append(all, "FENCED_"+kv)
	}
	programs := must.Do(builds())(t)
	p := &peer{name: name, socket: filepath.Join(dir, "sock")}
	p.client = api.New(p.socket)
	p.start = func() *peer {
		d := must.Do(s.Launch(programs.Fenced, all...))(t)
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
	c := must.Do(rig.StartEtcd(t.Context(), rig.EtcdOptions{TLS: true, Dir: filepath.Dir(s.Config())}))(t)
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
	programs := must.Do(builds())(t)
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

// Two daemons over one etcd are reloaded one after the other, in the middle of a run: first the standby, then the owner.
// The files differ between them for as long as that takes. The owner stays the owner and ends its run, and neither of the
// two drops the cluster while the run is open, whoever carries it out. // I19
func TestRollingReloadInMidRun(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{Workers: []scene.Spec{{Name: "halfway", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	_, shared := shareEtcd(t, s)
	ctx := within(t)
	owner, standby, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	standby.awaitCluster(ctx, t, "it sees the Nodes", func(c wire.ClusterStatus) bool { return c.Nodes == 2 })
	reload := func(p *peer) (string, error) {
		done, err := p.client.Do(ctx, wire.Order{Verb: wire.Reload, Reason: "rolling"})
		return done.Value.Message, err
	}
	w := s.Worker("halfway")
	ignoreOn(w, true) // the run stays open
	hang(ctx, t, s, w)
	awaitOff(t, w)
	run := owner.openRun(ctx, t, w)

	put(t, s, "conf.d/rolling.yaml", "guards: {maxInFlight: 1}\n")
	put(t, s, "hosts.d/spare.yaml", "hosts: [{node: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	for _, p := range []*peer{standby, owner} {
		said := must.Do(reload(p))(t)
		assert.Equal(t, "reloaded: took in guards.maxInFlight, hosts.d (added scene/spare)", said)
		now := owner.awaitCluster(ctx, t, "it acts", acting)
		assert.Equal(t, before.Epoch, now.Epoch, "the cluster has changed its owner")
		assert.Equal(t, run.ID, owner.openRun(ctx, t, w).ID)
	}

	files := must.Do(os.ReadFile(s.Config()))(t)
	renamed := strings.Replace(string(files), "{name: "+scene.ClusterName+",", "{name: renamed,", 1)
	require.NotEqual(t, string(files), renamed)
	require.NoError(t, os.WriteFile(s.Config(), []byte(renamed), 0o600))
	for _, p := range []*peer{standby, owner} {
		_, err := reload(p)
		refused := &api.Error{}
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, string(reason.ReloadRefused), refused.Code)
		assert.Contains(t, refused.Message, "cluster scene cannot be removed while a run is open in it ("+run.ID+" on halfway)")
	}
	require.NoError(t, os.WriteFile(s.Config(), files, 0o600))

	ignoreOn(w, false)
	assert.Equal(t, run.ID, owner.awaitDone(ctx, t, w).ID)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
	assert.Equal(t, before.Epoch, owner.awaitCluster(ctx, t, "it acts", acting).Epoch)
}
