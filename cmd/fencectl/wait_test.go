package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
)

// sink calls a function for each write.
type sink func(text string)

func (s sink) Write(p []byte) (int, error) { s(string(p)); return len(p), nil }

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencectl") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestWatchShowsAgainAndEndsWithTheLastExitStatus(t *testing.T) {
	dir := shortDir(t)
	stop, err := startDaemon([]byte(`{"status":{"version":"1","paused":true,"pausedReason":"storm"}}`),
		filepath.Join(dir, "s"), filepath.Join(dir, "orders"))
	require.NoError(t, err)
	defer func() { require.NoError(t, stop()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shown := 0
	var errs bytes.Buffer
	code := run(ctx, []string{"--socket", filepath.Join(dir, "s"), "status", "-w"}, nil, sink(func(text string) {
		if strings.HasPrefix(text, "fenced 1: ") {
			if shown++; shown == 2 {
				cancel() // as ctrl-C does
			}
		}
	}), &errs)
	assert.Equal(t, 2, shown)
	assert.Equal(t, exitDegraded, code)
	assert.Empty(t, errs.String())
}

// Every verb with -w shows again when something happens, and ends as after a single look when it is interrupted.
func TestEveryVerbThatWatchesShowsAgain(t *testing.T) {
	args := map[string][]string{"status": nil, "explain": {"n-1"}, "plan": nil, "timeline": {"r-1"}, "history": nil}
	root, watch := newRoot(&cli{}), 0
	for _, verb := range root.Commands() {
		if verb.Flags().Lookup("watch") == nil {
			continue
		}
		watch++
		t.Run(verb.Name(), func(t *testing.T) {
			more, known := args[verb.Name()]
			require.True(t, known, "no arguments for it are named here")
			dir := shortDir(t)
			stop, err := startDaemon([]byte(`{"status":{"version":"1","armed":true},"explain":{"gates":[]},"plan":{"clusters":[]},"events":[{"seq":1,"type":"StepEntered","run":"r-1"}],
				"history":[{"id":"r-1","node":"n-1","result":"Done","started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:01:00Z"}]}`), filepath.Join(dir, "s"), filepath.Join(dir, "orders"))
			require.NoError(t, err)
			defer func() { require.NoError(t, stop()) }()
			line := append([]string{"--socket", filepath.Join(dir, "s"), verb.Name()}, more...)
			line = append(line, "-o", "json")
			var once, errs bytes.Buffer
			want := run(t.Context(), line, nil, &once, &errs)
			require.Contains(t, once.String(), `"apiVersion"`)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var shown strings.Builder
			code := run(ctx, append(line, "-w"), nil, sink(func(text string) {
				shown.WriteString(text)
				if strings.Count(shown.String(), `"apiVersion"`) == 2 {
					cancel() // as ctrl-C does
				}
			}), &errs)
			assert.Equal(t, want, code)
			assert.Equal(t, once.String()+once.String(), shown.String())
			assert.Empty(t, errs.String())
		})
	}
	assert.Equal(t, len(args), watch)
}

// events --follow prints what the daemon keeps, goes on with what happens, and ends well when it is interrupted. It ends with
// an error when the daemon goes away.
func TestEventsAreFollowed(t *testing.T) {
	begin := func() (socket string, stop func() error) {
		dir := shortDir(t)
		socket = filepath.Join(dir, "s")
		stop, err := startDaemon([]byte(`{"events":[{"seq":1,"at":"2026-01-01T00:00:00Z","cluster":"prod","type":"Ordered","message":"ada pauses"},{"seq":2,"cluster":"lab","type":"Ordered"}],
			"result":{"run":"r-1"},"history":[{"id":"r-1","node":"n-1"}],"frames":[{"id":"r-1","node":"n-1","result":"Running","started":"2026-01-01T00:00:00Z"}]}`), socket, filepath.Join(dir, "orders"))
		require.NoError(t, err)
		return socket, stop
	}
	for _, each := range []struct {
		args        []string
		first, next string
	}{
		{nil, "2026-01-01T00:00:00Z  Ordered  prod: ada pauses\n", "StepEntered  r-1\n"},
		{[]string{"-o", "json"}, `"message":"ada pauses"}`, `"run":"r-1"`},
	} {
		socket, stop := begin()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var lines []string
		var errs bytes.Buffer
		code := run(ctx, append([]string{"--socket", socket, "events", "--follow"}, each.args...), nil, sink(func(text string) {
			switch lines = append(lines, text); len(lines) {
			case 2: // all that is kept; now something happens
				var out bytes.Buffer
				assert.Zero(t, run(t.Context(), []string{"--socket", socket, "timeline", "r-1"}, nil, &out, &errs))
			case 3:
				cancel()
			}
		}), &errs)
		cancel()
		assert.Zero(t, code)
		assert.Empty(t, errs.String())
		if assert.Len(t, lines, 3) {
			assert.Contains(t, lines[0], each.first)
			assert.Contains(t, lines[2], each.next)
		}
		require.NoError(t, stop())
	}

	socket, stop := begin()
	var errs bytes.Buffer
	seen := 0
	code := run(t.Context(), []string{"--socket", socket, "events", "--follow"}, nil, sink(func(string) {
		if seen++; seen == 2 {
			assert.NoError(t, stop())
		}
	}), &errs)
	assert.NotZero(t, code)
	assert.Contains(t, errs.String(), "read the events")
}

// A daemon that restarts in the middle of a run must not end the wait for it.
func TestWaitSurvivesARestartOfTheDaemon(t *testing.T) {
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	running := `{"result":{"run":"r-1","message":"accepted"},"frames":[{"id":"r-1","node":"n-1","result":"Running","started":"2026-01-01T00:00:00Z",
		"steps":[{"step":"PowerOff","attempt":1,"started":"2026-01-01T00:00:00Z"}]}]}`
	stop, err := startDaemon([]byte(running), socket, filepath.Join(dir, "orders"))
	require.NoError(t, err)
	started := make(chan struct{})
	restarted := make(chan error, 1)
	again := func() error { return nil }
	go func() {
		<-started
		err := stop()
		if err == nil {
			time.Sleep(300 * time.Millisecond) // so that the wait finds nobody
			again, err = startDaemon([]byte(strings.ReplaceAll(running, "Running", "Done")), socket, filepath.Join(dir, "orders"))
		}
		restarted <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"--socket", socket, "fence", "n-1", "--reason", "disk", "--yes", "--wait"}, nil, sink(func(text string) {
		out.WriteString(text)
		if strings.Contains(text, "PowerOff started") {
			close(started)
		}
	}), &errs)
	require.NoError(t, <-restarted)
	require.NoError(t, again())
	assert.Equal(t, exitOK, code, errs.String())
	assert.Contains(t, out.String(), "n-1: Done\n")
}

