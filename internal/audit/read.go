package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine limits a line, in bytes; the largest entry is far smaller.
const maxLine = 256 << 10

// Line is one line of a log, verified to follow the line before it.
type Line struct {
	Entry Entry
	Head  Head   // of the chain including this line
	Raw   []byte // without its newline; valid until the next line is read
}

// Span is the part of a log that was read.
type Span struct {
	Before Head  // the position before the first line
	Head   Head  // the position of the last line
	Whole  int64 // bytes of whole lines
	// Torn is the number of bytes after the last whole line, after a crash or
	// during a write.
	Torn int64
	// Remembered is the saved head that Verify has compared, if there was one.
	Remembered Head
}

// Broken is the error of a log that was damaged or changed.
type Broken struct {
	File string // the file, if known
	Line int    // counted from 1
	Seq  uint64 // the last good entry
	What string
}

func (b *Broken) Error() string {
	where := ""
	if b.File != "" {
		where = b.File + ": "
	}
	if b.Line > 0 {
		where += fmt.Sprintf("line %d: ", b.Line)
	}
	return fmt.Sprintf("%sthe audit log is broken after entry %d: %s", where, b.Seq, b.What)
}

// Read verifies one file line by line and calls f with each good line. Its error
// is a *Broken, or an error of f or the reader. The Span is what was read before
// the error.
func Read(r io.Reader, f func(Line) error) (Span, error) {
	var s Span
	buffered := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		raw, err := buffered.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			if !bytes.HasPrefix([]byte(beforePrev), raw[:min(len(raw), prevAt)]) {
				return s, &Broken{Line: n, Seq: s.Head.Seq, What: "what follows was never the beginning of a line"}
			}
			s.Torn = int64(len(raw))
			return s, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return s, &Broken{Line: n, Seq: s.Head.Seq, What: fmt.Sprintf("a line has more than %d bytes", maxLine)}
		case err != nil:
			return s, fmt.Errorf("read the audit log: %w", err)
		}
		line, err := s.add(raw[:len(raw)-1], n)
		if err != nil {
			return s, err
		}
		s.Whole += int64(len(raw))
		if err := f(line); err != nil {
			return s, err
		}
	}
}

// add verifies that a line follows what was read.
func (s *Span) add(raw []byte, n int) (Line, error) {
	broken := func(what string) error { return &Broken{Line: n, Seq: s.Head.Seq, What: what} }
	prev, next, e, err := parseLine(raw)
	if err != nil {
		return Line{}, broken(err.Error())
	}
	switch {
	case n > 1 && prev.Seq != s.Head.Seq:
		return Line{}, broken(fmt.Sprintf("entry %d comes next: lines were removed, added or moved", e.Seq))
	case n > 1 && prev != s.Head:
		return Line{}, broken(fmt.Sprintf("entry %d does not follow the line before it: one of them was replaced", e.Seq))
	case n == 1 && e.Type != Opened:
		return Line{}, broken(fmt.Sprintf("it starts with entry %d, which is not Opened: its beginning is missing", e.Seq))
	case n == 1 && prev.Seq == 0 && prev != Head{}:
		return Line{}, broken("entry 1 follows something")
	case n == 1:
		s.Before = prev
	}
	s.Head = next
	return Line{Entry: e, Head: next, Raw: raw}, nil
}
