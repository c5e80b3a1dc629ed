package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Files returns the existing files of the log at path, oldest first: the rotated
// files, and the one being written.
func Files(path string) (files []string) {
	entries, _ := os.ReadDir(filepath.Dir(path)) // one that cannot be listed shows no rotated file
	for _, e := range entries {                  // by name: the numbers have leading zeros
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if ok && strings.IndexAny(number, "0123456789") == 0 {
			files = append(files, path+"."+number)
		}
	}
	return append(files, path)
}

// Walk verifies all files of the log at path, and that each follows the one
// before it, and calls f with every good line.
func Walk(path string, f func(Line) error) (Span, error) {
	files := Files(path)
	var whole Span
	for i, name := range files {
		s, err := walkFile(name, f)
		if i == 0 {
			whole.Before = s.Before
		}
		if s.Whole > 0 || i == 0 {
			if i > 0 && s.Before != whole.Head {
				return whole, &Broken{File: name, Seq: whole.Head.Seq, What: fmt.Sprintf("it follows entry %d, but the file before it does not end there", s.Before.Seq)}
			}
			whole.Head = s.Head
		}
		whole.Whole, whole.Torn = whole.Whole+s.Whole, s.Torn
		if broken, ok := errors.AsType[*Broken](err); ok {
			broken.File = name
		}
		if err != nil {
			return whole, err
		}
		if s.Torn > 0 && i < len(files)-1 {
			return whole, &Broken{File: name, Seq: whole.Head.Seq, What: "its last line is cut, and more files follow"}
		}
	}
	return whole, nil
}

func walkFile(name string, f func(Line) error) (Span, error) {
	file, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return Span{}, fmt.Errorf("open the audit log: %w", err)
	}
	s, err := Read(file, f)
	return s, errors.Join(err, file.Close())
}

// Verify verifies the log at path, and that it contains every exported head, and
// the head that the daemon saved next to it. An exported head just before its
// first entry accounts for files that were removed on purpose. // I24
func Verify(path string, exported ...Head) (Span, error) {
	remembered, err := loadHead(path) // before the log, which is never behind it
	if err != nil {
		return Span{}, fmt.Errorf("read the saved head of the audit log: %w", err)
	}
	heads := slices.Clone(exported)
	if (remembered != Head{}) {
		heads = append(heads, remembered)
	}
	s, err := verify(path, heads)
	if err != nil {
		return s, err
	}
	s.Remembered = remembered
	// The saved head does not account for files that were removed.
	if (s.Before != Head{}) && !slices.Contains(exported, s.Before) {
		return s, &Broken{What: fmt.Sprintf("it starts with entry %d; if older files were removed on purpose, verify those, too, and give their last head", s.Before.Seq+1)}
	}
	return s, nil
}

// verify verifies a log and that it contains each of the heads.
func verify(path string, heads []Head) (Span, error) {
	wanted := map[uint64][]Head{}
	for _, h := range heads {
		wanted[h.Seq] = append(wanted[h.Seq], h)
	}
	s, err := Walk(path, func(l Line) error {
		return headMismatch(wanted[l.Head.Seq], l.Head)
	})
	if err != nil {
		return s, err
	}
	for _, h := range heads {
		switch {
		case h.Seq > s.Head.Seq:
			return s, &Broken{Seq: s.Head.Seq, What: fmt.Sprintf("it ends there, but entry %d was exported: its end is missing", h.Seq)}
		case h.Seq == s.Before.Seq && h != s.Before:
			return s, headMismatch([]Head{h}, s.Before)
		}
	}
	if s.Head.Seq == 0 {
		return s, &Broken{What: "it holds no entry, and a log begins with one"}
	}
	return s, nil
}

// headMismatch returns the error of a position that differs from an exported one.
func headMismatch(exported []Head, is Head) error {
	for _, h := range exported {
		if h != is {
			return &Broken{Seq: is.Seq - min(is.Seq, 1), What: fmt.Sprintf("entry %d is not the one that was exported: the log was rebuilt", is.Seq)}
		}
	}
	return nil
}

// Tail calls f with the entries in the last bytes of the newest file, oldest first. It verifies
// nothing, and passes over what is no line: it is for people who want to know what happened
// lately, not for evidence. A log that does not exist has no entries.
func Tail(path string, size int64, f func(Entry)) error {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	defer file.Close()
	is, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	lines := bufio.NewScanner(io.NewSectionReader(file, max(0, is.Size()-size), size))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if _, _, e, err := parseLine(lines.Bytes()); err == nil { // the first line may be the end of one
			f(e)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the end of the audit log: %w", err)
	}
	return nil
}
