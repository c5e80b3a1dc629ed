package engine

import (
	"context"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// Escalation asks other remediators in all clusters; package escalate does. Its parts beside this are admit.Escalation, for
// one cluster, and cluster.Repair, by which the limits count what was asked.
type Escalation interface {
	// Add joins a cluster. controllerAlive says whether the controller of checks of a kind is alive.
	Add(c *admit.Cluster, controllerAlive func(context.Context, policy.CheckID) (remediate.Answer, error)) admit.Escalation
	Remove(cluster string)
	// Load reads the records of all clusters, for those that this instance does not lead. begin lets a leadership begin
	// with them.
	Load(ctx context.Context) (begin func(cluster string), err error)
	// WhyNotStart refuses a configuration without a cluster in which an object that fenced made may exist, as one without
	// a cluster in which a run is open is refused; and WhyNotRemove to remove such a cluster.
	WhyNotStart(missing func(cluster string) bool) error
	WhyNotRemove(cluster string) error
	// Abort gives up the record that an order names in place of a run. known: there is such a record.
	Abort(ctx context.Context, o wire.Order) (out order.Outcome, known bool, err error)
}

// noEscalation asks nobody.
type noEscalation struct{}

func (noEscalation) Add(_ *admit.Cluster, _ func(context.Context, policy.CheckID) (remediate.Answer, error)) admit.Escalation {
	return admit.NoEscalation{}
}
func (noEscalation) Remove(string) {}
func (noEscalation) Load(context.Context) (begin func(string), err error) {
	return func(string) {}, nil
}
func (noEscalation) WhyNotStart(func(string) bool) error { return nil }
func (noEscalation) WhyNotRemove(string) error           { return nil }
func (noEscalation) Abort(context.Context, wire.Order) (out order.Outcome, known bool, err error) {
	return out, false, nil
}
