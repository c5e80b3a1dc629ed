package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// write makes a batch durable and returns the head after each of its lines. After
// an error the file contains none of it.
func (l *Log) write(batch []pendingEntry, head Head, missed uint64) ([]Head, error) {
	head, err := l.checkName(head)
	if err == nil {
		err = l.discardFailed()
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(batch)+1)
	if missed > l.lost { // record that entries are missing
		entries = append(entries, Entry{At: time.Now().UTC(), Type: Lost, Message: fmt.Sprintf("%d entries could not be written", missed-l.lost)})
	}
	for _, w := range batch {
		entries = append(entries, w.entry)
	}
	if l.size > l.opt.MaxFile {
		head, err = l.rotate(head)
	}
	if err == nil {
		err = l.syncName()
	}
	if err != nil {
		return nil, err
	}
	lines, heads, err := chain(head, entries)
	if err == nil {
		err = l.appendLines(lines)
	}
	if err != nil {
		return nil, err
	}
	l.lost = missed
	return heads, nil
}

// chain returns the lines of entries that follow head, and the head after each.
func chain(head Head, entries []Entry) (lines []byte, heads []Head, err error) {
	for _, e := range entries {
		e.Seq = head.Seq + 1
		payload, err := e.encode()
		if err != nil {
			return nil, nil, err
		}
		lines, head = appendLine(lines, head, payload)
		heads = append(heads, head)
	}
	return lines, heads, nil
}

// appendLines appends lines and waits until they are durable. If some fail, it
// removes them all: no caller was told that they were written.
func (l *Log) appendLines(lines []byte) error {
	l.stale = true
	_, err := l.file.Write(lines)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("append to the audit log: %w", err), l.discardFailed())
	}
	l.size, l.stale = l.size+int64(len(lines)), false
	return nil
}

// discardFailed removes what a failed write has left.
func (l *Log) discardFailed() error {
	if !l.stale {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("remove a failed write from the audit log: %w", err)
	}
	l.stale = false
	return nil
}

// rotate ends a large file. The next file starts with an entry that follows its
// last one, and gets the log's name after that entry is durable: the name always
// refers to a log.
func (l *Log) rotate(head Head) (Head, error) {
	return l.startFile(head, l.opened(), func(name string) error {
		err := os.Link(l.path, fmt.Sprintf("%s.%012d", l.path, head.Seq))
		if err == nil || errors.Is(err, os.ErrExist) { // done by an earlier attempt
			err = os.Rename(name, l.path)
		}
		return err
	})
}

// startFile continues in another file, whose first entry is first. take gives
// that file the log's name after the entry is durable.
func (l *Log) startFile(head Head, first Entry, take func(name string) error) (Head, error) {
	lines, heads, err := chain(head, []Entry{first})
	if err != nil {
		return Head{}, err
	}
	name := l.path + ".new"
	_ = os.Remove(name) // left by an earlier attempt; it may even be a log by now
	next, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return Head{}, fmt.Errorf("start a new file of the audit log: %w", err)
	}
	err = lock(next)
	if err == nil {
		_, err = next.Write(lines)
	}
	if err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = take(name)
	}
	if err != nil {
		return Head{}, errors.Join(fmt.Errorf("start a new file of the audit log: %w", err), next.Close())
	}
	_ = l.file.Close() // its content is durable
	l.file, l.size, l.stale, l.renamed = next, int64(len(lines)), false, true
	l.mu.Lock()
	l.head = heads[0]
	l.mu.Unlock()
	return heads[0], nil
}

// syncName makes the name of a new file durable before anything else is written
// to it.
func (l *Log) syncName() error {
	if !l.renamed {
		return nil
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return fmt.Errorf("start a new file of the audit log: %w", err)
	}
	l.renamed = false
	return nil
}

func (l *Log) opened() Entry {
	return Entry{At: time.Now().UTC(), Type: Opened, Origin: &l.opt.Origin}
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
