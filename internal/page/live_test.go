package page

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// browser is what a browser does, on a real port.
type browser struct {
	t      *testing.T
	base   string
	cookie *http.Cookie
	end    context.CancelFunc
	ended  chan error
}

func open(t *testing.T, socket string) *browser {
	t.Helper()
	return openWith(t, api.New(socket))
}

func openWith(t *testing.T, client *api.Client) *browser {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &browser{t: t, end: cancel, ended: make(chan error, 1)}
	t.Cleanup(cancel)
	address := make(chan string, 1)
	go func() {
		b.ended <- Serve(ctx, client, "", func(a string) error { address <- a; return nil })
	}()
	at := <-address
	first := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp := must.Do(first.Get(at))(t)
	must.Do(0, resp.Body.Close())(t)
	b.cookie = resp.Cookies()[0]
	host, _, _ := strings.Cut(at, "/?")
	b.base = host + resp.Header.Get("Location")
	return b
}

func (b *browser) get(path string) *http.Response {
	r := must.Do(http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+path, http.NoBody))(b.t)
	r.AddCookie(b.cookie)
	return must.Do(http.DefaultClient.Do(r))(b.t)
}

// stream gives what the page is sent, until the test ends: changes, and an element "end" at the end.
func (b *browser) stream(path string) <-chan change {
	must.Do(0, b.get(path).Body.Close())(b.t)
	resp := b.get("live/" + path)
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(b.t, "text/event-stream", resp.Header.Get("Content-Type"))
	all := make(chan change, 1000)
	go func() {
		defer close(all)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if lines.Text() == "event: end" {
				all <- change{ID: "end"}
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var list []change
			if !ok || json.Unmarshal([]byte(data), &list) != nil {
				continue
			}
			for _, c := range list {
				all <- c
			}
		}
	}()
	return all
}

// await reads changes until one of the element, or of any if that is empty, holds the words.
func await(t *testing.T, all <-chan change, id, words string) {
	t.Helper()
	late := time.After(pace.Hang)
	for {
		select {
		case c, more := <-all:
			require.True(t, more, "the stream ended before %q was in %s", words, id)
			if (c.ID == id || id == "") && strings.Contains(c.HTML, words) {
				return
			}
		case <-late:
			t.Fatalf("%q does not come to %s", words, id)
		}
	}
}

// TestWhatHappensIsSent: an event of the daemon brings what changed to each page that is about it.
func TestWhatHappensIsSent(t *testing.T) {
	socket := socketOf(t)
	d := scene(time.Now())
	d.serve(t, socket)
	b := open(t, socket)
	first, node, run := b.stream(""), b.stream("node?node=worker-3"), b.stream("run?id=mi42k0z3-4f9a1c")
	await(t, first, "main", "Zone dc-a") // no revision was given: all is sent
	d.change(func() {
		d.runs[0].Steps[3].Ended = time.Now()
		d.runs[0].Steps = append(d.runs[0].Steps, wire.StepRecord{Step: "RestoreNode", Attempt: 1, Started: time.Now(), Course: []string{"labels are back"}})
		d.status.Runs[0].Step = "RestoreNode"
		d.nodes[0].State = wire.NodeUnhealthy
	})
	await(t, first, "s-runs", "RestoreNode")
	await(t, node, "s-noderuns", "RestoreNode")
	await(t, run, "s-run", "labels are back")
	d.change(func() { d.nodes[0].State = wire.NodeHeld })
	await(t, first, "", `<li class="cell" id="n3"><span class="c Held"`) // the first zone and rack have 1 and 2
}

// TestDaemonGoesAndComesBack: the page says that fenced is away, keeps what it shows, and goes on.
func TestDaemonGoesAndComesBack(t *testing.T) {
	socket := socketOf(t)
	d := scene(time.Now())
	stop := d.serve(t, socket)
	b := open(t, socket)
	all := b.stream("")
	await(t, all, "main", "worker-24")
	stop()
	await(t, all, "link", "fenced is away")
	resp := b.get("")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "a page that is loaded meanwhile shows what was known last")
	must.Do(0, resp.Body.Close())(t)
	resp = b.get("node?node=worker-1")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	must.Do(0, resp.Body.Close())(t)
	d.serve(t, socket)
	await(t, all, "link", ">live<")
}

