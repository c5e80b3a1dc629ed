// Package logging writes the log of the daemon: to systemd's journal with a priority and
// searchable fields if stderr is the journal, and as lines of JSON to stderr elsewhere. No
// reader of the log can hold up who logs.
package logging

import (
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
)

// New makes the logger of the process, and its queue. It writes what has the level or is
// worse; the level may be changed at any time. Sync of the logger ends the process well: it
// waits a little for the last lines.
func New(level zapcore.LevelEnabler) (*zap.Logger, *Queue) {
	if in, err := journal.StderrIsJournalStream(); err == nil && in {
		if sender, err := dialJournal(journalSocket); err == nil {
			return newLogger(level, newJournalEncoder(), sender.send)
		}
	}
	return newLogger(level, jsonEncoder(), writeJSON(os.Stderr))
}

func jsonEncoder() zapcore.Encoder {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zapcore.NewJSONEncoder(cfg)
}

// writeJSON writes lines without what a terminal would obey: much in them is of BMCs and
// clusters.
func writeJSON(f *os.File) func([]byte) {
	return func(line []byte) {
		_, _ = f.Write(api.EscapeJSON(line)) // there is nowhere to complain
	}
}

// newLogger writes entries through a queue.
func newLogger(level zapcore.LevelEnabler, enc zapcore.Encoder, write func([]byte)) (*zap.Logger, *Queue) {
	gap := func(lost int) []byte {
		line, err := enc.Clone().EncodeEntry(zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(),
			Message: fmt.Sprintf("%d lines of this log are missing here: nobody took them in time, and fencing does not wait for that", lost)}, nil)
		if err != nil {
			return nil // of an entry without fields: it cannot be
		}
		return line.Bytes()
	}
	q := newQueue(write, gap)
	less := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l < zapcore.WarnLevel && level.Enabled(l) })
	more := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.WarnLevel && level.Enabled(l) })
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(enc, lane{q, maxQueued / 2}, less),
		zapcore.NewCore(enc.Clone(), lane{q, maxQueued}, more),
	)), q
}
