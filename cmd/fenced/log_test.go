package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// Who looks at warnings sees all that keeps a node from being remediated, and nothing of a
// run that goes well.
func TestLevelsOfEvents(t *testing.T) {
	for _, c := range []struct {
		event event.Event
		want  zapcore.Level
	}{
		{event.Event{Type: event.Started}, zapcore.InfoLevel},
		{event.Event{Type: event.Acting, Action: remediate.SendOff}, zapcore.InfoLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Done}, zapcore.InfoLevel},
		{event.Event{Type: event.Ordered}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged, Message: "the API server is silent"}, zapcore.WarnLevel},
		{event.Event{Type: sweep.EventBMC}, zapcore.InfoLevel},
		{event.Event{Type: sweep.EventBMC, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Refused, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.RefusalEnded}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Message: "is Active"}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Reason: reason.ShortCircuit, Message: "is Paused"}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitClosed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitOpened}, zapcore.InfoLevel},
		{event.Event{Type: event.Failed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Waiting}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Held}, zapcore.ErrorLevel},
	} {
		core, logs := observer.New(zap.DebugLevel)
		logEvents(zap.New(core))(c.event)
		require.Equal(t, 1, logs.Len())
		assert.Equal(t, c.want, logs.All()[0].Level, "%+v", c.event)
	}
}

// The keys of an event are a contract: people search for them.
func TestKeysOfEvents(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	logEvents(zap.New(core))(event.Event{Type: event.Stepped, Cluster: "prod", Node: "n", Machine: "ns/m", Check: "c", Run: "r", Step: remediate.Held,
		Action: remediate.SendOff, Reason: reason.ShortCircuit, Message: "look"})
	assert.Equal(t, "look", logs.All()[0].Message)
	assert.Equal(t, map[string]any{"event": "Step", "cluster": "prod", "node": "n", "machine": "ns/m", "check": "c", "run": "r", "step": "Held",
		"action": string(remediate.SendOff), "reason": "ShortCircuit"}, logs.All()[0].ContextMap())
}
