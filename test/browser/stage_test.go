package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/apiserver"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// programs is the directory of the programs; "" before they are built.
var programs string

// builds are the programs as they are shipped, built once.
var builds = sync.OnceValues(func() (scene.Programs, error) {
	var err error
	if programs, err = os.MkdirTemp("", "fenced-browser-"); err != nil {
		return scene.Programs{}, err
	}
	return scene.Build(context.Background(), programs, false)
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

const policies = `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: workers}
spec:
  nodeSelector: {matchLabels: {scene/pool: metal}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
---
apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: storage}
spec:
  nodeSelector: {matchLabels: {scene/pool: storage}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  limit: 1
  strategy: PowerCycle
`

// The Nodes of the stage by what is wrong with them. All others are well.
const (
	hungNode    = "node-03"    // it hangs while somebody watches
	heldNode    = "node-05"    // a person has fenced it and keeps it off
	muteNode    = "node-06"    // its BMC is dead
	blockedNode = "storage-01" // it is down, as is the next, and the limit of their check is one
	alsoBlocked = "storage-02"
	noCheckNode = "spare-01" // no check covers it
)

// stage is fenced as it is shipped, over a Kubernetes API in memory and simulated BMCs, in which something of each kind is wrong.
type stage struct{ *scene.Scene }

// setStage sets the stage with that many Nodes that are well beside those above.
func setStage(t testing.TB, more int) stage {
	t.Helper()
	if testing.Short() {
		t.Skip("sets a scene, which -short leaves out")
	}
	workers := []scene.Spec{
		{Name: hungNode, Protocol: scene.IPMI}, {Name: heldNode, Protocol: scene.IPMI, Pool: "spare"}, {Name: muteNode, Protocol: scene.IPMI}, {Name: "node-07", Protocol: scene.Redfish},
		{Name: blockedNode, Protocol: scene.IPMI, Pool: "storage"}, {Name: alsoBlocked, Protocol: scene.IPMI, Pool: "storage"}, {Name: "storage-03", Protocol: scene.IPMI, Pool: "storage"},
		{Name: noCheckNode, Protocol: scene.IPMI, Pool: "spare"},
	}
	for i := range more {
		workers = append(workers, scene.Spec{Name: fmt.Sprintf("node-%02d", 8+i), Protocol: scene.IPMI})
	}
	s, err := scene.New(t.Context(), scene.Options{
		Programs: must.Do(builds())(t), Machines: scene.NoMachines, CRDs: []rig.CRDs{}, Workers: workers, Policies: map[string]string{"checks.yaml": policies},
		StandIn: func(audit io.Writer) (rig.API, error) { return apiserver.Start(apiserver.Options{Audit: audit}) },
		Set:     []string{"sweep.interval=10s", "power.readTimeout=2s"}, LeaseDuration: 4 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Died())
		if t.Failed() {
			t.Logf("the logs are kept in %s; the end of fenced's:\n%s", s.KeepLogs(), s.LogTail(50))
		}
		s.Stop()
	})
	st := stage{s}
	for i, w := range s.Workers {
		st.place(t, w.Name, fmt.Sprintf("zone-%c", 'a'+i%3), fmt.Sprintf("rack-%d", 1+i%6))
	}
	s.Worker(blockedNode).Kubelet.Hang()
	s.Worker(alsoBlocked).Kubelet.Hang()
	for _, name := range []string{blockedNode, alsoBlocked} { // both, before fenced can fence one of them
		must.Do(s.Cluster.WaitNode(t.Context(), name, func(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionUnknown }))(t)
	}
	must.Do(s.StartDaemon(t.Context()))(t)
	s.Worker(muteNode).KillBMC()
	s.Worker(heldNode).Kubelet.Hang()
	var r scene.Result
	require.Eventually(t, func() bool { // once the Node is Unknown
		r = must.Do(s.Fencectl(t.Context(), "fence", heldNode, "--off-only", "--wait", "--yes", "--reason", "the disk fails"))(t)
		return r.Exit == 0
	}, patience, time.Second, "%v", text(func() string { return r.Stderr }))
	st.await(t, func(n map[string]wire.Node) bool {
		_, _ = s.Fencectl(t.Context(), "bmc", "test", muteNode) // so that nobody waits for the health check
		return n[heldNode].State == wire.NodeHeld && n[muteNode].State == wire.NodeUnfenceable && n[blockedNode].State == wire.NodeBlocked &&
			n[alsoBlocked].State == wire.NodeBlocked && n[noCheckNode].State == wire.NodeUncovered && n[hungNode].State == wire.NodeHealthy && n[hungNode].Zone == "zone-a"
	})
	return st
}

// place gives a Node the labels of zone and rack.
func (s stage) place(t testing.TB, node, zone, rack string) {
	t.Helper()
	labels := map[string]string{"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/rack": rack}
	patch := must.Do(json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}}))(t)
	must.Do(s.Cluster.Client().CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}))(t)
}

