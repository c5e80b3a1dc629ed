package browser

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// crowdNodes is how many Nodes the map of TestTenThousandNodesDraw has.
const crowdNodes = 10_000

// crowd is a scripted daemon with very many Nodes, behind the real socket, fencectl ui and browser.
type crowd struct {
	api.Daemon // what is not asked

	mu       sync.Mutex
	nodes    []wire.Node
	happened chan struct{}
}

func (c *crowd) Status(context.Context) (wire.Status, error) {
	return wire.Status{Version: "test", Armed: true, Runs: []wire.RunStatus{}, Clusters: []wire.ClusterStatus{{
		Name: "prod", Mode: "evaluate", Armed: true, Owner: true, Nodes: crowdNodes, Checks: []wire.CheckStatus{}, Deviating: []wire.TargetStatus{}}}}, nil
}

func (c *crowd) Nodes(_ context.Context, f wire.NodesFilter) (wire.Nodes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Nodes{Nodes: append([]wire.Node{}, c.nodes...)}.Cut(f), nil
}

func (*crowd) BMCs(context.Context, wire.BMCFilter) (wire.BMCs, error) {
	return wire.BMCs{BMCs: []wire.BMC{}}, nil
}

func (*crowd) Runs(context.Context, wire.RunFilter) (wire.Timeline, error) {
	return wire.Timeline{Runs: []wire.RunRecord{}}, nil
}

func (c *crowd) Events(ctx context.Context, _ uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.happened:
				if !yield(wire.Event{Type: "Refused"}, nil) {
					return
				}
			}
		}
	}
}

// blockEach blocks every so manieth Node, and tells that something happened.
func (c *crowd) blockEach(every int) {
	c.mu.Lock()
	for i := 0; i < len(c.nodes); i += every {
		c.nodes[i].State = wire.NodeBlocked
	}
	c.mu.Unlock()
	c.happened <- struct{}{}
}

// serveCrowd serves the crowd on a socket until the end of the test.
func serveCrowd(t *testing.T) (c *crowd, socket string) {
	t.Helper()
	c = &crowd{happened: make(chan struct{})}
	for i := range crowdNodes {
		c.nodes = append(c.nodes, wire.Node{
			Cluster: "prod", Node: fmt.Sprintf("worker-%05d", i), Zone: fmt.Sprintf("zone-%d", i*5/crowdNodes), Rack: fmt.Sprintf("rack-%03d", i*250/crowdNodes),
			State: wire.NodeHealthy, Checks: []string{"FencePolicy workers"}, BMCs: []string{fmt.Sprintf("ipmi://10.0.%d.%d:623", i/250, i%250)}, Fenceable: wire.FenceableYes})
	}
	socket = filepath.Join(t.TempDir(), "s")
	ln := must.Do(api.Listen(socket))(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.NewServer(c, api.Roles{}, log.New(io.Discard, "", 0)).Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	return c, socket
}

func onlyLong(t *testing.T) {
	t.Helper()
	if cmp.Or(os.Getenv("FENCED_SOAK"), "0") == "0" {
		t.Skip("measures; make once sets FENCED_SOAK")
	}
}

// TestTenThousandNodesDraw prints how long the map of ten thousand Nodes takes to be drawn, and until a change is on the screen. It
// requires that the map is whole, that an update changes what it should without a reload, and that axe-core finds nothing.
func TestTenThousandNodesDraw(t *testing.T) {
	onlyLong(t)
	source := axe(t)
	b := startChrome(t)
	c, socket := serveCrowd(t)
	u := startUI(t, socket)
	tab := b.open(t)
	tab.size(t, 1280, "light")
	tab.do(t, chromedp.Navigate(u.address))
	home := eval[string](t, tab, "location.href")
	for range 3 {
		tab.do(t, chromedp.Navigate(home))
		took := eval[[]float64](t, tab, `(async () => {
			const paint = await new Promise((yes) => new PerformanceObserver((list) => list.getEntriesByName("first-contentful-paint").forEach(yes)).observe({type: "paint", buffered: true}));
			const n = performance.getEntriesByType("navigation")[0];
			return [n.responseStart, n.responseEnd, n.domContentLoadedEventEnd, paint.startTime, n.loadEventEnd, n.decodedBodySize / 1e6];
		})()`)
		t.Logf("draw %d Nodes: first byte %.0f ms after the request, last %.0f ms, document %.0f ms, first paint %.0f ms, loaded %.0f ms; %.1f MB",
			crowdNodes, took[0], took[1], took[2], took[3], took[4], took[5])
	}
	assert.Equal(t, crowdNodes, eval[int](t, tab, `document.querySelectorAll("#s-map a.c.Healthy").length`))

	eval[*bool](t, tab, `(() => {
		window.same = true; // a reload would take it away
		window.at = 0;
		new MutationObserver(() => {
			if (!window.at && document.querySelectorAll("#s-map a.c.Blocked").length === 100) {
				window.inDocument = performance.timeOrigin + performance.now();
				window.at = 1;
				requestAnimationFrame(() => requestAnimationFrame(() => (window.at = performance.timeOrigin + performance.now())));
			}
		}).observe(document.body, {subtree: true, childList: true, attributes: true});
		return null;
	})()`)
	time.Sleep(6 * time.Second) // the page is at rest
	changed := time.Now()
	c.blockEach(crowdNodes / 100)
	tab.wait(t, "window.at > 1")
	since := func(expression string) time.Duration {
		return time.UnixMicro(int64(eval[float64](t, tab, expression) * 1000)).Sub(changed).Round(time.Millisecond)
	}
	t.Logf("update 100 of %d Nodes: in the document %v after the event, on the screen %v after it", crowdNodes, since("window.inDocument"), since("window.at"))
	require.True(t, eval[bool](t, tab, "window.same"))
	assert.Equal(t, 100, eval[int](t, tab, `document.querySelectorAll("#s-map a.c.Blocked").length`))
	accessible(t, tab, source, "10,000 Nodes")
	assert.Empty(t, tab.complaints())
}

// TestThousandNodes watches a fence in a cluster of a thousand Nodes and more, on the Kubernetes API in memory. The Nodes beside those of the
// stage have no kubelet, and no check covers them.
func TestThousandNodes(t *testing.T) {
	onlyLong(t)
	source := axe(t)
	b := startChrome(t)
	s := setStage(t, 0)
	for i := range 1000 {
		must.Do(s.Cluster.CreateNode(t.Context(), rig.Node{Name: fmt.Sprintf("far-%04d", i), Ready: corev1.ConditionTrue, Labels: map[string]string{
			"topology.kubernetes.io/zone": "far", "topology.kubernetes.io/rack": fmt.Sprintf("far-%02d", i/40)}}))(t)
	}
	s.await(t, func(n map[string]wire.Node) bool { return len(n) > 1000 })
	u := startUI(t, s.Socket())
	tab := b.open(t)
	tab.do(t, chromedp.Navigate(u.address))
	home := eval[string](t, tab, "location.href")
	tab.size(t, 1280, "light")
	accessible(t, tab, source, "1,000 Nodes")
	watchFence(t, s, tab, home)
	assert.Empty(t, tab.complaints())
}