// TestWaitSurvivesTooManyConnections: many who wait must not end each other's wait. Each gives up the stream that only wakes it earlier.
func TestWaitSurvivesTooManyConnections(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	streamBegan, streamEnded := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/nodes/n-1/fence", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"run":"r-1","message":"run r-1 fences n-1"}`))
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(streamBegan)
		<-r.Context().Done()
		close(streamEnded)
	})
	mux.HandleFunc("GET /v1/runs/r-1", func(w http.ResponseWriter, _ *http.Request) {
		<-streamBegan
		select {
		case <-streamEnded:
			_, _ = w.Write([]byte(`{"runs":[{"id":"r-1","node":"n-1","result":"Done","started":"2026-01-01T00:00:00Z"}]}`))
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"TooManyConnections","message":"olaf has 16 connections open"}`))
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"--socket", socket, "fence", "n-1", "--reason", "disk", "--yes", "--wait"}, nil, &out, &errs)
	assert.Equal(t, exitOK, code, errs.String())
	assert.Contains(t, out.String(), "n-1: Done\n")
}

func TestInterruptedWaitSaysThatTheRunGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	assert.Equal(t, exitTimeout, report(&errs, stoppedWaiting(ctx, "r-1")))
	assert.Equal(t, "fencectl: interrupted waiting for run r-1, which goes on\nhint: fencectl timeline r-1\n", errs.String())
}

func TestThePromptCanBeInterrupted(t *testing.T) {
	r, w, err := os.Pipe() // nobody types
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = (&cli{in: r}).readLine(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestUnfenceGivesUpOnARunThatStaysHeld(t *testing.T) {
	held := wire.RunRecord{ID: "r-1", Node: "n-1", Result: wire.ResultHeld, Reason: "PowerOffFailed", Steps: []wire.StepRecord{{Step: "PowerOff"}}}
	again := held
	again.Steps = append(again.Steps, wire.StepRecord{Step: "PowerOn"})
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := goal{unfence: true}
	assert.False(t, g.reached(held, at), "it may not have taken up the order yet")
	assert.False(t, g.reached(held, at.Add(heldGrace)))
	assert.True(t, g.reached(held, at.Add(heldGrace+time.Millisecond)))
	assert.True(t, g.reached(again, at.Add(time.Second)), "it went on and is Held once more")
	var exit *exitError
	require.ErrorAs(t, g.exit(held), &exit)
	assert.Equal(t, exitFailure, exit.code)
}
