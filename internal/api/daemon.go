package api

import (
	"context"
	"io"
	"iter"
)

// Daemon is what the server asks. Errors of type *Error are given to the
// caller as they are; any other is Internal.
type Daemon interface {
	Status(ctx context.Context) (Status, error)
	// Explain explains one Node, or the Machine "namespace/name".
	Explain(ctx context.Context, cluster, of string) (Explanation, error)
	// Plan gives what would be done now; an empty cluster means all.
	Plan(ctx context.Context, cluster string) (Plan, error)
	// Coverage gives what each check covers; an empty cluster means all.
	Coverage(ctx context.Context, cluster string) (Coverage, error)
	// Names lists what can be named that begins with prefix; an empty cluster means all.
	Names(ctx context.Context, cluster, prefix string) (Names, error)
	// Runs gives the selected runs, open and ended, oldest first.
	Runs(ctx context.Context, f RunFilter) (Timeline, error)
	// BMCs gives what is known about the devices that switch power; an empty cluster
	// means all.
	BMCs(ctx context.Context, cluster string) (BMCs, error)
	// LookAtBMCs looks at those of one Node's host now.
	LookAtBMCs(ctx context.Context, o Order) (BMCs, error)
	// Do gives an order. It returns once the order is durable, not once it is
	// carried out.
	Do(ctx context.Context, o Order) (OrderResult, error)
	// Refused records an order that ended in an error, whether the server or the daemon
	// refused it. It must not block.
	Refused(o Order, e *Error)
	// Export writes the whole state, as fenced --import reads it.
	Export(ctx context.Context, w io.Writer) error
	// Events yields the kept events whose Seq is greater than after, then each
	// new one as it happens, until ctx is done.
	Events(ctx context.Context, after uint64) iter.Seq2[Event, error]
}
