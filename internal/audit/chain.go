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
)

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
