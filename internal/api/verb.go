package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

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

	TestBMC    Verb = "bmc/test"    // check a host's devices now
	AuditBMC   Verb = "bmc/audit"   // the same, and look for weaknesses
	EnrollBMC  Verb = "bmc/enroll"  // what answers there now is the Node's
	ReleaseBMC Verb = "bmc/release" // a BMC that reported a false Off may be used again
)

// LogLevels are how much the daemon can log: what has the level, or is worse.
var LogLevels = []string{"debug", "info", "warn", "error"}

// verb is one row of the table: POST on the path of its object, for callers with its
// role.
type verb struct {
	name Verb
	of   object
	need Role
	// dryRun is the role that a dry run needs, if not need.
	dryRun Role
	// takes names what the body may hold beside the reason; see bodyFields.
	takes []string
	// machine: the order may also be about a Machine.
	machine bool
	// answer, when set, answers in place of order.
	answer func(*Server, Verb) answer
}

// object is what an order is about, as the beginning of its path.
type object string

const (
	ofNode    object = "/v1/nodes/{node}/"
	ofMachine object = "/v1/machines/{namespace}/{machine}/"
	ofRun     object = "/v1/runs/{id}/"
	ofCluster object = "/v1/" // one, or all
)

// verbs is the table of orders. A new verb is one row here, one in cmd/fencectl/orders.go
// and one in cmd/fenced/orders.go.
var verbs = []verb{
	{name: Fence, of: ofNode, machine: true, need: Operator, dryRun: Viewer, takes: []string{"dryRun", "offOnly", "yes"}},
	{name: Unfence, of: ofNode, machine: true, need: Operator},
	{name: Hold, of: ofNode, machine: true, need: Operator, takes: []string{"for"}},
	{name: Release, of: ofNode, machine: true, need: Operator},
	{name: ConfirmOff, of: ofNode, need: Admin, takes: []string{"dryRun", "typed", "yes"}},
	{name: Abort, of: ofRun, need: Operator, takes: []string{"asIs", "yes"}},
	{name: Retry, of: ofRun, need: Operator},
	{name: Pause, of: ofCluster, need: Operator, takes: []string{"for"}},
	{name: Resume, of: ofCluster, need: Operator},
	{name: Arm, of: ofCluster, need: Admin, takes: []string{"dryRun"}},
	{name: Disarm, of: ofCluster, need: Admin},
	{name: LogLevel, of: ofCluster, need: Admin, takes: []string{"level"}},
	{name: Reload, of: ofCluster, need: Admin},
	{name: TestBMC, of: ofNode, need: Operator, answer: (*Server).look},
	{name: AuditBMC, of: ofNode, need: Operator, answer: (*Server).look},
	{name: EnrollBMC, of: ofNode, machine: true, need: Admin, takes: []string{"dryRun"}},
	{name: ReleaseBMC, of: ofNode, machine: true, need: Admin},
}

// bodyFields are the fields of an order that only some verbs take, in the order in which
// they are refused. With one of needsAdmin a caller skips a safeguard.
var bodyFields = []struct {
	name       string
	given      func(Order) bool
	needsAdmin bool
}{
	{name: "asIs", given: func(o Order) bool { return o.AsIs }, needsAdmin: true}, // what still waits to be brought back
	{name: "dryRun", given: func(o Order) bool { return o.DryRun }},
	{name: "for", given: func(o Order) bool { return o.For != 0 }},
	{name: "level", given: func(o Order) bool { return o.Level != "" }},
	{name: "offOnly", given: func(o Order) bool { return o.OffOnly }},
	{name: "typed", given: func(o Order) bool { return o.Typed != "" }},
	{name: "yes", given: func(o Order) bool { return o.Yes }, needsAdmin: true}, // the typed node name, or that another remediator has stopped
}

// row finds the verb in the table; a verb that is not there takes nothing.
func (v Verb) row() verb {
	if i := slices.IndexFunc(verbs, func(r verb) bool { return r.name == v }); i >= 0 {
		return verbs[i]
	}
	return verb{name: v, of: ofCluster}
}

// Role gives the role that an order of this verb needs. Nobody has no verb.
func (v Verb) Role() Role { return v.row().need }

// needs gives the role that the order itself needs: who may only look may order a dry run of a
// fence, which changes nothing.
func (o Order) needs() Role {
	row := o.Verb.row()
	if o.DryRun && row.dryRun != Nobody {
		return row.dryRun
	}
	return row.need
}

// Verbs lists the verbs of orders.
func Verbs() (all []Verb) {
	for _, r := range verbs {
		all = append(all, r.name)
	}
	return all
}

// patterns are the routes of the verb.
func (r verb) patterns() []string {
	list := []string{string(r.of) + string(r.name)}
	if r.machine {
		list = append(list, string(ofMachine)+string(r.name))
	}
	return list
}

// path is where the order is sent. An order about a Machine that the verb does not take
// goes where there is no route.
func (o Order) path() string {
	of := o.Verb.row().of
	if o.Machine != "" {
		of = ofMachine
	}
	namespace, machine, _ := strings.Cut(o.Machine, "/")
	return strings.NewReplacer("{node}", url.PathEscape(o.Node), "{id}", url.PathEscape(o.Run),
		"{namespace}", url.PathEscape(namespace), "{machine}", url.PathEscape(machine)).Replace(string(of) + string(o.Verb))
}

// takes refuses what an order of this verb cannot say.
func (v Verb) takes(o Order) error {
	takes := v.row().takes
	for _, f := range bodyFields {
		if f.given(o) && !slices.Contains(takes, f.name) {
			return BadRequest(fmt.Sprintf("%s takes no %s", v, f.name), "")
		}
	}
	if v == LogLevel && !slices.Contains(LogLevels, o.Level) {
		return BadRequest(fmt.Sprintf("%q is no log level", o.Level), "one of "+strings.Join(LogLevels, ", "))
	}
	if o.For > maxFor {
		return BadRequest(fmt.Sprintf("for is longer than %s", time.Duration(maxFor)), "leave it out for a stop without an end")
	}
	return nil
}

// needsAdmin says whether the order skips a safeguard, which only an admin may.
func (o Order) needsAdmin() bool {
	for _, f := range bodyFields {
		if f.needsAdmin && f.given(o) {
			return true
		}
	}
	return false
}
