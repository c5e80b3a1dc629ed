package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/live"
)

// Kind is the type of a record. Keys are unique within a kind.
type Kind string

// The kinds of record.
const (
	KindRun     Kind = "run"     // one remediation, keyed by its ID
	KindBackup  Kind = "backup"  // the Nodes saved for one run, keyed by the run's ID
	KindCluster Kind = "cluster" // armed and paused, keyed by the cluster's name
	KindPin     Kind = "pin"     // a pinned identity, keyed by the host's name
	KindFreeze  Kind = "freeze"  // a BMC that falsely reported Off, keyed by the run that noticed
	KindHold    Kind = "hold"    // a Node that must not be fenced, keyed by cluster/node
	KindSlot    Kind = "slot"    // one of the places for runs in flight, keyed by its number
	KindMeta    Kind = "meta"    // what the store records about itself
)

// kinds is the order of an export. KindRun is before KindBackup: a backup that a run made
// during the export is then included. // I21
// KindMeta is last, because the mark of an import is removed last.
var kinds = []Kind{KindRun, KindBackup, KindCluster, KindPin, KindFreeze, KindHold, KindSlot, KindMeta}

// Kinds returns all kinds of record. An engine must keep each of them.
func Kinds() []Kind { return slices.Clone(kinds) }

// Schema is the version of the kinds that a store can hold and of how an engine lays them
// out. Every store and every export records its schema. A fenced that does not know a kind of
// record, as a hold, would act on such hosts, so an engine refuses a store with a larger schema (ErrFuture). // I20
const Schema = 3

// Limits of a record, in bytes. An object of Kubernetes is at most 1.5 MiB in etcd. Three
// attempts of a run, each of which saves a different Node twice, fit in base64. Of a run that goes on after that, see dropInBetween.
const (
	MaxKey  = 512
	MaxData = 16 << 20
)

// The errors of a Store, for errors.Is.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists already")
	ErrConflict = errors.New("the record was changed by another writer")
	// ErrLocked means that another process has the state file open, that another
	// instance uses the same name, or that an import found the store in use.
	ErrLocked = errors.New("held by another fenced")
	// ErrNotOwner means that the claim of a write has ended. Nothing was written.
	ErrNotOwner = errors.New("another fenced owns the cluster")
	// ErrFuture marks a store or a record that a newer fenced wrote.
	ErrFuture = errors.New("written by a newer fenced")
)

// Record is one value of a store.
type Record struct {
	Kind Kind
	Key  string // 1 to MaxKey bytes
	// Version changes with every Put. A store never uses a version twice, not even for
	// a key that was deleted and created again. A later version is larger.
	Version uint64
	Data    []byte // at most MaxData bytes
}

// Store keeps records. Several goroutines may use it at the same time. If ctx has ended,
// every method returns the error of ctx and changes nothing.
//
// If Put or Delete returns an error other than those named here, the caller does not
// know whether the change was made.
type Store interface {
	// Get returns a record, or ErrNotFound.
	Get(ctx context.Context, kind Kind, key string) (Record, error)
	// Put writes a record and returns its new version. If r.Version is 0, the record
	// must not exist: ErrExists. Otherwise r.Version must equal the stored version:
	// ErrConflict, also if the record does not exist. After nil, the record survives a
	// crash of the process and of the machine. // I19
	Put(ctx context.Context, r Record) (version uint64, err error)
	// Delete removes the record if it has that version. Otherwise it returns
	// ErrNotFound or ErrConflict.
	Delete(ctx context.Context, kind Kind, key string, version uint64) error
	// List returns all records of a kind in the order of their keys.
	List(ctx context.Context, kind Kind) ([]Record, error)
	// Watch returns a channel that gets a value after another user of the store may
	// have changed something. One value can stand for several changes. The watch ends
	// with ctx. Watch returns nil if the store has no other user.
	Watch(ctx context.Context) <-chan struct{}
	// Close releases the store. Another call does nothing.
	Close() error
}

// Shared is a Store that several instances may use at the same time. Every engine with
// more than one user must implement it: Import relies on it.
type Shared interface {
	Store
	// Instances returns the names of the instances that use the store now, in any
	// order. After an error nobody knows which instances use it.
	Instances(ctx context.Context) ([]string, error)
}

// Tracking is a Store that knows which records another user may have changed: nobody needs to read thousands of pins again because a
// run was saved. An engine of a Store without it reads everything.
type Tracking interface {
	Store
	// Changes returns a number that has grown before the channel of Watch gets a value for a record of this kind.
	Changes(kind Kind) uint64
	// ListAfter returns the records of a kind that List would return and that have a larger version. After a list, they are all
	// that was written since, if version is the largest in it.
	ListAfter(ctx context.Context, kind Kind, version uint64) ([]Record, error)
}

