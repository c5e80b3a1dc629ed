package reason

// Reasons of a refused order, and of a refused action.
const (
	// AuditFailed: a destructive action is refused because its audit entry could
	// not be made durable. Power-on and restore are never refused for it. // I24
	AuditFailed Code = "AuditFailed"
	// NoHold: the Node has neither a hold nor a quarantine to release.
	NoHold Code = "NoHold"
	// TooManyHolds: so many Nodes and Machines that fenced does not see are held that no other one can be.
	TooManyHolds Code = "TooManyHolds"
	// ConfirmedOffContradicted: evidence contradicts a manual confirmation that a
	// host is off.
	ConfirmedOffContradicted Code = "ConfirmedOffContradicted"
	// NoSuchNode: an order names an unknown Node.
	NoSuchNode Code = "NoSuchNode"
	// NoSuchMachine: an order names a Machine that is unknown, or a name that several
	// Machines have.
	NoSuchMachine Code = "NoSuchMachine"
	// NoSuchCluster: an order names a cluster that is not configured.
	NoSuchCluster Code = "NoSuchCluster"
	// ClusterRequired: several clusters are configured and none was named.
	ClusterRequired Code = "ClusterRequired"
	// NoSuchRun: an order names an unknown run.
	NoSuchRun Code = "NoSuchRun"
	// OrderRefused: the state of the run does not allow the order.
	OrderRefused Code = "OrderRefused"
	// NoRun: an order needs an open run, and there is none.
	NoRun Code = "NoRun"
)
