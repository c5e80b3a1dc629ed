package audit

import (
	"errors"
	"fmt"
	"os"
)

// named proves, before something is written, that the log's name leads to the file
// that is open: an entry in any other file is where nobody looks. A file that was
// moved or taken away is followed by one that says so. Nothing else is mended: what
// has the name, or became of the file, may be evidence. // I24
func (l *Log) named(head Head) (Head, error) {
	is, err := l.file.Stat()
	if err != nil {
		return head, fmt.Errorf("look at the audit log: %w", err)
	}
	named, err := os.Stat(l.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l.anew(head)
	case err != nil:
		return head, fmt.Errorf("look at the audit log: %w", err)
	case !os.SameFile(named, is):
		return head, fmt.Errorf("append to the audit log: %s is another file now: look at it, move it away, and the log goes on", l.path)
	case is.Size() < l.size || is.Size() > l.size && !l.stale: // stale: it is our own that is too much
		return head, fmt.Errorf("append to the audit log: %s has %d bytes, and %d were written: something else has changed it: keep it as evidence, move it away, and the log goes on",
			l.path, is.Size(), l.size)
	}
	return head, nil
}

// anew goes on in a new file under the log's name, and tells of it: whoever moved the
// old one may not have known what it is.
func (l *Log) anew(head Head) (Head, error) {
	first := l.opened()
	first.Message = fmt.Sprintf("the file of the entries up to %d is gone: it was moved or removed while it was written", head.Seq)
	next, err := l.next(head, first, func(name string) error {
		if err := os.Link(name, l.path); err != nil { // which takes nothing's name away
			return err
		}
		_ = os.Remove(name) // next does that, too
		return nil
	})
	if err != nil {
		return head, err
	}
	l.opt.Tell(errors.New(first.Message))
	l.opt.Tell(nil)
	return next, nil
}
