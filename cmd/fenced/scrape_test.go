package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/test/port"
)

// Any user of the host can take the port of the metrics. The daemon goes on without them,
// says so once, and serves them as soon as it can.
func TestBusyMetricsPortStopsNothing(t *testing.T) {
	addr, err := port.Free("tcp", "127.0.0.1")
	require.NoError(t, err)
	other, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	core, logs := observer.New(zap.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	d := &fenced{metrics: newMetrics("1")}
	door := openMetrics(addr, zap.New(core))
	ended := make(chan error, 1)
	go func() { ended <- door.keep(ctx, d.pages()) }()
	time.Sleep(scrapeRetry + scrapeRetry/2) // one try more
	require.Equal(t, 1, logs.FilterLevelExact(zap.WarnLevel).Len(), "it is told once")

	require.NoError(t, other.Close())
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, 1, logs.FilterMessage("metrics are served again").Len())
	stop()
	require.NoError(t, <-ended)
}