// TestClusterThatWasNeverSeenHidesNothing: its API has been down since fenced started, so its Nodes are not known. That is no fenced that is
// away: the runs and the problem are shown.
func TestClusterThatWasNeverSeenHidesNothing(t *testing.T) {
	socket := socketOf(t)
	d := scene(time.Now())
	d.unseen = api.Refused("NotSynced", "the watch of the cluster is not complete yet", "")
	d.serve(t, socket)
	b := open(t, socket)
	resp := b.get("")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	must.Do(0, resp.Body.Close())(t)
	all := b.stream("")
	await(t, all, "main", "mi42k0z3-4f9a1c")
	d.change(func() { d.unseen = nil })
	await(t, all, "", "worker-24")
}

// TestRefusedEndsThePage: whoever loses the right to look sees nothing more.
func TestRefusedEndsThePage(t *testing.T) {
	socket := socketOf(t)
	d := scene(time.Now())
	d.serve(t, socket)
	b := open(t, socket)
	all := b.stream("")
	await(t, all, "main", "worker-24")
	d.change(func() {
		d.err = &api.Error{Status: http.StatusForbidden, Code: api.CodeNotAuthorised, Message: "bert (uid 1001) may not look"}
	})
	await(t, all, "end", "")
	err := <-b.ended
	require.Error(t, err)
	assert.Contains(t, err.Error(), "may not look")
}

// TestSocketWithoutRightsMayComeBack: a daemon that starts gives its socket the rights of viewers a moment after it is there. That ends
// no page that was open before. One that could never connect ends.
func TestSocketWithoutRightsMayComeBack(t *testing.T) {
	refuse := func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	}
	for _, before := range []bool{true, false} {
		var why error
		s, _ := pageOf(t, scene(noon), "")
		if before {
			require.Equal(t, http.StatusOK, get(s, s.path, nil).Code)
			s.hub.snap.at = time.Time{}
		}
		s.hub.refuse = func(err error) { why = err }
		s.hub.client = api.NewOver("the socket", refuse, refuse)
		get(s, s.path, nil)
		if before {
			assert.NoError(t, why)
			assert.Contains(t, s.hub.away.Problem, "permission denied")
		} else {
			assert.ErrorContains(t, why, "permission denied")
		}
	}
}

// TestTabsShareReads: many tabs ask the daemon no more often than one.
func TestTabsShareReads(t *testing.T) {
	d := scene(noon)
	s, _ := pageOf(t, d, "")
	get(s, s.path, nil)
	s.hub.snap.at = time.Now().Add(time.Hour) // it stays new
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { get(s, s.path, nil) })
	}
	all.Wait()
	assert.Equal(t, 1, d.asked)
	s.hub.snap.at = time.Time{}
	get(s, s.path, nil)
	assert.Equal(t, 2, d.asked)
}

// TestWhoWentAwaySaysNothing: a tab that is closed while its page is read does not make fenced look away.
func TestWhoWentAwaySaysNothing(t *testing.T) {
	d := scene(noon)
	s, _ := pageOf(t, d, "")
	require.Equal(t, http.StatusOK, get(s, s.path, nil).Code)
	s.hub.snap.at = time.Time{}
	ctx, leave := context.WithCancel(t.Context())
	d.change(func() { d.asking = leave })
	_, err := s.hub.look(ctx, place{kind: "overview"})
	require.ErrorIs(t, err, context.Canceled)
	d.change(func() { d.asking = nil }) // the daemon may still answer
	assert.Zero(t, s.hub.away.Since)
	assert.NotContains(t, get(s, s.path, nil).Body.String(), "fenced is away")
}

// TestTabsShareAFailure: over ssh each try is a login, so that many tabs try no more often than one.
func TestTabsShareAFailure(t *testing.T) {
	d := scene(noon)
	s, _ := pageOf(t, d, "")
	get(s, s.path, nil)
	s.hub.snap.at = time.Time{}
	d.change(func() {
		d.err = &api.Error{Status: http.StatusInternalServerError, Code: api.CodeInternal, Message: "no disk"}
	})
	before := d.asked
	get(s, s.path, nil)
	s.hub.failedAt = time.Now().Add(time.Hour) // it stays new
	for range 5 {
		assert.Contains(t, get(s, s.path, nil).Body.String(), "no disk")
	}
	assert.Equal(t, 1, d.asked-before)
	d.change(func() { d.err = nil })
	s.hub.failedAt = time.Time{}
	assert.NotContains(t, get(s, s.path, nil).Body.String(), "fenced is away")
}

