package main

import (
	"bytes"
	"context"
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
