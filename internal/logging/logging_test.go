package logging

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/test/must"
)

// evil is what a terminal would obey, and more than one line.
const evil = "a\u009b2J\u202e\x7f\x1b[m\nPRIORITY=0"

// TestLogIsHarmless: what a BMC or a cluster says is logged, and obeyed by no terminal.
func TestLogIsHarmless(t *testing.T) {
	f := must.Do(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	defer f.Close()
	log, _ := newLogger(zapcore.InfoLevel, jsonEncoder(), writeJSON(f))
	log.Info(evil)
	require.NoError(t, log.Sync())
	text := must.Do(os.ReadFile(f.Name()))(t)
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

// listen is a journal's socket that nobody serves, with a logger that writes to it.
func listen(t *testing.T) (*net.UnixConn, *zap.Logger, *Queue) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	conn := must.Do(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	sender := must.Do(dialJournal(path))(t)
	log, q := newLogger(zapcore.DebugLevel, newJournalEncoder(), sender.send)
	return conn, log, q
}

// entry reads one datagram, and gives its fields; each may be there once.
func entry(t *testing.T, conn *net.UnixConn) map[string]string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 1<<20)
	n := must.Do(conn.Read(buf))(t)
	fields := map[string]string{}
	for line := range strings.Lines(string(buf[:n])) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		require.True(t, ok, "%q", line)
		require.Regexp(t, `^[A-Z][A-Z0-9_]*$`, key)
		require.NotContains(t, fields, key)
		fields[key] = value
	}
	return fields
}

func TestEntryHasPriorityAndFields(t *testing.T) {
	conn, log, _ := listen(t)
	log.Named("control").Warn("the BMC is silent", zap.String("reason", "BMCUnreachable"), zap.String("node", "worker-3"),
		zap.String("run", "r-1"), zap.Error(assert.AnError), zap.Strings("two-words", []string{"a", "b"}))
	assert.Equal(t, map[string]string{
		"MESSAGE":  `the BMC is silent node=worker-3 run=r-1 reason=BMCUnreachable error="` + assert.AnError.Error() + `" logger=control two-words="[a b]"`,
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "fenced", "FENCED_NODE": "worker-3", "FENCED_RUN": "r-1",
		"FENCED_REASON": "BMCUnreachable", "FENCED_ERROR": assert.AnError.Error(), "FENCED_LOGGER": "control", "FENCED_TWO_WORDS": "[a b]",
	}, entry(t, conn))

	for level, want := range map[zapcore.Level]string{zapcore.DebugLevel: "7", zapcore.InfoLevel: "6", zapcore.ErrorLevel: "3", zapcore.DPanicLevel: "2"} {
		log.Log(level, "x")
		assert.Equal(t, want, entry(t, conn)["PRIORITY"], level)
	}
}

// What a BMC or a cluster says is one line of one field: it makes no field of its own, no
// terminal obeys it, and it always fits a datagram.
func TestEntryIsHarmless(t *testing.T) {
	conn, log, _ := listen(t)
	log.Warn(evil, zap.String("node", evil))
	got := entry(t, conn)
	assert.Equal(t, "a 2J   [m PRIORITY=0", got["FENCED_NODE"])
	assert.Equal(t, "4", got["PRIORITY"])
	assert.NotContains(t, got["MESSAGE"], "\x1b")

	var fields []zap.Field
	for r := 'a'; r < 'z'; r++ {
		fields = append(fields, zap.String(string(r), strings.Repeat(`"`, 1<<20)))
	}
	log.Error(strings.Repeat("é", 1<<20), fields...)
	assert.Equal(t, "3", entry(t, conn)["PRIORITY"])
}

// The socket of journald is full and nobody reads it: who logs goes on. Later all that was
// kept arrives, and a line says what is missing.
func TestFullSocketBlocksNobody(t *testing.T) {
	conn, log, q := listen(t)
	big := zap.String("much", strings.Repeat("x", maxField))
	logged := 0
	for ; q.Lost() < 10; logged++ { // the socket takes a few; the queue takes the others
		log.Warn("flood", big)
	}
	var gap string
	for range logged - q.Lost() + 1 {
		if m := entry(t, conn)["MESSAGE"]; strings.Contains(m, "are missing here") {
			gap = m
		}
	}
	assert.Equal(t, "10 lines of this log are missing here: nobody took them in time, and fencing does not wait for that", gap)
	log.Info("again")
	assert.Equal(t, "again", entry(t, conn)["MESSAGE"])
}

// A journal whose socket was made anew gets what waited for it.
func TestSocketThatIsMadeAnew(t *testing.T) {
	conn, log, _ := listen(t)
	path := conn.LocalAddr().String()
	require.NoError(t, conn.Close())
	require.NoError(t, os.Remove(path))
	log.Info("one")
	again := must.Do(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	defer again.Close()
	assert.Equal(t, "one", entry(t, again)["MESSAGE"])
}
