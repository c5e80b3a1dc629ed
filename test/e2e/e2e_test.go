// Package e2e runs the built fenced and fencectl as processes against a real
// API server, or where onStandIn says so a stand-in for it, and BMCs that speak the real protocols.
package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// planes are for the first scene of each test. The address of a second one, which ends before the first, is known
// to the first one's fenced.
var (
	planes   rig.Pool
	hasScene sync.Map // by name of the test
)

// builds makes the programs once for all tests of this binary.
var (
	programsDir string
	builds      = sync.OnceValues(func() (scene.Programs, error) {
		return scene.Build(context.Background(), programsDir, true)
	})
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fenced-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programsDir = dir
	debug.SetGCPercent(400) // few objects live, and much is decoded: collections would take a tenth of the time
	// A scene waits far more than it computes. Its control plane, with what else it runs, takes less than a gigabyte.
	pace.Together(min(16, pace.Fit(1<<30)))
	code := m.Run()
	planes.Stop()
	_ = os.RemoveAll(dir) // left-overs in the temporary directory harm nobody
	os.Exit(code)
}

// set puts a scene on stage until the test ends. When the test fails it keeps the
// scene's logs, says where, and shows the end of fenced's.
func set(t *testing.T, o scene.Options) *scene.Scene {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	var err error
	o.Programs, err = builds()
	require.NoError(t, err)
	if o.GracePeriod == 0 {
		o.GracePeriod, o.LeaseEvery = 8*time.Second, 2*time.Second // other packages' tests share the two cores; a quarter of it, as kubelets have
	}
	o.Progress = os.Stderr
	if _, second := hasScene.LoadOrStore(t.Name(), true); !second {
		o.Pool = &planes
		t.Cleanup(func() { hasScene.Delete(t.Name()) })
	}
	s := must.Do(scene.New(t.Context(), o))(t)
	t.Cleanup(func() {
		assert.NoError(t, s.Died())
		if t.Failed() {
			t.Logf("the logs are kept in %s; the end of fenced's:\n%s", s.KeepLogs(), s.LogTail(50))
		}
		s.Stop()
	})
	return s
}

// onStandIn puts a scene on the stand-in for kube-apiserver. It is for tests of BMCs, outlets, limits, stores, people and journals, to which the API is
// only where the Nodes are. docs/testing.md names each.
func onStandIn(t *testing.T, o scene.Options) *scene.Scene {
	t.Helper()
	o.StandIn = inMemory
	return set(t, o)
}

func inMemory(audit io.Writer) (rig.API, error) {
	return apiserver.Start(apiserver.Options{Audit: audit})
}

// patience bounds each wait. A busy machine may need minutes; only a hang needs more.
const patience = 8 * time.Minute

// within is a context that ends with the test, or when patience does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// pause waits before a question is asked again, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// awaitRun polls the newest run of a node until ok; polls that fail are
// repeated, because the daemon may be restarting.
func awaitRun(ctx context.Context, t *testing.T, s *scene.Scene, node string, ok func(wire.RunRecord) bool) wire.RunRecord {
	t.Helper()
	return awaitAnswer(ctx, t, "the run of "+node, func() (r wire.RunRecord, err error) {
		runs, err := s.Timeline(ctx, node)
		if err == nil && len(runs) == 0 {
			err = errors.New("there is no run")
		}
		if err != nil {
			return r, err
		}
		return runs[len(runs)-1], nil
	}, ok)
}

// awaitAnswer asks until an answer is ok. Questions that fail are asked again.
func awaitAnswer[T any](ctx context.Context, t *testing.T, what string, ask func() (T, error), ok func(T) bool) T {
	t.Helper()
	var last T
	var lastErr error
	for ctx.Err() == nil {
		answer, err := ask()
		if lastErr = err; err == nil {
			last = answer
			if ok(last) {
				return last
			}
		}
		pause(ctx, 200*time.Millisecond)
	}
	require.Failf(t, "never: "+what, "the last answer: %+v; last error: %v", last, lastErr)
	return last
}

func result(want string) func(wire.RunRecord) bool {
	return func(r wire.RunRecord) bool { return r.Result == want }
}

// requireBack checks that a Node is another than before, and has all it wore.
func requireBack(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n := must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
	assert.NotEqual(t, w.Registered.UID, n.UID, "a new Node registered")
	assert.NotEqual(t, w.Registered.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID)
	assert.Empty(t, w.Undressed(n), "all that the Node wore is back")
}

// requireOneDeletion gives the one deletion of a Node in the audit log.
func requireOneDeletion(t *testing.T, s *scene.Scene, w *scene.Worker) rig.Deletion {
	t.Helper()
	d := must.Do(s.Cluster.NodeDeletions(w.Name))(t)
	require.Len(t, d, 1, "deletions of Node %s in the API server's audit log", w.Name)
	assert.Equal(t, rig.FencedUser, d[0].User)
	assert.Equal(t, string(w.Registered.UID), d[0].UID, "the UID precondition")
	assert.NotEmpty(t, d[0].ResourceVersion, "the resourceVersion precondition")
	return d[0]
}

