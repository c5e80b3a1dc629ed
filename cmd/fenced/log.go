package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// newLogger writes to stderr: without timestamps under the journal, which adds
// its own, and with them elsewhere.
func newLogger(level string) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: %w", level, err)
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if in, err := journal.StderrIsJournalStream(); err == nil && in {
		enc.TimeKey = zapcore.OmitKey
	}
	core := zapcore.NewCore(zapcore.NewJSONEncoder(enc), zapcore.Lock(harmless{os.Stderr}), lvl)
	return zap.New(core), nil
}

// harmless writes lines of JSON without what a terminal would obey: much in them is of
// BMCs and clusters.
type harmless struct{ zapcore.WriteSyncer }

// Write implements io.Writer.
func (h harmless) Write(line []byte) (int, error) {
	_, err := h.WriteSyncer.Write(api.EscapeJSON(line))
	return len(line), err
}

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

// logEvents is the log as a subscriber of the engine's events. The keys are
// fixed: operators grep for them.
func logEvents(log *zap.Logger) func(event.Event) {
	return func(e event.Event) {
		level := zapcore.InfoLevel
		switch {
		case e.Type == event.Failed, e.Type == event.ViewChanged && e.Message != "", e.Type == sweep.EventBMC && e.Reason != "":
			level = zapcore.WarnLevel
		case e.Type == event.Stepped && e.Step == remediate.Waiting:
			level = zapcore.WarnLevel
		case e.Type == event.Stepped && e.Step == remediate.Held:
			level = zapcore.ErrorLevel // a human is needed
		}
		fields := []zap.Field{zap.String("event", e.Type)}
		for _, f := range []struct{ key, value string }{
			{"cluster", e.Cluster}, {"node", e.Node}, {"machine", e.Machine}, {"run", e.Run}, {"step", string(e.Step)},
			{"action", string(e.Action)}, {"reason", string(e.Reason)},
		} {
			if f.value != "" {
				fields = append(fields, zap.String(f.key, f.value))
			}
		}
		log.Log(level, cmp.Or(e.Message, words(e)), fields...)
	}
}