// TestReadThatFailsLosesNoDevices: a read that fails after its devices were read is made anew, and shows them.
func TestReadThatFailsLosesNoDevices(t *testing.T) {
	d := scene(noon)
	d.unread = &api.Error{Status: http.StatusInternalServerError, Code: api.CodeInternal, Message: "no disk"}
	s, _ := pageOf(t, d, "prod")
	require.Contains(t, get(s, s.path, nil).Body.String(), "no disk")
	d.change(func() { d.unread = nil })
	s.hub.failedAt = time.Time{}
	get(s, s.path, nil)
	assert.Equal(t, wire.BMCs{BMCs: d.bmcs}.Count().Total, s.hub.snap.status.BMCs.Total)
}

// TestLongAuditLog: the page of a run does not wait for it, and nor do the other tabs.
func TestLongAuditLog(t *testing.T) {
	d := scene(noon)
	d.slowLog = true
	s, _ := pageOf(t, d, "")
	s.hub.logTime = 10 * time.Millisecond
	w := get(s, s.path+"run?id=mi42k0z7-4f9a1c", nil)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "to read it takes longer than 10ms")
	assert.Contains(t, w.Body.String(), "PowerOffFailed")
}

// TestOverFewConnections: over ssh, where each connection is a login, the stream of events and what several tabs read share few.
func TestOverFewConnections(t *testing.T) {
	socket := socketOf(t)
	d := scene(time.Now())
	d.serve(t, socket)
	var dials atomic.Int64
	dial := func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return api.Dial(ctx, socket)
	}
	quietly := func(ctx context.Context) (net.Conn, error) { return api.Dial(ctx, socket) } // only asked if the daemon is slow
	client := api.NewOver("far away", dial, quietly)
	t.Cleanup(client.End)
	b := openWith(t, client)
	first, node, run := b.stream(""), b.stream("node?node=worker-3"), b.stream("run?id=mi42k0z3-4f9a1c")
	await(t, first, "main", "worker-24")
	d.change(func() {
		d.runs[0].Steps = append(d.runs[0].Steps, wire.StepRecord{Step: "RestoreNode", Attempt: 1, Started: time.Now(), Course: []string{"labels are back"}})
		d.status.Runs[0].Step = "RestoreNode"
	})
	await(t, first, "s-runs", "RestoreNode")
	await(t, node, "s-noderuns", "RestoreNode")
	await(t, run, "s-run", "labels are back")
	assert.LessOrEqual(t, dials.Load(), int64(3))
}

// TestPageOfANodeWithoutACell: the page of a Node that is not among the most urgent tells what the others tell.
func TestPageOfANodeWithoutACell(t *testing.T) {
	d := scene(noon)
	s, _ := pageOf(t, d, "")
	path := s.path + "node?node=" + d.nodes[0].Node + "&cluster=" + d.nodes[0].Cluster
	whole := get(s, path, nil).Body.String()
	require.Contains(t, whole, "Could be fenced")
	s.hub.snap.nodes = wire.Nodes{Nodes: d.nodes[1:2], More: len(d.nodes) - 1}
	assert.Contains(t, get(s, path, nil).Body.String(), "Could be fenced")
}

// TestPageOfANodeWhoseMachineIsHeld: a hold of the Machine is one of its Node.
func TestPageOfANodeWhoseMachineIsHeld(t *testing.T) {
	d := scene(noon)
	d.bmcs = append(d.bmcs, wire.BMC{Cluster: "prod", Node: "worker-20", Machine: "ns/worker-20", Level: 1, Dependable: true})
	d.status.Clusters[0].Holds = append(d.status.Clusters[0].Holds, wire.HoldStatus{Machine: "ns/worker-20", By: "cleo (uid 1003)", Reason: "on loan"})
	s, _ := pageOf(t, d, "")
	assert.Contains(t, get(s, s.path+"node?node=worker-20&cluster=prod", nil).Body.String(), "on loan")
	assert.NotContains(t, get(s, s.path+"node?node=worker-21&cluster=prod", nil).Body.String(), "on loan")
}
