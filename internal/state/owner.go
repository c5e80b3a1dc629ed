package state

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Owner is the instance that acts on a cluster.
type Owner struct {
	Instance string
	// Epoch grows each time a cluster changes hands; 0 = nobody owns it.
	Epoch uint64
	// Problem is why this instance may know no better, "" when it does: the store
	// refused what it asked last, or did not answer.
	Problem string
}

// Claim is this instance's right to act on one cluster, as long as it lasts.
type Claim struct {
	Cluster string
	Epoch   uint64
	// Store is the shared store, in which every Put and Delete also compares the
	// epoch: ErrNotOwner, and nothing written, once the cluster has another owner. // I19
	Store Store
	// Until is the moment after which nothing may be sent that the store cannot
	// compare, like a command to a BMC. It moves on while the session is renewed; a
	// store with one user has none, and gives the zero time. // I19
	Until func() time.Time
}

// Owners says which of the instances that share a store acts on which cluster.
type Owners interface {
	// Run takes clusters and gives them up until ctx ends. guard is called in a
	// goroutine of its own with each claim that is gained; its ctx ends when the claim
	// is lost or asked for by a better placed instance. The claim is given up only
	// after guard has returned.
	Run(ctx context.Context, guard func(ctx context.Context, c Claim)) error
	// Owner is who acts on a cluster, as far as this instance knows.
	Owner(cluster string) Owner
}

// sole owns everything: the store is locked for this process alone.
type sole struct {
	store    Store
	instance string
	clusters []string
}

// Sole gives every cluster to the one user of a store that is locked, in the first
// epoch and for ever.
func Sole(s Store, instance string, clusters []string) Owners {
	return sole{store: s, instance: instance, clusters: clusters}
}

func (s sole) Run(ctx context.Context, guard func(context.Context, Claim)) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range s.clusters {
		g.Go(func() error {
			guard(ctx, Claim{Cluster: name, Epoch: 1, Store: s.store, Until: func() time.Time { return time.Time{} }})
			return nil
		})
	}
	return g.Wait()
}

func (s sole) Owner(string) Owner { return Owner{Instance: s.instance, Epoch: 1} }
