package logging

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/wire"
)

const (
	// journalSocket is where journald takes entries with fields: the native protocol.
	journalSocket = "/run/systemd/journal/socket"
	// A datagram must fit the socket's buffer: 208 KiB on Linux.
	maxMessage = 16 << 10
	maxField   = 2 << 10
	maxFields  = 16
	// redialTime is between two attempts to reach a journal that has gone.
	redialTime = time.Second
)

// journalSender writes entries to the journal's socket. It does not use journal.Send: that
// function sends from a socket that is not connected, and the kernel calls such a socket
// writable while the queue of journald is full. So it would use a whole processor until
// journald reads again. A connected socket sleeps.
type journalSender struct {
	path string
	conn *net.UnixConn
}

func dialJournal(path string) (*journalSender, error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("connect to the journal: %w", err)
	}
	return &journalSender{path: path, conn: conn}, nil
}

// send blocks until journald has the entry. The socket of journald outlives its restarts,
// but not that of its socket unit.
func (s *journalSender) send(entry []byte) {
	for {
		_, err := s.conn.Write(entry)
		if err == nil || errors.Is(err, unix.EMSGSIZE) { // too long for the buffers of this host, now and later
			return
		}
		time.Sleep(redialTime)
		if again, err := dialJournal(s.path); err == nil {
			_ = s.conn.Close() // it is of no use any more
			s.conn = again.conn
		}
	}
}

// priorities are those of syslog; what is not here is worse than an error.
var priorities = map[zapcore.Level]journal.Priority{
	zapcore.DebugLevel: journal.PriDebug, zapcore.InfoLevel: journal.PriInfo,
	zapcore.WarnLevel: journal.PriWarning, zapcore.ErrorLevel: journal.PriErr,
}

func priority(l zapcore.Level) journal.Priority {
	if p, ok := priorities[l]; ok {
		return p
	}
	return journal.PriCrit
}

// journalEncoder writes an entry as a datagram of the native protocol. Each field of the
// entry is one of the journal, FENCED_NODE for node, and stands at the end of the message,
// too: journalctl shows only that.
type journalEncoder struct{ *zapcore.MapObjectEncoder }

func newJournalEncoder() zapcore.Encoder {
	return journalEncoder{zapcore.NewMapObjectEncoder()}
}

// Clone implements zapcore.Encoder.
func (e journalEncoder) Clone() zapcore.Encoder {
	c := zapcore.NewMapObjectEncoder()
	maps.Copy(c.Fields, e.Fields)
	return journalEncoder{c}
}

// EncodeEntry implements zapcore.Encoder.
func (e journalEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	all := e.Clone().(journalEncoder)
	for _, f := range fields {
		f.AddTo(all)
	}
	if entry.LoggerName != "" {
		all.AddString("logger", entry.LoggerName)
	}
	keys := slices.SortedFunc(maps.Keys(all.Fields), byRank)
	message, named := printable(entry.Message, maxMessage), ""
	for _, key := range keys[:min(len(keys), maxFields)] {
		text := printable(fmt.Sprint(all.Fields[key]), maxField)
		message += " " + key + "=" + quoted(text)
		named += fieldName(key) + "=" + text + "\n"
	}
	out := buffers.Get()
	_, err := fmt.Fprintf(out, "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=fenced\n%s", message, priority(entry.Level), named)
	return out, err
}

var buffers = buffer.NewPool()

// printable is at most limit bytes of a text on one line, without what a terminal obeys:
// much in it is of BMCs and clusters.
func printable(text string, limit int) string {
	text = text[:min(len(text), limit)]
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || wire.Unprintable(r) {
			return ' '
		}
		return r
	}, text)
}

// ranks order the fields in a message as a person reads them; the others follow by name.
var ranks = []string{"event", "cluster", "node", "machine", "check", "run", "step", "action", "reason"}

func byRank(a, b string) int {
	rank := func(key string) int {
		if i := slices.Index(ranks, key); i >= 0 {
			return i
		}
		return len(ranks)
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// fieldName is a field as journald accepts it: capital letters, digits and underscores.
func fieldName(key string) string {
	return "FENCED_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// quoted is a value as a message shows it, in quotes if it is not one word.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " =\"") {
		return strconv.Quote(text)
	}
	return text
}
