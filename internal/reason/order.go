package reason

// Reasons of a refused order, and of an action that is not done.
const (
	// AuditFailed: nothing destructive is done, because its record could not be made
	// durable. To power on and to restore is never refused for it. // I24
	AuditFailed Code = "AuditFailed"
	// NoHold: there is nothing to release on the Node, neither a hold nor a quarantine.
	NoHold Code = "NoHold"
	// ConfirmedOffContradicted: something speaks against a manual confirmation that a host is off.
	ConfirmedOffContradicted Code = "ConfirmedOffContradicted"
	// NoSuchNode: an order names a Node nobody knows.
	NoSuchNode Code = "NoSuchNode"
	// NoSuchCluster: an order names a cluster that is not configured.
	NoSuchCluster Code = "NoSuchCluster"
	// ClusterRequired: several clusters are configured and none was named.
	ClusterRequired Code = "ClusterRequired"
	// NoSuchRun: an order names a run that nobody knows.
	NoSuchRun Code = "NoSuchRun"
	// OrderRefused: the run is in no state for the order.
	OrderRefused Code = "OrderRefused"
	// NoRun: an order needs an open run and there is none.
	NoRun Code = "NoRun"
)
