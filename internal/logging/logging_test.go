package logging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// evil is what a terminal would obey, and more than one line.
const evil = "a\u009b2J\u202e\x7f\x1b[m\nPRIORITY=0"

// TestLogIsHarmless: what a BMC or a cluster says is logged, and obeyed by no terminal.
func TestLogIsHarmless(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer f.Close()
	log, _ := newLogger(zapcore.InfoLevel, jsonEncoder(), writeJSON(f))
	log.Info(evil)
	require.NoError(t, log.Sync())
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"a\u009b2J\u202e\u007f\u001b[m\nPRIORITY=0"`)
	var line struct{ Msg string }
	require.NoError(t, json.Unmarshal(text, &line))
	assert.Equal(t, evil, line.Msg)
}

// stuck takes no line until it is released, and then all of them.
type stuck struct {
	release chan struct{}
	lines   chan string
}

func newStuck() stuck { return stuck{release: make(chan struct{}), lines: make(chan string, 1<<20)} }

func (s stuck) write(line []byte) {
	<-s.release
	s.lines <- string(line)
}

func (s stuck) all() (lines []string) {
	for len(s.lines) > 0 {
		lines = append(lines, <-s.lines)
	}
	return lines
}

// Nobody who logs waits for who reads, whatever is logged: far more than fits is dropped
// and counted, warnings last, and once somebody reads again the log says what it lacks.
func TestNobodyWaitsForAReaderThatStopped(t *testing.T) {
	reader := newStuck()
	log, q := newLogger(zapcore.InfoLevel, jsonEncoder(), reader.write)
	big := zap.String("much", strings.Repeat("x", 1<<10))
	const infos, warnings = 2 * maxQueued >> 10, 100
	for range infos {
		log.Info("chatter", big)
	}
	dropped := q.Lost()
	require.Positive(t, dropped)
	for range warnings {
		log.Warn("it matters", big)
	}
	require.Equal(t, dropped, q.Lost(), "warnings still fit")
	for range infos {
		log.Warn("flood", big)
	}
	require.Greater(t, q.Lost(), dropped, "the queue ends somewhere")

	close(reader.release)
	require.NoError(t, log.Sync())
	lines := reader.all()
	count := func(text string) (n int) {
		for _, l := range lines {
			if strings.Contains(l, text) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, infos-dropped, count("chatter"))
	assert.Equal(t, warnings, count("it matters"))
	assert.Equal(t, 1, count("lines of this log are missing here"), "it is told once")
	log.Info("again")
	require.NoError(t, log.Sync())
	assert.Contains(t, reader.all()[0], "again")
}

// The end of the process waits a little for its last lines, and not for ever.
func TestSyncEnds(t *testing.T) {
	reader := newStuck()
	log, _ := newLogger(zapcore.InfoLevel, jsonEncoder(), reader.write)
	log.Info("never read")
	require.NoError(t, log.Sync())
	require.Empty(t, reader.lines)
	close(reader.release)
	require.NoError(t, log.Sync())
	require.Len(t, reader.lines, 1)
}

func TestDebugIsLeftOut(t *testing.T) {
	reader := newStuck()
	close(reader.release)
	log, _ := newLogger(zapcore.WarnLevel, jsonEncoder(), reader.write)
	log.Info("too little")
	log.Named("x").With(zap.String("a", "b")).Warn("enough")
	require.NoError(t, log.Sync())
	lines := reader.all()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], `"logger":"x"`)
	assert.Contains(t, lines[0], `"msg":"enough","a":"b"`)
}
