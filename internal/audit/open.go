package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrLocked means that another process writes the log.
var ErrLocked = errors.New("another fenced writes it")

// Open verifies the last file of the log at path, creates it if there is none,
// and writes an entry Opened. It removes an unfinished line. It refuses a file
// with any other damage, and one that lacks entries of the exported head: such a
// file is evidence.
func Open(path string, opt Options) (*Log, error) {
	opt.MaxFile = cmp.Or(opt.MaxFile, maxFile)
	if opt.OnError == nil {
		opt.OnError = func(error) {}
	}
	file, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	l := &Log{opt: opt, path: path, file: file, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := l.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the audit log %s: %w", path, err), file.Close())
	}
	go l.writeLoop()
	return l, nil
}

// resume continues the log at its end.
func (l *Log) resume() error {
	if err := lock(l.file); err != nil {
		return err
	}
	if err := l.checkLockedName(); err != nil {
		return err
	}
	known, err := loadHead(l.path)
	if err != nil {
		return err
	}
	s, err := Read(l.file, func(line Line) error { return headMismatch(atSeq(known, line.Head.Seq), line.Head) })
	if err == nil {
		err = s.checkReaches(known)
	}
	if err != nil {
		return fmt.Errorf("%w; keep it as evidence: move it away, with the files of the same name and a number; a new log starts within seconds", err)
	}
	if s.Whole == 0 { // a new file, which follows the saved head
		s.Head = known
	}
	l.head, l.size, l.stale = s.Head, s.Whole, s.Torn > 0
	entries := []Entry{l.opened()}
	if is, err := os.Stat(headFile(l.path)); err == nil && known != (Head{}) {
		entries[0].Message = afterUse + is.ModTime().UTC().Format(time.RFC3339)
	}
	if s.Torn > 0 {
		repaired := l.opened()
		repaired.Type, repaired.Origin, repaired.Message = Repaired, nil, fmt.Sprintf("%d bytes of an unfinished line were removed", s.Torn)
		entries = append(entries, repaired)
	}
	return l.writeFirst(entries)
}

// writeFirst writes the entries of a start.
func (l *Log) writeFirst(entries []Entry) error {
	if err := l.discardFailed(); err != nil {
		return err
	}
	lines, heads, err := chain(l.head, entries)
	if err == nil {
		err = l.appendLines(lines)
	}
	if err == nil {
		err = syncDir(filepath.Dir(l.path))
	}
	if err == nil {
		l.head = heads[len(heads)-1]
	}
	return err
}

// atSeq returns the head in a list if it is of that entry, else nil.
func atSeq(h Head, seq uint64) []Head {
	if h.Seq != seq || seq == 0 {
		return nil
	}
	return []Head{h}
}

// checkReaches verifies that a file continues at least to the saved head of the
// log. A file without a whole line counts as new.
func (s Span) checkReaches(known Head) error {
	switch {
	case s.Whole > 0 && s.Head.Seq < known.Seq:
		return &Broken{Seq: s.Head.Seq, What: fmt.Sprintf("it ends there, but there was an entry %d: its end is missing", known.Seq)}
	case s.Whole > 0 && s.Before.Seq == known.Seq:
		return headMismatch([]Head{known}, s.Before)
	}
	return nil
}

// checkLockedName reports whether the locked file still has the log's name:
// another process may have rotated it in between. It undoes a rotation that a
// crash interrupted.
func (l *Log) checkLockedName() error {
	named, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	is, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(named, is) {
		return ErrLocked
	}
	files := Files(l.path)
	for _, name := range files[:len(files)-1] {
		if old, err := os.Stat(name); err == nil && os.SameFile(old, is) {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// openRegular opens a regular file: reading a pipe or a device instead could
// block forever.
func openRegular(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lock locks the file for this process. The lock ends with the process.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// headFile is the file with the exported head.
func headFile(path string) string { return path + ".head" }

// loadHead returns the head that was exported last; the zero Head if there is
// none.
func loadHead(path string) (Head, error) {
	f, err := openRegular(headFile(path), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return Head{}, nil
	}
	if err != nil {
		return Head{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err = errors.Join(err, f.Close()); err != nil {
		return Head{}, err
	}
	h, err := ParseHead(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return Head{}, fmt.Errorf("%s: %w", headFile(path), err)
	}
	return h, nil
}

// saveHead saves a head atomically.
func saveHead(path string, h Head) error {
	name := headFile(path)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.WriteString(h.String() + "\n")
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("save the head of the audit log: %w", err)
	}
	return nil
}

// checkName verifies before each write that the log's name refers to the open
// file: nobody would look for an entry in another file. If the file was moved or
// removed, checkName starts a new one, whose first entry says so. It repairs
// nothing else: the other file, or the changes, may be evidence. // I24
func (l *Log) checkName(head Head) (Head, error) {
	is, err := l.file.Stat()
	if err != nil {
		return head, fmt.Errorf("check the audit log: %w", err)
	}
	named, err := os.Stat(l.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l.recreate(head)
	case err != nil:
		return head, fmt.Errorf("check the audit log: %w", err)
	case !os.SameFile(named, is):
		return head, fmt.Errorf("append to the audit log: %s is another file now: inspect it and move it away; then the log continues", l.path)
	case is.Size() < l.size || is.Size() > l.size && !l.stale: // stale: the excess is our own
		return head, fmt.Errorf("append to the audit log: %s has %d bytes, but %d were written: something else has changed it: move it away and keep it as evidence; then the log continues",
			l.path, is.Size(), l.size)
	}
	return head, nil
}

// recreate continues in a new file under the log's name, and reports it: whoever
// moved the old file may not have known what it is.
func (l *Log) recreate(head Head) (Head, error) {
	first := l.opened()
	first.Message = fmt.Sprintf("the file of the entries up to %d is gone: it was moved or removed while it was written", head.Seq)
	next, err := l.startFile(head, first, func(name string) error {
		if err := os.Link(name, l.path); err != nil { // never replaces an existing file
			return err
		}
		_ = os.Remove(name) // startFile does that, too
		return nil
	})
	if err != nil {
		return head, err
	}
	l.opt.OnError(errors.New(first.Message))
	l.opt.OnError(nil)
	return next, nil
}