func requireNoDeletion(t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	d := must.Do(s.Cluster.NodeDeletions(w.Name))(t)
	require.Empty(t, d, "deletions of Node %s in the API server's audit log", w.Name)
}

// untouched checks that a worker that nothing happened to is the same as before.
func untouched(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n := must.Do(s.Cluster.WaitNode(ctx, w.Name, func(n *corev1.Node) bool { return n != nil }))(t)
	assert.Equal(t, w.Registered.UID, n.UID)
	assert.Empty(t, w.Undressed(n))
	requireNoDeletion(t, s, w)
}

func unknown(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionUnknown }

// ignoreOn makes a BMC accept a power on and do nothing, or obey again.
func ignoreOn(w *scene.Worker, ignore bool) {
	w.Service.System(0).Quirks(func(q *redfishsim.Quirks) { q.IgnoreOn = ignore })
}

const witnessEvery = 150 * time.Millisecond

// testimony is one answer of a BMC to a client that has nothing in common with
// fenced's own.
type testimony struct {
	asked, answered time.Time
	state           string // as that client said it
}

// witness asks a BMC again and again.
type witness struct {
	mu   sync.Mutex
	seen []testimony
}

// watchBMC asks a worker's BMC until the test ends: with ipmitool, or by plain
// HTTPS.
func watchBMC(t *testing.T, w *scene.Worker) *witness {
	t.Helper()
	ask := askIPMI(t, w)
	if w.Service != nil {
		ask = askRedfish(t, w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wit := &witness{}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			asked := time.Now()
			if state, err := ask(ctx); err == nil { // no answer is no testimony
				wit.add(testimony{asked, time.Now(), state})
			}
			pause(ctx, witnessEvery)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return wit
}

func (w *witness) add(t testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, t)
}

// requireOffAt checks that the BMC said off in the last answer before at, in
// every one that was under way then, and in the first one after.
func (w *witness) requireOffAt(t *testing.T, at time.Time) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	before, after := testimony{}, testimony{}
	for _, s := range w.seen {
		switch {
		case !s.answered.After(at):
			before = s
		case after.asked.Before(at): // also the one that was under way
			require.Equal(t, "off", s.state, "asked %s, answered %s, the Node was deleted %s", s.asked, s.answered, at)
			after = s
		}
	}
	require.Equal(t, "off", before.state, "answered %s, the Node was deleted %s", before.answered, at)
	require.WithinDuration(t, at, before.answered, pace.Tries, "the last answer before the deletion")
	require.Equal(t, "off", after.state, "the first answer after the deletion")
}

// saidOn says whether this witness ever saw the host on: else its "off" proves
// nothing.
func (w *witness) saidOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.state == "on" {
			return true
		}
	}
	return false
}

func askIPMI(t *testing.T, w *scene.Worker) func(context.Context) (string, error) {
	t.Helper()
	if w.Service != nil {
		return nil
	}
	host, port, err := net.SplitHostPort(w.BMC.Addr())
	require.NoError(t, err)
	return func(ctx context.Context) (string, error) {
		cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", "3", "-H", host, "-p", port,
			"-U", scene.User, "-P", scene.Password, "-N", "1", "-R", "1", "chassis", "power", "status")
		out, err := cmd.Output()
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(strings.TrimPrefix(string(out), "Chassis Power is ")), nil
	}
}

func askRedfish(t *testing.T, w *scene.Worker) func(context.Context) (string, error) {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(w.Service.CAPEM()))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 2 * time.Second}
	url := w.Service.URL() + w.Service.System(0).URI()
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		req.SetBasicAuth(scene.User, scene.Password)
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var system struct{ PowerState string }
		if err := json.NewDecoder(resp.Body).Decode(&system); err != nil {
			return "", err
		}
		if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s", resp.Status)
		}
		return strings.ToLower(system.PowerState), nil
	}
}

// needDebian skips without the Debian peers, which CI must have.
func needDebian(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed; `make deps` does it", p)
		}
		t.Skipf("%s is not installed; `make deps` does it", p)
	}
}

// write is a write of fenced that an API server did, by its own audit log.
type write struct{ verb, resource, subresource, name string }

// writes are those of fenced to one resource of one API server, in order.
func writes(t *testing.T, c *rig.ControlPlane, resource string) []write {
	t.Helper()
	log := must.Do(c.AuditLog())(t)
	var found []write
	for line := range bytes.Lines(log) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Name string }
			ResponseStatus struct{ Code int }
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		require.NoError(t, json.Unmarshal(line, &e))
		if e.User.Username == rig.FencedUser && e.ObjectRef.Resource == resource && e.ResponseStatus.Code < 300 {
			found = append(found, write{e.Verb, resource, e.ObjectRef.Subresource, e.ObjectRef.Name})
		}
	}
	return found
}

