package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/wire"
	got "github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// eventd serves the daemon's own stream of events on a socket: one event for each line of its input, about the Node of that name. It stands
// for a fenced that can be killed.
func eventd() {
	d := streamDaemon{stream: event.NewStream()}
	ln, err := api.Listen(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			d.stream.Emit(event.Event{Type: event.Started, Cluster: "prod", Node: lines.Text()})
			fmt.Println(lines.Text())
		}
	}()
	log.Fatal(api.NewServer(d, api.Roles{}, log.New(os.Stderr, "eventd: ", 0)).Serve(context.Background(), ln))
}

// streamDaemon answers about its events alone.
type streamDaemon struct {
	api.Daemon
	stream *event.Stream
}

func (d streamDaemon) Stream() string { return d.stream.ID() }

// Events gives them as fenced does.
func (d streamDaemon) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for e := range d.stream.Follow(ctx, after) {
			if !yield(wire.Event{Seq: e.Seq, At: e.At, Cluster: e.Cluster, Node: e.Node, Type: e.Type, Stream: d.stream.ID()}, nil) {
				return
			}
		}
	}
}

// killable is a program that a test starts again and again, and kills.
type killable struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startKillable(t *testing.T, env []string, name string, args ...string) *killable {
	t.Helper()
	k := &killable{cmd: exec.CommandContext(t.Context(), name, args...)}
	k.cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=10"), env...)
	k.cmd.Stderr = t.Output()
	k.in = got.Do(k.cmd.StdinPipe())(t)
	k.out = bufio.NewScanner(got.Do(k.cmd.StdoutPipe())(t))
	require.NoError(t, k.cmd.Start())
	return k
}

// kill is kill -9.
func (k *killable) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, k.cmd.Process.Kill())
	require.Error(t, k.cmd.Wait())
}

// emit makes events about these Nodes, and waits until they are in the stream.
func (k *killable) emit(t *testing.T, nodes ...string) {
	t.Helper()
	_, err := io.WriteString(k.in, strings.Join(nodes, "\n")+"\n")
	require.NoError(t, err)
	for _, node := range nodes {
		require.True(t, k.out.Scan())
		require.Equal(t, node, k.out.Text())
	}
}

// events reads as many events as are printed next: the Node of each, or its type if fencectl made it.
func (k *killable) events(t *testing.T, count int) (nodes []string) {
	t.Helper()
	for range count {
		require.True(t, k.out.Scan(), "after %v", nodes)
		var e wire.Event
		require.NoError(t, json.Unmarshal(k.out.Bytes(), &e))
		require.NotEmpty(t, e.Stream)
		if e.Node == "" {
			e.Node = e.Type + ": " + e.Message
		}
		nodes = append(nodes, e.Node)
	}
	return nodes
}

func numbered(from, to int) (nodes []string) {
	for i := from; i <= to; i++ {
		nodes = append(nodes, fmt.Sprintf("n-%d", i))
	}
	return nodes
}

// TestResume: whoever is killed, what fenced keeps is given out, and what is lost is told.
func TestResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "place")
	startd := func() *killable { return startKillable(t, nil, "eventd", socket) }
	follow := func() *killable {
		return startKillable(t, nil, "fencectl", "--socket", socket, "events", "--follow", "--resume", file, "-o", "json")
	}
	saved := func(seq int) {
		t.Helper()
		pace.Until(t, "the place is kept", func() bool {
			p, err := readPlace(file)
			time.Sleep(time.Millisecond)
			return err == nil && p.Seq == uint64(seq)
		})
	}
	d := startd()
	d.emit(t, numbered(1, 3)...)
	f := follow()
	assert.Equal(t, numbered(1, 3), f.events(t, 3))
	saved(3)
	f.kill(t)
	d.emit(t, numbered(4, 5)...)
	f = follow()
	assert.Equal(t, numbered(4, 5), f.events(t, 2), "those that came meanwhile, and no other")

	d.kill(t) // and fencectl connects again by itself
	d = startd()
	d.emit(t, "n-6")
	assert.Equal(t, []string{"Restarted: fenced has restarted. Events after number 5 of the stream before are lost, if there were any: fencectl audit show has them", "n-6"}, f.events(t, 2))
	saved(1)
	f.kill(t)

	const kept = 2048
	d.emit(t, numbered(1, kept+2)...) // after n-6, which was given out: the two oldest are lost
	f = follow()
	assert.Equal(t, []string{"Missed: 2 events before the next one are lost: fencectl audit show has them", "n-3"}, f.events(t, 2))
	assert.Equal(t, numbered(4, kept+2), f.events(t, kept-1))
	saved(kept + 3)
	f.kill(t)

	out, err := exec.Command("fencectl", "--socket", socket, "events", "--resume", file, "-o", "json").Output()
	require.NoError(t, err)
	assert.Empty(t, out, "nothing new, and it does not wait")
	d.kill(t)
}

