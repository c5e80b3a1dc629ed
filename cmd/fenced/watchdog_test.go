package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// TestPulse: one beat is worth one kick, however many there were.
func TestPulse(t *testing.T) {
	var p pulse
	require.False(t, p.alive(), "nothing was decided yet")
	p.beat()
	p.beat()
	require.True(t, p.alive())
	require.False(t, p.alive())
	p.beat()
	require.True(t, p.alive())
}

func TestMayFence(t *testing.T) {
	run := func(s remediate.Step) []remediate.Run { return []remediate.Run{{Step: s}} }
	require.False(t, mayFence(nil))
	require.False(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Runs: run(remediate.Held)}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Armed: true}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a", Runs: run(remediate.PowerOff)}}), "a person's order")
}

// TestWatchdogWithoutBMC: what was asked for and cannot be had is said, and the
// daemon fences on.
func TestWatchdogWithoutBMC(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(core)
	b := openOwnBMC(4711, log)
	require.Nil(t, b)
	require.Equal(t, 1, logged.Len(), "one line")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	o := ownBMC{BMC: b, cfg: config.Watchdog{Enabled: true, Timeout: time.Minute, Device: 4711}, pulse: new(pulse), log: log}
	require.NoError(t, o.keep(ctx, func() []engine.ClusterStatus { return nil }))
	require.Equal(t, 1, logged.FilterMessageSnippet("no watchdog is armed").Len())
	require.Zero(t, ownHost(ctx, b, log).BMCAddrs)
}
