package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// write makes a batch durable and gives the head after each of its lines. After an
// error nothing of it is in the file.
func (l *Log) write(batch []waiting, head Head, missed uint64) ([]Head, error) {
	head, err := l.named(head)
	if err == nil {
		err = l.clear()
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(batch)+1)
	if missed > l.lost { // somebody reads later that something is not here
		entries = append(entries, Entry{At: time.Now().UTC(), Type: Lost, Message: fmt.Sprintf("%d entries could not be written", missed-l.lost)})
	}
	for _, w := range batch {
		entries = append(entries, w.entry)
	}
	if l.size > l.opt.MaxFile {
		head, err = l.putAside(head)
	}
	if err == nil {
		err = l.keepName()
	}
	if err != nil {
		return nil, err
	}
	lines, heads, err := chain(head, entries)
	if err == nil {
		err = l.store(lines)
	}
	if err != nil {
		return nil, err
	}
	l.lost = missed
	return heads, nil
}

// chain gives the lines of entries that follow head, and the head after each.
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

// store appends lines and waits for the disk. Lines that did not all get there are
// taken back: nobody was told that they are.
func (l *Log) store(lines []byte) error {
	l.stale = true
	_, err := l.file.Write(lines)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("append to the audit log: %w", err), l.clear())
	}
	l.size, l.stale = l.size+int64(len(lines)), false
	return nil
}

// clear takes back what a failed write has left.
func (l *Log) clear() error {
	if !l.stale {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("take back what was written of the audit log: %w", err)
	}
	l.stale = false
	return nil
}

// putAside ends a file that grew large. The next one begins with an entry that
// follows its last, and takes its name when that is durable: the name always leads
// to a log.
func (l *Log) putAside(head Head) (Head, error) {
	return l.next(head, l.opened(), func(name string) error {
		err := os.Link(l.path, fmt.Sprintf("%s.%012d", l.path, head.Seq))
		if err == nil || errors.Is(err, os.ErrExist) { // an attempt before this one came that far
			err = os.Rename(name, l.path)
		}
		return err
	})
}

// next goes on in another file, which begins with an entry and to which take gives
// the log's name when that is durable.
func (l *Log) next(head Head, first Entry, take func(name string) error) (Head, error) {
	lines, heads, err := chain(head, []Entry{first})
	if err != nil {
		return Head{}, err
	}
	name := l.path + ".new"
	_ = os.Remove(name) // of an attempt before this one; it may be the name of a log by now
	next, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return Head{}, fmt.Errorf("begin another file of the audit log: %w", err)
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
		return Head{}, errors.Join(fmt.Errorf("begin another file of the audit log: %w", err), next.Close())
	}
	_ = l.file.Close() // all of it is durable
	l.file, l.size, l.stale, l.renamed = next, int64(len(lines)), false, true
	l.mu.Lock()
	l.head = heads[0]
	l.mu.Unlock()
	return heads[0], nil
}

// keepName makes the name of another file durable before anything else is written there.
func (l *Log) keepName() error {
	if !l.renamed {
		return nil
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return fmt.Errorf("begin another file of the audit log: %w", err)
	}
	l.renamed = false
	return nil
}

func (l *Log) opened() Entry {
	return Entry{At: time.Now().UTC(), Type: Opened, Origin: &l.opt.Origin}
}

// syncDir makes names durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
