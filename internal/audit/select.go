package audit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// disorder is by how much entries may be older than those before them: a clock was set back, or they waited for the disk.
const disorder = time.Hour

// Query selects entries. An empty field selects all.
type Query struct {
	Since, Until time.Time // entries that were written at Since or later, and before Until
	Cluster      string
	Node         string // of a Node, or the "namespace/name" of a Machine
	Run          string
}

func (q Query) selects(e *Entry) bool {
	return !e.At.Before(q.Since) && (q.Until.IsZero() || e.At.Before(q.Until)) && (q.Cluster == "" || e.Cluster == q.Cluster) &&
		(q.Run == "" || e.Run == q.Run) && (q.Node == "" || e.Node == q.Node || e.Machine == q.Node)
}

// isOverAt says whether no entry that follows one of that time is selected, unless a clock that was ahead has written it.
func (q Query) isOverAt(at time.Time) bool {
	return !q.Until.IsZero() && !at.Before(q.Until.Add(disorder))
}

// Break is a place where the log does not continue what was before it: entries are missing there, or were changed.
type Break struct {
	After uint64    `json:"after"`         // the number of the entry before it; 0: the log begins here
	Next  uint64    `json:"next"`          // the number of the entry after it; 0: none follows
	From  time.Time `json:"from,omitzero"` // when the entry before it was written
	To    time.Time `json:"to,omitzero"`   // when the entry after it was written
	What  string    `json:"what"`
}

// Select reads the log at path, and calls entry with each entry that q selects, and broken with each break, in their order. It
// is for people who want to read on behind a break; Verify is for evidence. Files that ended before q.Since are not read, nor those
// that follow one of which all is after q.Until. It needs no lock, so it never delays the writer: it reads the file that is written as far as it was when it was opened, and a
// file that is renamed meanwhile is read under its new name. Its error is that of a file that cannot be read, of ctx, or of
// one of the two functions.
func Select(ctx context.Context, path string, q Query, entry func(Entry) error, broken func(Break) error) error {
	known, err := loadHead(path) // before the log, which is never behind it
	if err != nil {
		return fmt.Errorf("read the saved head of the audit log: %w", err)
	}
	s := &selection{ctx: ctx, q: q, entry: entry, broken: broken}
	if err := s.files(path); err != nil {
		return err
	}
	if !s.over && known.Seq > s.head.Seq {
		s.bad = cmp.Or(s.bad, fmt.Sprintf("there was an entry %d: the end is missing", known.Seq))
	}
	return s.tellBreak(0, time.Time{})
}

// selection is one Select.
type selection struct {
	ctx    context.Context
	q      Query
	entry  func(Entry) error
	broken func(Break) error

	passed uint64 // the number of the last rotated file that is done with
	last   os.FileInfo
	head   Head      // after the last good line
	at     time.Time // when that was written
	seen   bool      // there was a good line, or a file was passed over
	beyond bool      // the first entry of the file that is read is not before q.Until, nor is any other so far
	over   bool      // what follows is not before q.Until
	bad    string    // what is wrong since the last good line; "" if nothing is
}