// RecordName names a record in the error messages of all engines.
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

const idKey = "store-id"

// ID returns the ID of a store: a random text that the first call creates. By their IDs, two
// daemons see whether they use the same store. For the errors see Store.Put.
func ID(ctx context.Context, s Store) (string, error) {
	r, err := s.Get(ctx, KindMeta, idKey)
	if errors.Is(err, ErrNotFound) {
		_, err = s.Put(ctx, Record{Kind: KindMeta, Key: idKey, Data: []byte(rand.Text())})
		// Another process may have been faster. Then its ID is valid.
		if err == nil || errors.Is(err, ErrExists) {
			r, err = s.Get(ctx, KindMeta, idKey)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the store's id: %w", err)
	}
	return string(r.Data), nil
}

// Owner is the instance that acts on a cluster.
type Owner struct {
	Instance string
	// Epoch is the number of this ownership. It grows with every change of the owner;
	// 0 means that no instance owns the cluster.
	Epoch uint64
	// Problem says why this answer may be out of date: the store refused the last
	// request of this instance, or did not answer. It is empty if there is no problem.
	Problem string
	// Standby is the instance that would own the cluster next: it runs, is configured for the
	// cluster and does not step aside. It is empty if there is none.
	Standby string
}

// Claim is the right of this instance to act on one cluster. It ends when the instance
// loses or releases the cluster.
type Claim struct {
	Cluster string
	Epoch   uint64
	// Store is the shared store. Its Put and Delete also compare the epoch. Once
	// another instance owns the cluster, they return ErrNotOwner and write
	// nothing. // I19
	Store Store
	// Until returns the time after which the instance must not send anything that the
	// store cannot compare, such as a command to a BMC. Each renewal of the session
	// moves that time on. A store with one user has no such time: Until then returns
	// the zero time. // I19
	Until func() time.Time
}

// Owners decides which of the instances that share a store acts on which cluster.
type Owners interface {
	// Run claims and releases clusters until ctx ends. For each new claim it calls
	// onClaim in a goroutine of its own. The context of that call ends when the claim
	// is lost, or when a preferred instance is to take the cluster over. The claim is
	// released only after onClaim has returned. Run returns ErrLocked if another
	// process uses the same instance name, and nil when ctx has ended.
	Run(ctx context.Context, onClaim func(ctx context.Context, c Claim)) error
	// StepAside says whether this instance leaves a cluster to the others. While it does, it
	// releases its claim if another instance stands by, and claims the cluster only if none
	// does. It keeps the claim as long as nobody stands by. StepAside returns false if the
	// store has no other users.
	StepAside(cluster string, aside bool) (shared bool)
	// Owner returns the owner of a cluster, as far as this instance knows.
	Owner(cluster string) Owner
	// Add lets this instance own a cluster, which it does not do before. Call it before Run, or
	// during it, and again only after Remove.
	Add(cluster string)
	// Remove ends what Add began. It ends a claim of this instance, and returns when onClaim has
	// returned. The claim is released after that, as soon as the store answers. // I19
	Remove(cluster string)
}

// sole owns every cluster that was added. Its store is locked for this process.
type sole struct {
	store    Store
	instance string
	claims   live.Tasks // by cluster
	onClaim  func(context.Context, Claim)
}

// Sole returns Owners that give every cluster to the only user of a store, in epoch 1,
// until Run ends.
func Sole(s Store, instance string) Owners { return &sole{store: s, instance: instance} }

// Run implements Owners.
func (s *sole) Run(ctx context.Context, onClaim func(context.Context, Claim)) error {
	s.onClaim = onClaim // before any claim
	return s.claims.Run(ctx)
}

// Add implements Owners.
func (s *sole) Add(cluster string) {
	s.claims.Begin(cluster, func(ctx context.Context) error {
		s.onClaim(ctx, Claim{Cluster: cluster, Epoch: 1, Store: s.store, Until: func() time.Time { return time.Time{} }})
		return nil
	})
}

// Remove implements Owners.
func (s *sole) Remove(cluster string) { s.claims.End(cluster) }

// Owner implements Owners.
func (s *sole) Owner(string) Owner { return Owner{Instance: s.instance, Epoch: 1} }

// StepAside implements Owners.
func (s *sole) StepAside(string, bool) bool { return false }
