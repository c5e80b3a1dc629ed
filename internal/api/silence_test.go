package api

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fenced that accepts connections and answers nothing, because it is stopped or hangs, is told
// long before an order would have had to be answered.
func TestSilentDaemonIsTold(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	ln, err := net.Listen("unix", socket) // nobody accepts, as when the process is stopped
	require.NoError(t, err)
	defer ln.Close()
	c := New(socket)
	c.silence, c.reply = 20*time.Millisecond, 20*time.Millisecond
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, err, ErrSilent)
	assert.NotContains(t, err.Error(), "order")
	_, err = c.Do(t.Context(), Order{Verb: Pause, Reason: "storm"})
	require.ErrorIs(t, err, ErrSilent)
	assert.Contains(t, err.Error(), "the order was sent, and fenced may carry it out")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Status(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrSilent)
}

// An order that takes long is waited for as long as fenced answers anything.
func TestSlowAnswerIsNoSilence(t *testing.T) {
	d := &fake{block: &block{began: make(chan struct{}), until: make(chan struct{}), ended: make(chan struct{})}}
	c := New(serve(t, d, Roles{}))
	c.silence, c.reply = 20*time.Millisecond, time.Minute
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), Order{Verb: Pause, Reason: "storm"})
		answered <- err
	}()
	<-d.block.began
	time.Sleep(6 * c.silence) // several questions
	close(d.block.until)
	require.NoError(t, <-answered)
}