func writesBut(t *testing.T, c *rig.ControlPlane, resource, name string) []write {
	t.Helper()
	return slices.DeleteFunc(writes(t, c, resource), func(w write) bool { return w.name == name })
}

// planned asks for the plan until it says about a node what is wanted, and
// checks the exit status that belongs to such a plan.
func planned(ctx context.Context, t *testing.T, s *scene.Scene, node, refused string, exit int) wire.PlannedAction {
	t.Helper()
	var last scene.Result
	for ctx.Err() == nil {
		r := must.Do(s.Fencectl(ctx, "plan", "-o", "json"))(t)
		last = r
		var p wire.Plan
		if r.Exit == 0 || r.Exit == 2 {
			require.NoError(t, json.Unmarshal([]byte(r.Stdout), &p))
		}
		for _, c := range p.Clusters {
			for _, a := range c.Actions {
				if a.Node == node && a.Refused == refused {
					require.Equal(t, exit, r.Exit, "fencectl plan: %s", r.Stdout)
					require.Equal(t, refused == "", a.Gate == nil, "the gate that limits: %s", r.Stdout)
					return a
				}
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
	require.Failf(t, "no such plan", "%q for %s; the last one, exit status %d: %s%s", refused, node, last.Exit, last.Stdout, last.Stderr)
	return wire.PlannedAction{}
}

// covered asks what the checks cover, once the view is whole, by their names.
func covered(ctx context.Context, t *testing.T, s *scene.Scene, exit int) map[string]wire.CheckCoverage {
	t.Helper()
	var v wire.Coverage
	require.Eventually(t, func() bool {
		var err error
		v, err = s.Coverage(ctx)
		if err != nil || len(v.Clusters) != 1 || v.Clusters[0].Problem != "" {
			return false
		}
		invalid := slices.ContainsFunc(v.Clusters[0].Checks, func(k wire.CheckCoverage) bool { return k.State == "Invalid" })
		return exit != 0 || !invalid // until its template is read, a check is
	}, patience, 100*time.Millisecond, "the view is whole")
	fencectl(ctx, t, s, exit, "check-config")
	checks := map[string]wire.CheckCoverage{}
	for _, k := range v.Clusters[0].Checks {
		checks[k.Name] = k
	}
	return checks
}

// gateOf is the first gate of an explanation that is closed for a reason.
func gateOf(t *testing.T, x wire.Explanation, code string) (name, value, threshold, source string) {
	t.Helper()
	for _, g := range x.Gates {
		if !g.Pass && string(g.Reason) == code {
			return g.Name, g.Value, g.Threshold, g.Source
		}
	}
	require.Failf(t, "no such gate", "%s is not closed: %+v", code, x.Gates)
	return "", "", "", ""
}

// taintWatch notes when a Node carries the out-of-service taint.
type taintWatch struct{ seen chan time.Time }

// watchTaint watches a Node until the test ends.
func watchTaint(t *testing.T, s *scene.Scene, w *scene.Worker) *taintWatch {
	t.Helper()
	events := must.Do(s.Cluster.Client().CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + w.Name}))(t)
	tw := &taintWatch{seen: make(chan time.Time, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && outOfService(n) {
				select {
				case tw.seen <- time.Now():
				default: // the first is what counts
				}
			}
		}
	}()
	t.Cleanup(func() { events.Stop(); <-done })
	return tw
}

// first is when the taint was first seen; the run must be over.
func (w *taintWatch) first(t *testing.T) time.Time {
	t.Helper()
	select {
	case at := <-w.seen:
		return at
	default:
		require.Fail(t, "the Node was never tainted")
		return time.Time{}
	}
}

func outOfService(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// requireRebooted checks that a Node is the same as before after another boot,
// with all it wore and without the taint that fenced it.
func requireRebooted(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	n := must.Do(s.Cluster.WaitNode(ctx, w.Name, scene.IsReady))(t)
	assert.Equal(t, w.Registered.UID, n.UID, "the same Node")
	assert.NotEqual(t, w.Registered.Status.NodeInfo.BootID, n.Status.NodeInfo.BootID)
	assert.Empty(t, w.Undressed(n), "all that the Node wore is there")
	assert.False(t, outOfService(n), "the out-of-service taint is gone")
	requireNoDeletion(t, s, w)
}

// requireNotAsked checks that nobody said anything to the BMCs of workers, and
// that nothing happened to their Nodes.
func requireNotAsked(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	for _, name := range names {
		w := s.Worker(name)
		assert.True(t, w.BMC.Power(), "%s is on", name)
		assert.Zero(t, w.FirstAsked(), "the BMC of %s was asked", name)
		untouched(ctx, t, s, w)
	}
}