// nodes are all Nodes by name, as fencectl nodes has them.
func (s stage) nodes(t testing.TB) map[string]wire.Node {
	r, err := s.Fencectl(t.Context(), "nodes", "-o", "json")
	if err != nil {
		return nil
	}
	var all wire.Nodes
	if json.Unmarshal([]byte(r.Stdout), &all) != nil {
		return nil
	}
	byName := map[string]wire.Node{}
	for _, n := range all.Nodes {
		byName[n.Name()] = n
	}
	return byName
}

func (s stage) await(t testing.TB, ok func(map[string]wire.Node) bool) {
	t.Helper()
	var last map[string]wire.Node
	require.Eventually(t, func() bool {
		last = s.nodes(t)
		return ok(last)
	}, patience, 500*time.Millisecond, "%v", text(func() string { return fmt.Sprintf("%+v", last) }))
}

// text is a message that is made when it is needed.
type text func() string

func (f text) String() string { return f() }

// ui is a running fencectl ui.
type ui struct {
	address string // with the token
	host    string // 127.0.0.1:PORT
}

// startUI starts fencectl ui against a socket, until the end of the test.
func startUI(t testing.TB, socket string) ui {
	t.Helper()
	cmd := exec.Command(must.Do(builds())(t).Fencectl, "--socket", socket, "ui", "-o", "json")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out := must.Do(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		assert.NoError(t, cmd.Wait(), complaints.String())
	})
	var told struct{ Address string }
	require.NoError(t, json.NewDecoder(out).Decode(&told))
	host, _, _ := strings.Cut(strings.TrimPrefix(told.Address, "http://"), "/")
	return ui{told.Address, host}
}

// patience is for what happens at once on a machine that is not busy.
const patience = 3 * time.Minute

// The names that lead to this machine in the browser: of an attacker's server, and the one that he points at the page later.
const (
	attackerName = "attacker.test"
	rebindName   = "rebind.test"
)

// need skips a test without a peer, which make deps installs; where CI=true the test fails.
func need(t testing.TB, there bool, what string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("CI") == "true":
		t.Fatalf("there is no %s; make deps installs it", what)
	default:
		t.Skipf("there is no %s; make deps installs it", what)
	}
}

// axe is the source of axe-core.
func axe(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(must.Do(os.UserCacheDir())(t), "fenced-test", "axe-core-*", "axe.min.js"))
	need(t, len(found) == 1, "axe-core in the cache of the tests")
	return string(must.Do(os.ReadFile(found[0]))(t))
}

// chrome is a Chromium with a profile of its own. No name leads it off this machine.
type chrome struct{ ctx context.Context }

func startChrome(t testing.TB) chrome {
	t.Helper()
	program, err := exec.LookPath("chromium")
	need(t, err == nil, "chromium")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP "+attackerName+" 127.0.0.1, MAP "+rebindName+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(patience))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx), "start Chromium")
	return chrome{ctx}
}

// tab is one tab, with all that it asked for and complained about.
type tab struct {
	ctx   context.Context
	close context.CancelFunc

	mu        sync.Mutex
	requests  []string // addresses
	answers   []answer // to requests that were answered
	complains []string // errors and warnings in its console
}

type answer struct {
	url    string
	status int64
}

func (c chrome) open(t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	b := &tab{ctx: ctx, close: cancel}
	require.NoError(t, chromedp.Listen(ctx, b.note))
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventResponseReceived:
		b.answers = append(b.answers, answer{e.Response.URL, e.Response.Status})
	case *runtime.EventExceptionThrown:
		b.complains = append(b.complains, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.complains = append(b.complains, fmt.Sprintf("console.%s: %s", e.Type, e.Args[0].Value))
	case *log.EventEntryAdded:
		b.complains = append(b.complains, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	}
}

// do carries out steps, within patience.
func (b *tab) do(t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, steps...))
}

// eval gives the value of an expression, of a promise when that is kept.
func eval[T any](t testing.TB, b *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return must.Do(chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(t)
}

// wait waits until an expression is true.
func (b *tab) wait(t testing.TB, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoError(t, err, expression)
}

// size makes the tab that many pixels wide, light or dark.
func (b *tab) size(t testing.TB, width int64, scheme string) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// elsewhere lists the requests that went to another place than this one.
func (b *tab) elsewhere(host string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Host != host && u.Scheme != "about" {
			list = append(list, r)
		}
	}
	return list
}

// complaints lists what the tab complained about, but for what contains one of these texts.
func (b *tab) complaints(but ...string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.complains), func(text string) bool {
		return slices.ContainsFunc(but, func(expected string) bool { return strings.Contains(text, expected) })
	})
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	return string(must.Do(json.Marshal(v))(t))
}

// cookieOf is the cookie that the browser has for an address. No script can read it.
func cookieOf(t testing.TB, c chrome, address string) *http.Cookie {
	t.Helper()
	tab := c.open(t)
	defer tab.close()
	tab.do(t, chromedp.Navigate(address))
	assert.Empty(t, eval[string](t, tab, "document.cookie"))
	var cookie *http.Cookie
	tab.do(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		found, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{URLs: []string{address}})
		if err == nil && len(found.Cookies) == 1 {
			cookie = &http.Cookie{Name: found.Cookies[0].Name, Value: found.Cookies[0].Value}
		}
		return err
	}))
	require.NotNil(t, cookie)
	return cookie
}
