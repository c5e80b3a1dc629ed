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

// Head is a place in the chain: the number of an entry and the hash of all up to
// it. The zero Head is the place before the first entry.
type Head struct {
	Seq  uint64
	Hash [sha256.Size]byte
}

// String is the form in which heads are exported: SEQ:HASH.
func (h Head) String() string { return fmt.Sprintf("%d:%x", h.Seq, h.Hash) }

// ParseHead reads what String wrote.
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

// after is the head once payload, entry number h.Seq+1, has followed h.
func (h Head) after(payload []byte) Head {
	sum := sha256.New()
	sum.Write(h.Hash[:])
	sum.Write(payload)
	next := Head{Seq: h.Seq + 1}
	sum.Sum(next.Hash[:0])
	return next
}

// The parts of a line around its three values.
const (
	beforePrev  = `{"prev":"`
	beforeHash  = `","hash":"`
	beforeEntry = `","entry":`
	afterEntry  = `}`
)

// appendLine adds the line of payload, which follows h, and gives the new head.
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

// Where the three values of a line begin.
const (
	hexLen  = 2 * sha256.Size
	prevAt  = len(beforePrev)
	hashAt  = prevAt + hexLen + len(beforeHash)
	entryAt = hashAt + hexLen + len(beforeEntry)
)

// parseLine takes a line, without its end, apart. It is strict: the form has no
// second way to be written.
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
	if err := strict(payload, &e); err != nil {
		return Head{}, Head{}, Entry{}, fmt.Errorf("its entry does not decode: %w", err)
	}
	if e.Seq == 0 {
		return Head{}, Head{}, Entry{}, errors.New("it has no number")
	}
	prev.Seq, next.Seq = e.Seq-1, e.Seq
	if prev.after(payload) != next {
		return Head{}, Head{}, Entry{}, errors.New("its hash is not that of its content: it was changed")
	}
	return prev, next, e, nil
}

func strict(data []byte, e *Entry) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows it")
	}
	return nil
}
