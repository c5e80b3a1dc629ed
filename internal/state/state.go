package state

import (
	"context"
	"errors"
	"fmt"
)

// Kind says what a record is about; keys are unique within a kind.
type Kind string

// The kinds of record.
const (
	KindRun     Kind = "run"     // one remediation, keyed by its ID
	KindBackup  Kind = "backup"  // the Nodes saved for one run, keyed by the run's ID
	KindCluster Kind = "cluster" // armed and paused, keyed by the cluster's name
	KindPin     Kind = "pin"     // an enrolled identity, keyed by the host's name
	KindFreeze  Kind = "freeze"  // a BMC that said Off falsely, keyed by the run that found out
	KindHold    Kind = "hold"    // a Node that is not to be fenced, keyed by cluster/node
	KindSlot    Kind = "slot"    // one of the places for runs in flight, keyed by its number
	KindMeta    Kind = "meta"    // what a store knows about itself
)

var kinds = []Kind{KindRun, KindBackup, KindCluster, KindPin, KindFreeze, KindHold, KindSlot, KindMeta}

// Limits of a record. An object of Kubernetes is at most 1.5 MiB in etcd; what the
// three attempts of a run save, each a Node of its own twice, in base64, still fits.
const (
	MaxKey  = 512
	MaxData = 16 << 20
)

// The errors of a Store, for errors.Is.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists already")
	ErrConflict = errors.New("the record was changed by another writer")
	// ErrLocked is the answer while another process has the file, or lives in the
	// shared store: under the same name, or at all when a state is to be read in.
	ErrLocked = errors.New("held by another fenced")
	// ErrNotOwner is the answer to a write under a claim that is over.
	ErrNotOwner = errors.New("another fenced owns the cluster")
	// ErrFuture marks a file or a record that a newer fenced wrote.
	ErrFuture = errors.New("written by a newer fenced")
)

// Record is one value of a store.
type Record struct {
	Kind Kind
	Key  string
	// Version changes with every Put and is never used twice in one store, not
	// even for a key that was deleted and made again. Larger is later.
	Version uint64
	Data    []byte
}

// Store keeps records. It may be used by several goroutines. Every method
// answers ctx's error without touching anything when ctx is over.
type Store interface {
	// Get returns the record, or ErrNotFound.
	Get(ctx context.Context, kind Kind, key string) (Record, error)
	// Put writes the record and returns its new version. Version 0 means that
	// it must not exist (ErrExists); any other must equal what is stored
	// (ErrConflict, also for a record that is gone). When it returns nil the
	// record survives a crash of the process and of the machine. // I19
	Put(ctx context.Context, r Record) (version uint64, err error)
	// Delete removes the record of that version: ErrNotFound, ErrConflict.
	Delete(ctx context.Context, kind Kind, key string, version uint64) error
	// List returns all records of a kind in the order of their keys.
	List(ctx context.Context, kind Kind) ([]Record, error)
	// Watch gives a channel on which a value stands whenever another user of the store
	// may have changed something since the last one was taken; nil where there is no
	// other user. It ends with ctx.
	Watch(ctx context.Context) <-chan struct{}
	// Close releases the store. Closing again does nothing.
	Close() error
}

// name is how errors speak of a record.
func name(kind Kind, key string) string { return fmt.Sprintf("%s %q", kind, key) }

func checkKey(kind Kind, key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("name a %s record: the key has %d bytes, 1 to %d are allowed", kind, len(key), MaxKey)
	}
	return nil
}
