package api

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Order is what a person asks of the daemon. The fields without a JSON name
// come from the route and from the socket's peer, never from the body.
type Order struct {
	Verb    Verb   `json:"-"`
	Cluster string `json:"-"` // "" = the only one, or all for pause and arm
	Node    string `json:"-"`
	Machine string `json:"-"` // "namespace/name", in place of Node
	Run     string `json:"-"` // abort, retry
	Actor   string `json:"-"`
	Role    Role   `json:"-"` // of the Actor

	Reason  string `json:"reason"`
	OffOnly bool   `json:"offOnly,omitempty"` // fence: stay Off and Held
	Yes     bool   `json:"yes,omitempty"`     // fence, confirm-off: nobody typed the node's name; abort: although another remediator may be at work
	DryRun  bool   `json:"dryRun,omitempty"`  // fence, arm, enroll, confirm-off: only say what would be done
	For     Span   `json:"for,omitzero"`      // pause, hold: it ends by itself
	AsIs    bool   `json:"asIs,omitempty"`    // abort: end a Held run and leave the host as it is
	Level   string `json:"level,omitempty"`   // log-level: one of LogLevels
	Typed   string `json:"typed,omitempty"`   // confirm-off: the node's name once more
}

// Of is what the order is about: the name of a Node, or the "namespace/name" of a Machine.
func (o Order) Of() string { return cmp.Or(o.Machine, o.Node) }

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

// OrderResult is an order that was accepted, or what a dry run found.
type OrderResult struct {
	Run     string `json:"run,omitempty"`
	Joined  bool   `json:"joined,omitempty"` // an equal run was already going
	Message string `json:"message"`          // the outcome as a sentence
	// Effect is what the order does to the world, one sentence each.
	Effect []string `json:"effect,omitempty"`
	// Evidence is what is known about a host that a person confirms to be off.
	Evidence []string `json:"evidence,omitempty"`
	// Target is what a dry run of a fence found about its target.
	Target *OrderTarget `json:"target,omitempty"`
	// Plan is what would be fenced after a dry run of arm, as soon as the quiet period is over.
	Plan *ClusterPlan `json:"plan,omitempty"`
	// Unchanged: there was nothing to change, and nothing was changed.
	Unchanged bool `json:"unchanged,omitempty"`
	// Until is when a pause or a hold ends by itself, or the quiet period after arm.
	Until time.Time `json:"until,omitzero"`
	// Gates are those that were asked; in a dry run they may not all pass.
	Gates []reason.Gate `json:"gates,omitempty"`
}

// OrderTarget is what a person should know about a target before ordering to fence it.
type OrderTarget struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Machine string `json:"machine,omitempty"` // namespace/name
	// Ready is the status of the Node's condition Ready; "" if there is no Node.
	Ready      string    `json:"ready"`
	ReadySince time.Time `json:"readySince,omitzero"`
	// Pods are those on the Node, namespace/name. PodCount counts them all, and is absent if
	// they are not known; PodsProblem may say why.
	Pods        []string `json:"pods,omitempty"`
	PodCount    *int     `json:"podCount,omitempty"`
	PodsMore    bool     `json:"podsMore,omitempty"` // there are more than PodCount
	PodsProblem string   `json:"podsProblem,omitempty"`
	// BMC is the address of what switches the power; "" if it was not asked.
	BMC      string `json:"bmc,omitempty"`
	Identity string `json:"identity,omitempty"` // match, mismatch, unknown, not enrolled
	UUID     string `json:"uuid,omitempty"`     // that the BMC reported
}
