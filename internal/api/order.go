package api

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Verb is what an order asks for.
type Verb string

// The verbs of orders.
const (
	Fence   Verb = "fence"
	Unfence Verb = "unfence"
	Pause   Verb = "pause"
	Resume  Verb = "resume"
	Arm     Verb = "arm"
	Disarm  Verb = "disarm"

	Hold       Verb = "hold"        // keep one Node from being fenced
	Release    Verb = "release"     // end that, or its quarantine
	Abort      Verb = "abort"       // no more of a run
	Retry      Verb = "retry"       // take a Held run up again
	ConfirmOff Verb = "confirm-off" // a person vouches that a host is off

	TestBMC    Verb = "bmc/test"    // look at a host's devices now
	AuditBMC   Verb = "bmc/audit"   // the same, and look for weaknesses
	EnrollBMC  Verb = "bmc/enroll"  // what answers there now is the Node's
	ReleaseBMC Verb = "bmc/release" // a BMC that lied may be used again
)

// Order is what a person asks of the daemon. The fields without a JSON name
// come from the route and from the socket's peer, never from the body.
type Order struct {
	Verb    Verb   `json:"-"`
	Cluster string `json:"-"` // "" = the only one, or all for pause and arm
	Node    string `json:"-"`
	Run     string `json:"-"` // abort, retry
	Actor   string `json:"-"`

	Reason  string `json:"reason"`
	OffOnly bool   `json:"offOnly,omitempty"` // fence: stay Off and Held
	Yes     bool   `json:"yes,omitempty"`     // fence, confirm-off: nobody typed the node's name
	DryRun  bool   `json:"dryRun,omitempty"`  // fence, enroll, confirm-off: only say what would be done
	For     Span   `json:"for,omitzero"`      // pause, hold: it ends by itself
	AsIs    bool   `json:"asIs,omitempty"`    // abort: end a Held run and leave the host as it is
	Typed   string `json:"typed,omitempty"`   // confirm-off: the node's name once more
}

// Span is a duration that is written like 4h30m.
type Span time.Duration

// MarshalText writes it as Go does.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads what is longer than nothing.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is no time to wait", text)
	}
	*s = Span(d)
	return err
}

// OrderResult is an order that was accepted, or what a dry run found.
type OrderResult struct {
	Run     string `json:"run,omitempty"`
	Joined  bool   `json:"joined,omitempty"` // an equal run was already going
	Message string `json:"message"`          // the outcome as a sentence
	// Effect is what the order does to the world, one sentence each.
	Effect []string `json:"effect,omitempty"`
	// Evidence is what is known about a host that a person vouches for.
	Evidence []string `json:"evidence,omitempty"`
	// Until is when a pause or a hold ends by itself.
	Until time.Time `json:"until,omitzero"`
	// Gates are those that were asked; in a dry run they may not all pass.
	Gates []reason.Gate `json:"gates,omitempty"`
}

// RunFilter selects runs; empty fields select all.
type RunFilter struct {
	ID      string
	Cluster string
	Node    string
	Since   time.Time // runs that started then or later
}

// Daemon is what the server asks. Errors of type *Error are given to the
// caller as they are; any other is Internal.
type Daemon interface {
	Status(ctx context.Context) (Status, error)
	Explain(ctx context.Context, cluster, node string) (Explanation, error)
	// Plan gives what would be done now; an empty cluster means all.
	Plan(ctx context.Context, cluster string) (Plan, error)
	// Coverage gives what each check covers; an empty cluster means all.
	Coverage(ctx context.Context, cluster string) (Coverage, error)
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
	// Refused hears of an order that ended in an error, wherever that came from. It must
	// not block.
	Refused(o Order, e *Error)
	// Export writes the whole state, as fenced --import reads it.
	Export(ctx context.Context, w io.Writer) error
	// Events yields the kept events whose Seq is greater than after, then each
	// new one as it happens, until ctx is done.
	Events(ctx context.Context, after uint64) iter.Seq2[Event, error]
}
