package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// kinds is in the order in which an export holds them.
var kinds = []Kind{KindRun, KindBackup, KindCluster, KindPin, KindFreeze, KindHold, KindSlot, KindMeta}

// Kinds returns every kind of record, each of which an engine must keep.
func Kinds() []Kind { return slices.Clone(kinds) }

// Schema is the version of what a store holds: the kinds, and how an engine lays them
// out. Engines and exports record it. Schema 1 had no freezes and schema 2 no holds; a
// fenced that knows none would act on such a host, so an engine refuses a store of a
// larger Schema with ErrFuture. // I20
const Schema = 3

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

// Shared is a Store that several instances may use at the same time. An engine with
// more than one user must implement it.
type Shared interface {
	Store
	// Instances returns the names of the instances that use the store now, in no
	// order. An error means that nobody knows.
	Instances(ctx context.Context) ([]string, error)
}

// RecordName is how the errors of all engines name a record.
func RecordName(kind Kind, key string) string { return fmt.Sprintf("%s %q", kind, key) }

// CheckKind returns an error for a kind that this program does not know.
func CheckKind(kind Kind) error {
	if !slices.Contains(kinds, kind) {
		return errors.New("no such kind of record")
	}
	return nil
}

// CheckKey returns an error for a key that is empty or longer than MaxKey bytes.
func CheckKey(kind Kind, key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("name a %s record: the key has %d bytes, 1 to %d are allowed", kind, len(key), MaxKey)
	}
	return nil
}
