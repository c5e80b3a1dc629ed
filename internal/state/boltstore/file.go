package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/fenced/fenced/internal/state"
)

// kindsAddedBySchema has the kinds that each schema after the first one added.
var kindsAddedBySchema = map[int][]state.Kind{2: {state.KindFreeze}, 3: {state.KindHold, state.KindSlot}}

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

// prepareSchema checks the schema. It creates the buckets that an empty file or an older
// schema lacks.
func (s *store) prepareSchema(file *os.File) error {
	var change func(*bolt.Tx) error
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
			change = createLayout
			return nil
		}
		n, err := strconv.Atoi(string(b.Get(schemaKey)))
		switch {
		case err != nil || n < 1:
			return fmt.Errorf("the schema %q is not a number", b.Get(schemaKey))
		case n > state.Schema:
			return fmt.Errorf("schema %d, this program knows %d: %w; install that version again", n, state.Schema, state.ErrFuture)
		}
		if n < state.Schema {
			change = func(tx *bolt.Tx) error {
				var add []state.Kind
				for from := n + 1; from <= state.Schema; from++ {
					add = append(add, kindsAddedBySchema[from]...)
				}
				return addBuckets(tx, add...)
			}
		}
		return nil
	})
	if err != nil || change == nil {
		return err
	}
	if err := s.db.Update(change); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file.Name()))
}

// createLayout creates the buckets of an empty file.
func createLayout(tx *bolt.Tx) error {
	if _, err := tx.CreateBucket(metaBucket); err != nil {
		return err
	}
	return addBuckets(tx, state.Kinds()...)
}

// addBuckets creates the buckets of kinds and writes the present schema.
func addBuckets(tx *bolt.Tx, add ...state.Kind) error {
	for _, k := range add {
		if _, err := tx.CreateBucket([]byte(k)); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(schemaKey, []byte(strconv.Itoa(state.Schema)))
}

// syncDir makes the name of a new file durable. bbolt syncs only the content.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
