package wire

import "slices"

// Verb is what an order asks for. A verb that stands under another word of fencectl has
// a slash: bmc/test.
type Verb string

// The verbs of orders. The table below says what each is about.
const (
	Fence   Verb = "fence"
	Unfence Verb = "unfence"
	Pause   Verb = "pause"
	Resume  Verb = "resume"
	Arm     Verb = "arm"
	Disarm  Verb = "disarm"

	LogLevel Verb = "log-level" // until the next reload or restart
	Reload   Verb = "reload"    // take in the files of the configuration; fenced --reload gives it

	Hold       Verb = "hold"        // keep one Node from being fenced
	Release    Verb = "release"     // end that, or its quarantine
	Abort      Verb = "abort"       // stop a run and bring its host back
	Retry      Verb = "retry"       // continue a Held run
	ConfirmOff Verb = "confirm-off" // a person confirms that a host is off

	TestBMC     Verb = "bmc/test"     // check a host's devices now
	AuditBMC    Verb = "bmc/audit"    // the same, and look for weaknesses
	EnrollBMC   Verb = "bmc/enroll"   // what answers there now is the Node's
	UnfreezeBMC Verb = "bmc/unfreeze" // a BMC that reported a false Off may be used again
)

// LogLevels are how much the daemon can log: what has the level, or is worse.
var LogLevels = []string{"debug", "info", "warn", "error"}

// VerbRow is one row of the table: POST on the path of its object, for callers with its role.
type VerbRow struct {
	Name Verb
	Was  Verb // another name that scripts use; "" for none
	Of   Object
	Need Role
	// DryRun is the role that a dry run needs, if not Need.
	DryRun Role
	// Takes names what the body may hold beside the reason.
	Takes []string
	// Machine: the order may also be about a Machine.
	Machine bool
	// Group: the order may also be about the Nodes of a Group. Then it may be a dry run.
	Group bool
	// Looks: it reads the devices of a host and changes nothing, so it needs no reason.
	Looks bool
}

// Object is what an order is about, as the beginning of its path.
type Object string

// What an order can be about.
const (
	OfNode    Object = "/v1/nodes/{node}/"
	OfMachine Object = "/v1/machines/{namespace}/{machine}/"
	OfRun     Object = "/v1/runs/{id}/"
	OfCluster Object = "/v1/" // one, or all
)

// Verbs is the table of orders. A new verb is one row here, one in cmd/fencectl/orders.go
// and one in cmd/fenced/orders.go.
var Verbs = []VerbRow{
	{Name: Fence, Of: OfNode, Machine: true, Need: Operator, DryRun: Viewer, Takes: []string{"dryRun", "offOnly", "yes"}},
	{Name: Unfence, Of: OfNode, Machine: true, Need: Operator},
	{Name: Hold, Of: OfNode, Machine: true, Need: Operator, Takes: []string{"for"}, Group: true},
	{Name: Release, Of: OfNode, Machine: true, Need: Operator, Group: true},
	{Name: ConfirmOff, Of: OfNode, Machine: true, Need: Admin, Takes: []string{"dryRun", "typed", "yes"}},
	{Name: Abort, Of: OfRun, Machine: true, Need: Operator, Takes: []string{"asIs", "yes"}},
	{Name: Retry, Of: OfRun, Machine: true, Need: Operator},
	{Name: Pause, Of: OfCluster, Need: Operator, Takes: []string{"for"}},
	{Name: Resume, Of: OfCluster, Need: Operator},
	{Name: Arm, Of: OfCluster, Need: Admin, Takes: []string{"dryRun"}},
	{Name: Disarm, Of: OfCluster, Need: Admin},
	{Name: LogLevel, Of: OfCluster, Need: Admin, Takes: []string{"level"}},
	{Name: Reload, Of: OfCluster, Need: Admin},
	{Name: TestBMC, Of: OfNode, Need: Operator, Looks: true},
	{Name: AuditBMC, Of: OfNode, Need: Operator, Looks: true},
	{Name: EnrollBMC, Of: OfNode, Machine: true, Need: Admin, Takes: []string{"dryRun", "shown"}},
	{Name: UnfreezeBMC, Was: "bmc/release", Of: OfNode, Machine: true, Need: Admin},
}

// VerbNamed finds the verb that a word means: its name, or another name of it.
func VerbNamed(word string) Verb {
	for _, r := range Verbs {
		if r.Was != "" && r.Was == Verb(word) {
			return r.Name
		}
	}
	return Verb(word)
}

// Row finds the verb in the table; a verb that is not there takes nothing, and nobody has its role.
func (v Verb) Row() VerbRow {
	if i := slices.IndexFunc(Verbs, func(r VerbRow) bool { return r.Name == v }); i >= 0 {
		return Verbs[i]
	}
	return VerbRow{Name: v, Of: OfCluster}
}
