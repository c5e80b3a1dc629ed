package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/fenced/fenced/internal/state"
)

// The file has one bucket for each kind, and metaBucket. The sequence of metaBucket is the
// last version that a record got.
var (
	metaBucket = []byte("fenced")
	schemaKey  = []byte("schema")
)

// lockTimeout is how long Open waits for the lock of the file. It is short: a second daemon
// must fail at once, and a crash releases the lock.
const lockTimeout = 200 * time.Millisecond

// openFile opens the database and returns it with its file. The database closes the file.
// bbolt panics on some damaged files: openFile returns an error instead.
func openFile(path string) (db *bolt.DB, file *os.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, file, err = nil, nil, fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	open := func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = openRegularFile(path, flag, mode)
		return file, err
	}
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, OpenFile: open})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, nil, state.ErrLocked
	}
	if err != nil {
		return nil, nil, err
	}
	if err := file.Chmod(0o600); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, file, nil
}

// prepareSchema checks the schema. It creates the buckets of an empty file.
func (s *store) prepareSchema(file *os.File) error {
	empty := false
	err := s.db.View(func(tx *bolt.Tx) error {
		if fi, err := file.Stat(); err != nil || fi.Size() < tx.Size() {
			// To read on would be to read mapped memory beyond the end of the file.
			return errors.Join(errors.New("the file is damaged: it was cut short"), err)
		}
		b := tx.Bucket(metaBucket)
		if b == nil {
			if k, _ := tx.Cursor().First(); k != nil {
				return errors.New("this is the file of another program")
			}
			empty = true
			return nil
		}
		n, err := strconv.Atoi(string(b.Get(schemaKey)))
		switch {
		case err != nil || n < state.Schema:
			return fmt.Errorf("no fenced has written the schema %q", b.Get(schemaKey))
		case n > state.Schema:
			return fmt.Errorf("schema %d, this program knows %d: %w; install that version again", n, state.Schema, state.ErrFuture)
		}
		return nil
	})
	if err != nil || !empty {
		return err
	}
	if err := s.db.Update(createLayout); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file.Name())) // bbolt syncs only the content of a new file, not its name
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// createLayout creates the buckets of an empty file, and writes the schema.
func createLayout(tx *bolt.Tx) error {
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	for _, k := range state.Kinds() {
		if _, err := tx.CreateBucket([]byte(k)); err != nil {
			return err
		}
	}
	return meta.Put(schemaKey, []byte(strconv.Itoa(state.Schema)))
}

// openRegularFile opens or creates a regular file. Users other than the administrator may
// have write access to the directory of the state. So it follows no symbolic link, does not
// wait for a pipe, and as root, who alone can write to files of other users through a hard
// link, refuses a file with several names.
func openRegularFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, explainOpenError(path, err)
	}
	fi, err := file.Stat()
	switch {
	case err != nil:
	case !fi.Mode().IsRegular():
		err = notRegularError(fi)
	case os.Geteuid() == 0:
		if is, ok := fi.Sys().(*syscall.Stat_t); ok && is.Nlink != 1 {
			err = fmt.Errorf("refused, because it has %d names (hard links), and may be another program's file; remove this one", is.Nlink)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// explainOpenError returns an error that says more than the error of the kernel, if the
// file at path explains it.
func explainOpenError(path string, err error) error {
	fi, statErr := os.Lstat(path)
	if statErr != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return notRegularError(fi)
	}
	is, ok := fi.Sys().(*syscall.Stat_t)
	if ok && errors.Is(err, fs.ErrPermission) && int(is.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to uid %d, and this process has uid %d; find out where the file comes from, then remove it or change its owner", err, is.Uid, os.Geteuid())
	}
	return err
}

// notRegularError says why a file was refused and what to do.
func notRegularError(fi fs.FileInfo) error {
	what := "not a regular file"
	if fi.Mode()&fs.ModeSymlink != 0 {
		what = "a symbolic link, and none is followed"
	}
	return fmt.Errorf("refused, because it is %s; remove it, or let state.path name the file itself", what)
}
