package state

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/live"
)

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