// TestPlaceOfTheEvents: a file that is something else is not overwritten; one that a crash left empty is the beginning.
func TestPlaceOfTheEvents(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"yaml": "a: b\n", "json": "{}", "large": strings.Repeat(" ", 5000)} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := readPlace(path)
		require.ErrorContains(t, err, "read the place in "+path, name)
	}
	_, err := readPlace(dir)
	require.Error(t, err)
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "empty")} {
		assert.Empty(t, got.Do(readPlace(path))(t))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	}
	path := filepath.Join(dir, "p")
	require.NoError(t, place{"s", 7}.save(path))
	require.NoError(t, place{"s", 8}.save(path))
	assert.Equal(t, place{"s", 8}, got.Do(readPlace(path))(t))
	before := len(got.Do(os.ReadDir(dir))(t))
	require.Error(t, place{"s", 9}.save(filepath.Join(path, "x")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.Error(t, place{"s", 9}.save(filepath.Join(dir, "folder")))
	assert.Len(t, got.Do(os.ReadDir(dir))(t), before+1, "nothing is left beside it")
}

// TestProgramOfALargeEvent: an event that no environment takes would be tried for ever, and later ones would wait behind it.
func TestProgramOfALargeEvent(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n[ ${#FENCED_MESSAGE} -lt 40000 ] && [ \"$(wc -c)\" -gt 200000 ]\n"), 0o755))
	var errs bytes.Buffer
	f := follower{c: &cli{errs: &errs}, o: eventsOptions{exec: program}}
	require.NoError(t, f.runProgram(t.Context(), wire.Event{Type: "Step", Message: strings.Repeat("x", 200_000)}), &errs)
}

// examples of systemd units that the package ships, and their scripts.
const shipped = "../../packaging/systemd/examples/"

// webhook is a receiver that answers with the next of its statuses, and then with 200.
type webhook struct {
	mu       sync.Mutex
	statuses []int
	nodes    []string // of what it took
}

// ServeHTTP takes one event.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var e wire.Event
	if r.Header.Get("Authorization") != "Bearer s3cret" || r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&e) != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if len(h.statuses) > 0 {
		status := h.statuses[0]
		h.statuses = h.statuses[1:]
		w.WriteHeader(status)
		return
	}
	if e.Node == "" {
		e.Node = e.Type
	}
	h.nodes = append(h.nodes, e.Node)
}

func (h *webhook) took(node string) bool {
	time.Sleep(5 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.nodes, node)
}

// TestWebhookExample: the shipped script, under fencectl, against a receiver that fails now and then, while both ends of the pipe are killed:
// nothing is lost that fenced kept.
func TestWebhookExample(t *testing.T) {
	t.Parallel()
	needCurl(t)
	h := &webhook{statuses: []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusUnauthorized}}
	srv := httptest.NewServer(h)
	defer srv.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "webhook"), fmt.Appendf(nil, "url = %q\nheader = \"Authorization: Bearer s3cret\"\n", srv.URL), 0o600))
	socket := filepath.Join(dir, "s")
	script := got.Do(filepath.Abs(shipped + "fenced-webhook.sh"))(t)
	startd := func() *killable { return startKillable(t, nil, "eventd", socket) }
	follow := func() *killable {
		return startKillable(t, []string{"CREDENTIALS_DIRECTORY=" + dir}, "fencectl", "--socket", socket, "events", "--follow", "--resume", filepath.Join(dir, "place"), "--exec", script)
	}
	d, f := startd(), follow()
	d.emit(t, numbered(1, 20)...)
	pace.Until(t, "some events arrive", func() bool { return h.took("n-5") })
	f.kill(t)
	f = follow()
	pace.Until(t, "the others arrive, too", func() bool { return h.took("n-20") })
	d.kill(t)
	d = startd()
	h.mu.Lock()
	h.statuses = []int{http.StatusBadRequest} // that one event, which is Restarted, is refused for good
	h.mu.Unlock()
	d.emit(t, numbered(21, 30)...)
	pace.Until(t, "those after the restart arrive", func() bool { return h.took("n-30") })
	f.kill(t)
	d.kill(t)
	h.mu.Lock() // a script whose fencectl was killed may still be at work
	defer h.mu.Unlock()
	for _, node := range numbered(1, 30) {
		assert.Contains(t, h.nodes, node)
	}
	assert.NotContains(t, h.nodes, eventRestarted, "what is refused for good does not keep the others")
	assert.LessOrEqual(t, len(h.nodes), 31, "an event comes twice only for each kill")
}

func needCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "curl is missing; `make deps` installs it")
		t.Skip("curl is missing; `make deps` installs it")
	}
}

// TestMailExample: the shipped script writes about what a person wants to know, through the sendmail of the host; nothing in an event becomes
// a header, a recipient or an end of the mail.
func TestMailExample(t *testing.T) {
	dir := t.TempDir()
	sendmail := filepath.Join(dir, "sendmail")
	require.NoError(t, os.WriteFile(sendmail, []byte("#!/bin/sh\n{ echo \"args: $*\"; cat; } >"+dir+"/mail\n"), 0o755))
	t.Setenv("SENDMAIL", sendmail)
	t.Setenv("MAILTO", "ops@example.com")
	f := follower{c: &cli{errs: t.Output(), out: io.Discard}, o: eventsOptions{exec: shipped + "fenced-mail.sh"}}
	mail := func(e wire.Event) string {
		t.Helper()
		_ = os.Remove(filepath.Join(dir, "mail"))
		require.NoError(t, f.runProgram(t.Context(), e))
		text, _ := os.ReadFile(filepath.Join(dir, "mail")) // none is no mail
		return string(text)
	}
	text := mail(wire.Event{Type: event.Started, Cluster: "prod", Node: "worker-3", Run: "r-1", Message: "Ready is Unknown"})
	for _, want := range []string{"args: -i -- ops@example.com\n", "\nTo: ops@example.com\n", "\nSubject: [fenced] worker-3: Started", "\n\nReady is Unknown\n", "fencectl timeline r-1"} {
		assert.Contains(t, text, want)
	}
	for _, e := range []wire.Event{
		{Type: event.Stepped, Step: "Held", Reason: "OffUnproven"}, {Type: event.Stepped, Step: "Done"}, {Type: event.Stepped, Step: "Aborted"}, {Type: event.Stepped, Step: "Waiting"},
		{Type: event.Stepped, Step: "Reprovisioned"}, {Type: event.Refused, Class: "person", Reason: "NoHost"}, {Type: eventMissed, Message: "2 events are lost"},
	} {
		assert.NotEmpty(t, mail(e), "%v", e)
	}
	for _, e := range []wire.Event{
		{Type: event.Stepped, Step: "PowerOff"}, {Type: event.Acting}, {Type: event.Refused, Class: "transient"}, {Type: event.Refused}, {Type: event.Ordered}, {Type: eventRestarted}, {Type: event.ViewChanged},
	} {
		assert.Empty(t, mail(e), "%v", e)
	}
	text = mail(wire.Event{Type: event.Started, Node: "n\r\nBcc: eve@example.com", Message: "$(touch pwned) `id`\n.\nFrom: eve", Reason: "é\x00"})
	assert.NotContains(t, text, "\nBcc:")
	assert.NotContains(t, text, "\n.\n")
	assert.Contains(t, text, `n\r\nBcc: eve@example.com`)
	assert.Contains(t, text, "$(touch pwned) `id`\\n.\\nFrom: eve")
}