// files reads the rotated files, oldest first, and then the one that is written.
func (s *selection) files(path string) error {
	for !s.over {
		old := slices.DeleteFunc(rotated(path), func(n uint64) bool { return n <= s.passed })
		name := path
		if len(old) > 0 {
			name = rotatedName(path, old[0])
		}
		f, err := openRegular(name, os.O_RDONLY)
		if err != nil {
			return fmt.Errorf("open the audit log: %w", err)
		}
		if len(old) == 0 {
			// It may have got its name after the list was made, and the one before it a number.
			if old = rotated(path); len(old) == 0 || old[len(old)-1] <= s.passed {
				return errors.Join(s.file(f), f.Close())
			}
			if err := f.Close(); err != nil {
				return err
			}
			continue
		}
		next := path
		if len(old) > 1 {
			next = rotatedName(path, old[1])
		}
		if s.at.IsZero() && s.q.isEndedBefore(name, next) { // only before the first entry
			s.head, s.seen = Head{Seq: old[0]}, true
		} else {
			err = s.file(f)
		}
		s.over = s.beyond && !s.q.isBegunBefore(path, old[1:])
		s.passed = old[0]
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// rotated lists the numbers of the rotated files, ascending.
func rotated(path string) (numbers []uint64) {
	files := Files(path)
	for _, name := range files[:len(files)-1] {
		if n, err := strconv.ParseUint(strings.TrimPrefix(name, path+"."), 10, 63); err == nil && rotatedName(path, n) == name {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// beginOf returns when the first entry of a file was written.
func beginOf(name string) (at time.Time, known bool) {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return time.Time{}, false
	}
	defer f.Close()
	raw, err := bufio.NewReaderSize(f, maxLine).ReadSlice('\n')
	if err != nil {
		return time.Time{}, false
	}
	_, _, e, err := parseLine(raw[:len(raw)-1])
	return e.At, err == nil
}

// isEndedBefore says whether a file ended before q.Since: the next one began before that, by a clock that was not set back meanwhile.
func (q Query) isEndedBefore(name, next string) bool {
	ended, known := beginOf(next)
	began, _ := beginOf(name)
	return known && !ended.Add(disorder).Before(began) && ended.Add(disorder).Before(q.Since)
}

// isBegunBefore says whether the log at path, or one of its rotated files, begins before q.Until: the clock was ahead in the files before it.
func (q Query) isBegunBefore(path string, numbers []uint64) bool {
	names := []string{path}
	for _, n := range numbers {
		names = append(names, rotatedName(path, n))
	}
	return slices.ContainsFunc(names, func(name string) bool {
		began, known := beginOf(name)
		return known && !q.isOverAt(began)
	})
}

// file reads one file to the end that it has now.
func (s *selection) file(f *os.File) error {
	is, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	again := s.last != nil && os.SameFile(s.last, is) // a crash left it two names
	s.last = is
	buffered := bufio.NewReaderSize(io.LimitReader(f, is.Size()), maxLine)
	s.beyond = false // until it has a first entry
	for n := 1; ; n++ {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		raw, err := buffered.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF): // an unfinished line is being written; behind one that was, more follows
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			s.bad = fmt.Sprintf("a line has more than %d bytes", maxLine)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = buffered.ReadSlice('\n')
			}
		case err == nil:
			err = s.line(raw[:len(raw)-1], n == 1, again)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the audit log: %w", err)
		}
	}
}

// line takes in one line. again: the file was read before, as far as its entries are known.
func (s *selection) line(raw []byte, first, again bool) error {
	prev, next, e, err := parseLine(raw)
	s.beyond = (first || s.beyond) && err == nil && s.q.isOverAt(e.At)
	switch {
	case err != nil:
		s.bad = cmp.Or(s.bad, err.Error())
		return nil
	case again && next.Seq <= s.head.Seq:
		return nil
	case s.bad != "":
	case !s.seen && prev.Seq > 0:
		s.bad = fmt.Sprintf("it begins with entry %d: what was before is not here", e.Seq)
	case prev.Seq != s.head.Seq:
		s.bad = fmt.Sprintf("entry %d follows entry %d: entries are missing, or were added or moved", e.Seq, s.head.Seq)
	case prev != s.head && s.head.Hash != Head{}.Hash: // it is not known of a file that was passed over
		s.bad = fmt.Sprintf("entry %d does not follow the one before it: one of them was replaced", e.Seq)
	}
	if err := s.tellBreak(e.Seq, e.At); err != nil {
		return err
	}
	s.head, s.at, s.seen = next, e.At, true
	if !s.q.selects(&e) {
		return nil
	}
	return s.entry(e)
}

// tellBreak tells what is wrong before the entry next, if anything is.
func (s *selection) tellBreak(next uint64, at time.Time) error {
	if s.bad == "" {
		return nil
	}
	b := Break{After: s.head.Seq, Next: next, From: s.at, To: at, What: printable(s.bad, maxValue)}
	s.bad = ""
	return s.broken(b)
}
