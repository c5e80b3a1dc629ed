package main

import (
	"cmp"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// words is the message of an event that needs no sentence.
func words(e event.Event) string {
	switch e.Type {
	case event.Acting:
		return "action " + string(e.Action)
	case event.Stepped:
		return "step " + string(e.Step)
	case event.ViewChanged:
		return "the view of the cluster is good"
	}
	return e.Type
}

// levelOf is how much an event matters: who looks at warnings sees all that keeps a node
// from being remediated, and an error is what needs a person.
func levelOf(e event.Event) zapcore.Level {
	switch {
	case e.Type == event.Stepped && e.Step == remediate.Held,
		e.Type == event.Reloaded && e.Reason != "":
		return zapcore.ErrorLevel
	case e.Type == event.Stepped && e.Step == remediate.Waiting,
		e.Type == event.Failed, e.Type == event.Refused, e.Type == event.LimitClosed,
		e.Type == event.CheckChanged && e.Reason != "",
		e.Type == event.ViewChanged && e.Message != "",
		e.Type == sweep.EventBMC && e.Reason != "":
		return zapcore.WarnLevel
	}
	return zapcore.InfoLevel
}

// logEvents is the log as a subscriber of the engine's events. The keys are
// fixed: operators search for them.
func logEvents(log *zap.Logger) func(event.Event) {
	return func(e event.Event) {
		fields := []zap.Field{zap.String("event", e.Type)}
		for _, f := range []struct{ key, value string }{
			{"cluster", e.Cluster}, {"node", e.Node}, {"machine", e.Machine}, {"check", e.Check}, {"run", e.Run}, {"step", string(e.Step)},
			{"action", string(e.Action)}, {"reason", string(e.Reason)},
		} {
			if f.value != "" {
				fields = append(fields, zap.String(f.key, f.value))
			}
		}
		log.Log(levelOf(e), cmp.Or(e.Message, words(e)), fields...)
	}
}
