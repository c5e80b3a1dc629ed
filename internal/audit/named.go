package audit

import (
	"errors"
	"fmt"
	"os"
)

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
