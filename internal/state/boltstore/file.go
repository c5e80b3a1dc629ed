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

// The file has one bucket for each kind, with values of eight bytes of version and then
// the data, and the bucket "fenced" with the schema and, as its sequence, the last
// version given out.

// addedIn are the kinds that each schema after the first brought.
var addedIn = map[int][]state.Kind{2: {state.KindFreeze}, 3: {state.KindHold, state.KindSlot}}

var (
	fileBucket = []byte("fenced")
	schemaKey  = []byte("schema")
)

// lockTimeout is short on purpose: a second daemon must be told at once, and
// the lock of one that crashed is gone with its process.
const lockTimeout = 200 * time.Millisecond

// openFile turns the panics that bbolt raises on a damaged file into errors:
// an operator's disk is not a bug of ours. The file belongs to the database, which
// closes it.
func openFile(path string) (db *bolt.DB, file *os.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, file, err = nil, nil, fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	open := func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = openPlain(path, flag, mode)
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

// prepare checks the schema, and lays it out in an empty file or an older one.
func (s *store) prepare(file *os.File) error {
	var change func(*bolt.Tx) error
	err := s.db.View(func(tx *bolt.Tx) error {
		if fi, err := file.Stat(); err != nil || fi.Size() < tx.Size() {
			// Reading on would touch memory that no file stands behind.
			return errors.Join(errors.New("the file is damaged: it was cut short"), err)
		}
		b := tx.Bucket(fileBucket)
		if b == nil {
			if k, _ := tx.Cursor().First(); k != nil {
				return errors.New("this is the file of another program")
			}
			change = layOut
			return nil
		}
		n, err := strconv.Atoi(string(b.Get(schemaKey)))
		switch {
		case err != nil || n < 1:
			return fmt.Errorf("its schema %q is not a number", b.Get(schemaKey))
		case n > state.Schema:
			return fmt.Errorf("schema %d, this program knows %d: %w; install that version again", n, state.Schema, state.ErrFuture)
		}
		if n < state.Schema {
			change = func(tx *bolt.Tx) error {
				var add []state.Kind
				for from := n + 1; from <= state.Schema; from++ {
					add = append(add, addedIn[from]...)
				}
				return addKinds(tx, add...)
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

// layOut makes what an empty file lacks.
func layOut(tx *bolt.Tx) error {
	if _, err := tx.CreateBucket(fileBucket); err != nil {
		return err
	}
	return addKinds(tx, state.Kinds()...)
}

// addKinds makes the buckets of kinds and notes the schema that has them.
func addKinds(tx *bolt.Tx, add ...state.Kind) error {
	for _, k := range add {
		if _, err := tx.CreateBucket([]byte(k)); err != nil {
			return err
		}
	}
	return tx.Bucket(fileBucket).Put(schemaKey, []byte(strconv.Itoa(state.Schema)))
}

// syncDir makes the new file's name durable; bbolt syncs only its content.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
