package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The types of entries that the log itself writes; all others are events of the
// daemon.
const (
	Opened   = "Opened"   // the daemon started, or a new file started
	Repaired = "Repaired" // an unfinished line was removed
	Lost     = "Lost"     // entries could not be written
)

// continued is the message of an entry Opened with which the same daemon continues the log in the next file.
const continued = "the file before this one was full"

// afterUse begins the message of an entry Opened of a start: its daemon found a saved head of that time.
const afterUse = "the log was last in use at "

// Starts returns whether the entry is that of a start of the daemon, and not of another file.
func (e Entry) Starts() bool {
	return e.Type == Opened && (e.Message == "" || strings.HasPrefix(e.Message, afterUse))
}

// LastUse returns until when a daemon is known to have been alive before this start, to five minutes: a daemon saves the head of
// its log that often, and when it stops. It is false where that is not known.
func (e Entry) LastUse() (time.Time, bool) {
	text, is := strings.CutPrefix(e.Message, afterUse)
	if !is || e.Type != Opened {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// Entry is one decision, order or action.
type Entry struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	Machine string    `json:"machine,omitempty"` // of a target that has no Node
	Run     string    `json:"run,omitempty"`
	Step    string    `json:"step,omitempty"`
	Action  string    `json:"action,omitempty"`
	Reason  string    `json:"reason,omitempty"` // a stable code
	Message string    `json:"message,omitempty"`
	Check   string    `json:"check,omitempty"` // the check that asked for it
	Actor   string    `json:"actor,omitempty"` // of an order
	Why     string    `json:"why,omitempty"`   // the reason that the person gave for an order
	Inputs  string    `json:"inputs,omitempty"`
	Gates   []Gate    `json:"gates,omitempty"`
	Origin  *Origin   `json:"origin,omitempty"` // of Opened
}

// Gate is one gate of a decision.
type Gate struct {
	Name      string `json:"name"`
	Pass      bool   `json:"pass"`
	Reason    string `json:"reason,omitempty"`
	Value     string `json:"value,omitempty"`
	Threshold string `json:"threshold,omitempty"`
}

// Origin is the writer of the log.
type Origin struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	Store   string `json:"store"` // the id of the store that holds the decisions
}

// Limits of an entry. Much of its text comes from BMCs and from the cluster.
const (
	maxText  = 1024
	maxValue = 256
	maxGates = 64
)

// limited returns the entry with every text printable and cut.
func (e Entry) limited() Entry {
	for _, s := range []*string{
		&e.Type, &e.Cluster, &e.Node, &e.Machine, &e.Run, &e.Step, &e.Action, &e.Reason, &e.Message, &e.Check, &e.Actor, &e.Why, &e.Inputs,
	} {
		*s = printable(*s, maxText)
	}
	gates := make([]Gate, 0, min(len(e.Gates), maxGates))
	for _, g := range e.Gates[:cap(gates)] {
		g.Name, g.Reason = printable(g.Name, maxValue), printable(g.Reason, maxValue)
		g.Value, g.Threshold = printable(g.Value, maxValue), printable(g.Threshold, maxValue)
		gates = append(gates, g)
	}
	e.Gates = gates
	if e.Origin != nil {
		e.Origin = &Origin{printable(e.Origin.Version, maxValue), printable(e.Origin.Host, maxValue), printable(e.Origin.Store, maxValue)}
	}
	return e
}

// printable makes text safe to show, and cuts it to most bytes, not counting the
// mark of the cut.
func printable(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		piece := string(r)
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if b.Len()+len(piece) > most {
			b.WriteString("...")
			break
		}
		b.WriteString(piece)
	}
	return b.String()
}

// encode returns the bytes that are hashed.
func (e Entry) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read it
	if err := enc.Encode(e.limited()); err != nil {
		return nil, fmt.Errorf("encode entry %d: %w", e.Seq, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Head is a position in the chain: the number of an entry and the hash of all
// entries up to it. The zero Head is the position before the first entry.
type Head struct {
	Seq  uint64
	Hash [sha256.Size]byte
}

// String is the format in which heads are exported: SEQ:HASH.
func (h Head) String() string { return fmt.Sprintf("%d:%x", h.Seq, h.Hash) }

// ParseHead parses the result of String.
func ParseHead(text string) (h Head, err error) {
	seq, hash, _ := strings.Cut(text, ":")
	if h.Seq, err = strconv.ParseUint(seq, 10, 63); err != nil {
		return Head{}, fmt.Errorf("head %q is not SEQ:HASH", printable(text, 100))
	}
	if err := parseHash(&h.Hash, []byte(hash)); err != nil {
		return Head{}, fmt.Errorf("head %q: %w", printable(text, 100), err)
	}
	return h, nil
}

func parseHash(to *[sha256.Size]byte, text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != sha256.Size || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("the hash is not %d lower-case hexadecimal digits", hexLen)
	}
	copy(to[:], raw)
	return nil
}

// after returns the head after payload, entry number h.Seq+1, was appended to h.
func (h Head) after(payload []byte) Head {
	sum := sha256.New()
	sum.Write(h.Hash[:])
	sum.Write(payload)
	next := Head{Seq: h.Seq + 1}
	sum.Sum(next.Hash[:0])
	return next
}

// The fixed parts of a line.
const (
	beforePrev  = `{"prev":"`
	beforeHash  = `","hash":"`
	beforeEntry = `","entry":`
	afterEntry  = `}`
)

// appendLine appends the line of payload, which follows h, and returns the new
// head.
func appendLine(to []byte, h Head, payload []byte) ([]byte, Head) {
	next := h.after(payload)
	to = append(to, beforePrev...)
	to = hex.AppendEncode(to, h.Hash[:])
	to = append(to, beforeHash...)
	to = hex.AppendEncode(to, next.Hash[:])
	to = append(to, beforeEntry...)
	to = append(to, payload...)
	return append(to, afterEntry+"\n"...), next
}

// Offsets of the three values in a line.
const (
	hexLen  = 2 * sha256.Size
	prevAt  = len(beforePrev)
	hashAt  = prevAt + hexLen + len(beforeHash)
	entryAt = hashAt + hexLen + len(beforeEntry)
)

// parseLine parses a line without its newline. It is strict: there is only one
// valid encoding.
func parseLine(line []byte) (prev, next Head, e Entry, err error) {
	if len(line) < entryAt+len(afterEntry) || string(line[:prevAt]) != beforePrev ||
		string(line[prevAt+hexLen:hashAt]) != beforeHash || string(line[hashAt+hexLen:entryAt]) != beforeEntry ||
		!bytes.HasSuffix(line, []byte(afterEntry)) {
		return Head{}, Head{}, Entry{}, errors.New("it is not a line of an audit log")
	}
	err = errors.Join(parseHash(&prev.Hash, line[prevAt:prevAt+hexLen]), parseHash(&next.Hash, line[hashAt:hashAt+hexLen]))
	if err != nil {
		return Head{}, Head{}, Entry{}, err
	}
	payload := line[entryAt : len(line)-len(afterEntry)]
	if err := decodeStrict(payload, &e); err != nil {
		return Head{}, Head{}, Entry{}, fmt.Errorf("its entry does not decode: %w", err)
	}
	if e.Seq == 0 {
		return Head{}, Head{}, Entry{}, errors.New("it has no number")
	}
	prev.Seq, next.Seq = e.Seq-1, e.Seq
	if prev.after(payload) != next {
		return Head{}, Head{}, Entry{}, errors.New("its hash does not match its content: the line was changed")
	}
	return prev, next, e, nil
}

func decodeStrict(data []byte, e *Entry) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the entry")
	}
	return nil
}
