package remediate

import (
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Step is the present step of a run. The six steps come in order. A Waiting run goes
// on by itself, a Held run needs a person. Done, Aborted and Reprovisioned are the ends.
type Step string

// The steps and ends of a run.
const (
	PowerOff    Step = "PowerOff"
	DeleteNode  Step = "DeleteNode"
	PowerOn     Step = "PowerOn"
	AwaitNode   Step = "AwaitNode"
	RestoreNode Step = "RestoreNode"
	Reprovision Step = "Reprovision"

	Waiting       Step = "Waiting"
	Held          Step = "Held"
	Done          Step = "Done"
	Aborted       Step = "Aborted"
	Reprovisioned Step = "Reprovisioned"
)

// Steps are the six steps, in their order; Ends are the ends of a run.
var (
	Steps = []Step{PowerOff, DeleteNode, PowerOn, AwaitNode, RestoreNode, Reprovision}
	Ends  = []Step{Done, Aborted, Reprovisioned}
)

// Ended says whether nothing more will be done for this run.
func (s Step) Ended() bool { return s == Done || s == Aborted || s == Reprovisioned }

// Idle says whether no step is in progress: the run is Waiting or Held.
func (s Step) Idle() bool { return s == Waiting || s == Held }

// Destructive says whether the step does what takes something away (Action.Destructive).
func (s Step) Destructive() bool { return s == PowerOff || s == DeleteNode || s == Reprovision }

// Strategy is how the target is to be made safe.
type Strategy string

// The strategies of a run.
const (
	PowerCycle    Strategy = "PowerCycle"    // the six steps
	DeleteMachine Strategy = "DeleteMachine" // step 6 alone, where the Machine is to be replaced
)

// Isolation is what step 2 does to the Node of a host that is proven off.
type Isolation string

// The isolations.
const (
	IsolateDelete Isolation = "deleteNode"
	IsolateTaint  Isolation = "outOfServiceTaint"
)

// ProofKind is what proved a host off.
type ProofKind string

// The kinds of proof.
const (
	ProofBMC    ProofKind = "BMC"    // the host's own BMC, which tells its identity
	ProofDevice ProofKind = "Device" // enrolled devices without an identity: outlets, agents
	ProofHuman  ProofKind = "Human"  // the manual confirmation of a person; stays on the record // I26
)

// Limits are the times and counts of a run. They are copied from configuration and
// check at its start, so that a reload never changes an open run.
type Limits struct {
	OffDeadline      time.Duration `json:"offDeadline"`      // step 1
	APITimeout       time.Duration `json:"apiTimeout"`       // API unreachable or forbidding in step 2
	PodsGoneTimeout  time.Duration `json:"podsGoneTimeout"`  // wait before power-on
	OnDeadline       time.Duration `json:"onDeadline"`       // step 3
	ReadyTimeout     time.Duration `json:"readyTimeout"`     // On read to Ready=True, steps 4 and 5
	RestoreTimeout   time.Duration `json:"restoreTimeout"`   // registration to labels read back
	RunTimeout       time.Duration `json:"runTimeout"`       // whole run, then Waiting or Held
	MinPowerInterval time.Duration `json:"minPowerInterval"` // between two attempts, doubled each time
	MaxAttempts      int           `json:"maxAttempts"`      // power cycles before step 6
	// RetryInterval is the first pause of a Waiting run; 0: the run is Held instead.
	RetryInterval time.Duration `json:"retryInterval,omitempty"`
	// SessionTimeout is how long a BMC keeps a session that nobody ends; 0: it is not waited for.
	SessionTimeout  time.Duration `json:"sessionTimeout,omitempty"`
	Levels          int           `json:"levels,omitempty"` // power levels of the host
	PowerOnFoundOff bool          `json:"powerOnFoundOff"`
	// ReleasePods: once the Node is isolated, its pods and VolumeAttachments are deleted
	// at once.
	ReleasePods bool `json:"releasePods,omitempty"`
	Reprovision bool `json:"reprovision"` // step 6 allowed after power cycles
	// ReplaceControlPlane: the DeleteMachine strategy may be used on a
	// control-plane Machine, whose owner then makes a new one.
	ReplaceControlPlane bool `json:"replaceControlPlane,omitempty"`
}

// Intent is the last command of a run. It is durable before the command is
// sent, so a restart knows what may have happened. // I19
type Intent struct {
	Action Action    `json:"action"`
	At     time.Time `json:"at"`
}

// Visit is one entry of a run's journal: one stay in a step.
type Visit struct {
	Step    Step      `json:"step"`
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Note    string    `json:"note,omitempty"`
}

// Reason is the code for which the run stopped in this step or took it back; "" if it left the step
// otherwise, or is in it. The code begins the note: a field of its own would make the record
// unreadable for the version before, and the records of that version would lack it.
func (v Visit) Reason() reason.Code {
	code, _, _ := strings.Cut(v.Note, ": ")
	if c := reason.Code(code); reason.ClassOf(c) != "" {
		return c
	}
	return ""
}

// Order is what a person ordered for this run.
type Order struct {
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// AsIs: an abort that ends a Held run and leaves the host as it is.
	AsIs bool `json:"asIs,omitempty"`
	// Admin: the Actor had the role admin. Such a fence by hand also passes in mode observe.
	Admin bool `json:"admin,omitempty"`
}

// Run is the durable record of one remediation. Only Next changes it, except that
// packages engine and admit add Unfence, Abort, Retry and Confirmed when a person orders that, and
// package run keeps Sessions.
type Run struct {
	ID      string `json:"id"`
	Version uint64 `json:"-"` // compare-and-set version, kept by the store

	Target       Target    `json:"target"`
	Origin       *Origin   `json:"machineOrigin,omitempty"` // of the Machine; nil without one
	Strategy     Strategy  `json:"strategy"`
	Isolation    Isolation `json:"isolation"`
	ControlPlane bool      `json:"controlPlane,omitempty"`
	// TakesNoTurn: nobody but its kubelet says that the host is of the control plane, in a cluster where
	// labels say which are. No other control-plane host waits for the run. // I12
	TakesNoTurn bool   `json:"takesNoTurn,omitempty"`
	Limits      Limits `json:"limits"`
	// NodeLabels are those that the Node had when the run began, for the limits that cover it; see
	// KnownLabels.
	NodeLabels map[string]string `json:"nodeLabels,omitzero"`
	// NodeNames is how the Node named its Machines then; see KnownNames.
	NodeNames NodeNames `json:"nodeNames,omitzero"`

	Trigger string `json:"trigger"`           // why it began, for people
	Check   string `json:"check,omitempty"`   // namespace/name of the check; "" for a manual fence
	CheckID string `json:"checkID,omitempty"` // tells checks of all kinds apart
	Manual  *Order `json:"manual,omitempty"`  // who fenced by hand
	// Request is the remediation request that the run carries out; nil: a check or a person
	// wants it.
	Request *Request `json:"request,omitempty"`
	// IsolatedAsked: the request still asked for the run when the run isolated the Node, which is not back yet. See
	// OutlivesRequest.
	IsolatedAsked bool   `json:"isolatedAsked,omitempty"`
	OffOnly       bool   `json:"offOnly,omitempty"` // stop after step 2, Held OperatorOff
	Unfence       *Order `json:"unfence,omitempty"` // bring the host back
	Abort         *Order `json:"abort,omitempty"`   // bring it back, and begin nothing more
	// Retry: begin again. A person orders it, who has repaired the cause; or package admit,
	// for a Waiting run that is due, as SelfActor.
	Retry *Order `json:"retry,omitempty"`
	// Confirmed: a person confirms that the host is off and cannot come on. It is
	// never taken off the record. // I26
	Confirmed    *Order           `json:"confirmed,omitempty"`
	Confirmation *OffConfirmation `json:"word,omitempty"` // what became of it

	Step        Step        `json:"step"`
	Attempt     int         `json:"attempt"`
	Started     time.Time   `json:"started"`     // from here RunTimeout counts; see Began
	StepStarted time.Time   `json:"stepStarted"` // of the step, or of its present level
	Ended       time.Time   `json:"ended,omitzero"`
	Reason      reason.Code `json:"reason,omitempty"` // CamelCase code of Held, Aborted or an abandoned cycle
	Note        string      `json:"note,omitempty"`   // the sentence to Reason
	Intent      Intent      `json:"intent"`
	Steps       []Visit     `json:"steps"`

	// Level is the power level in use, from 0. Step 1 goes up when one fails; the
	// way back to On goes down to 0.
	Level int `json:"level,omitempty"`
	// OffLevel is the highest level that was sent an Off in this attempt. The way
	// back begins there: each level from there down may be off because of us.
	OffLevel int `json:"offLevel,omitempty"`
	// Contradicted are the levels that read Off while a lower level read On.
	Contradicted []Contradiction `json:"contradicted,omitempty"`
	// Proof is what proved the host off; "" until something has.
	Proof ProofKind `json:"proof,omitempty"`
	// Intervened: the power lock was set or Off was sent, so the host must be
	// brought back On before this run may end.
	Intervened bool `json:"touched,omitempty"`
	// Revalidate: a person had step 1 begin again after the host was touched. All
	// preconditions are read again before the next command; if they no longer hold, the
	// host goes back On.
	Revalidate bool `json:"recheck,omitempty"`
	// FoundOff: the host read Off before our first command.
	FoundOff bool `json:"foundOff,omitempty"`
	// OffLease is the Lease at the first Off read; it must not advance while the
	// host is believed off. // I5
	OffLease *Lease `json:"offLease,omitempty"`
	// NewNodeUID is the Node that registered after the power cycle.
	NewNodeUID string `json:"newNodeUID,omitempty"`
	// Restored are the saved keys that were read back, each with the UID of the Node on which it last
	// was. What that Node lacks of them later was taken off by their owner, and is not written again. // I21
	Restored map[string]string `json:"restored,omitempty"`
	// LeaveOff: the host of a Held or Waiting run stays off on purpose.
	LeaveOff bool `json:"leaveOff,omitempty"`
	// Isolated is when the Node was found gone (or tainted): the run is past the point
	// of no return.
	Isolated time.Time `json:"isolated,omitzero"`
	// Abandon says why a power cycle goes back to On without isolation. AbandonTo is how
	// the run ends once the host is back.
	Abandon   reason.Code `json:"abandon,omitempty"`
	AbandonTo Step        `json:"abandonTo,omitempty"`
	// APILost is since when the API server does not answer, or forbids what is needed.
	APILost time.Time `json:"apiLost,omitzero"`
	// BusySince is since when the BMC has no session free, or asks to be tried later, in step 1
	// after its first command.
	BusySince time.Time `json:"busySince,omitzero"`
	// Sessions are those that crashes may have left open on the BMC. Package run keeps them.
	Sessions Sessions `json:"sessions,omitzero"`
	// OnSeen is the first On read of step 3: the clock of steps 4 and 5.
	OnSeen time.Time `json:"onSeen,omitzero"`
	// WrongClock: the times above may come from a clock that differed from the API
	// server's, or that was not compared with it.
	WrongClock bool `json:"wrongClock,omitempty"`
	// NotBefore delays the next attempt.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// HealthySince is since when the host of a Held or Waiting run is On and its Node Ready.
	HealthySince time.Time `json:"healthySince,omitzero"`
	// Wait is the last pause; nil: there was none.
	Wait *Wait `json:"wait,omitempty"`
	// SwitchedOff: a device accepted an Off since step 1 began.
	SwitchedOff bool `json:"switchedOff,omitempty"`
	// Tries are the starts before the present one that switched the host off, where the run
	// began again by itself. Each counts as a run of the day. // I15
	Tries []time.Time `json:"tries,omitempty"`
	// OtherPowerLock is the Observation's when the BareMetalHost was last read: an API server that does not
	// answer takes nobody's request back. // I22
	OtherPowerLock string `json:"otherPowerLock,omitempty"`
	// NoMoreAttempts: a person aborted the run after the isolation.
	NoMoreAttempts bool `json:"noMoreAttempts,omitempty"`
}

// Open says whether the run still owns its target. A Waiting or Held run does. // I1, one open run per host
func (r Run) Open() bool { return !r.Step.Ended() }

// TouchedHost says whether the run has acted on its host in any attempt: Intervened is about the
// present attempt alone. // I15
func (r Run) TouchedHost() bool { return r.Intervened || r.Attempt > 1 || !r.Isolated.IsZero() }

// Began is when the run began. Started is later where a person resumed the run, which
// then has its whole time again.
func (r Run) Began() time.Time {
	if len(r.Steps) > 0 && r.Steps[0].Started.Before(r.Started) {
		return r.Steps[0].Started
	}
	return r.Started
}

// Left is the newest stay in a step that is over; the zero Visit while the run is in its first step.
func (r Run) Left() Visit {
	for _, v := range slices.Backward(r.Steps) {
		if !v.Ended.IsZero() {
			return v
		}
	}
	return Visit{}
}

// Deadline is when the time of the current step is over; zero when it has none.
func (r Run) Deadline() time.Time {
	switch r.Step {
	case PowerOff:
		more := time.Duration(0) // where the Node's Lease is longer than usual: twice, because a restart waits again
		if r.OffLease != nil {
			more = 2 * (r.OffLease.quietFor() - leaseQuietFor)
		}
		if confirmationActive(r) {
			more = max(more, 2*(r.Confirmation.Lease.quietFor()-leaseQuietFor))
		}
		if !r.BusySince.IsZero() {
			more += busyAtMost
		}
		return r.StepStarted.Add(r.Limits.OffDeadline + more)
	case DeleteNode:
		if !r.APILost.IsZero() {
			return r.APILost.Add(r.Limits.APITimeout)
		}
		return r.StepStarted.Add(r.Limits.APITimeout)
	case PowerOn: // On may have to wait for the pods first
		return times.Later(r.StepStarted, r.Isolated.Add(r.Limits.PodsGoneTimeout)).Add(r.Limits.OnDeadline)
	case AwaitNode, RestoreNode:
		return r.OnSeen.Add(r.Limits.ReadyTimeout)
	}
	return time.Time{}
}

// Target is the Machine, Node and host of one run. UIDs and the boot ID are
// those the decision was made on; names alone never authorise a write. // I2
type Target struct {
	Cluster string `json:"cluster"`
	// ClusterUID is the UID of the cluster's Namespace kube-system: a kubeconfig may lead to another
	// cluster later, with equal names.
	ClusterUID string `json:"clusterUID,omitempty"`
	// ManagementUID is the same of a separate management cluster, which has the Machines; empty without one.
	ManagementUID string `json:"managementUID,omitempty"`
	Node          string `json:"node"`
	NodeUID       string `json:"nodeUID,omitempty"`
	BootID        string `json:"bootID,omitempty"`
	SystemUUID    string `json:"systemUUID,omitempty"`
	Namespace     string `json:"machineNamespace,omitempty"`
	Machine       string `json:"machine,omitempty"`
	MachineUID    string `json:"machineUID,omitempty"`
	// MachineAPI is the apiVersion of the Machine. It decides how step 6 has the owner replace the Machine.
	MachineAPI string `json:"machineAPI,omitempty"`
	Host       string `json:"host,omitempty"` // bmc.Host.Name, "" for DeleteMachine
	// Address is the BMC's address at the start. A run never follows a host whose
	// address is changed later. // I10
	Address string `json:"address,omitempty"`
	// Devices names every device that can switch the host, one to a line
	// (bmc.Host.Keys).
	Devices string `json:"devices,omitempty"`
	// Choice is what selects the machine behind each device at the start
	// (bmc.Device.Fingerprint). // I10
	Choice string `json:"choice,omitempty"`
	// ReportedUUID is the system UUID that the BMC reported when the run began without a
	// Node, or with one that told none. Only a Node with this UUID is one of the same machine. // I6
	ReportedUUID string `json:"reportedUUID,omitempty"`
	// ByHardware: without a Node, the BMC was identified by the serial number or the MAC
	// addresses of the BareMetalHost, and by nothing else. // I8
	ByHardware bool `json:"byHardware,omitempty"`
	// Secret names the Secrets of the devices at the start, one to a line; empty
	// where none comes from a Secret.
	Secret string `json:"secret,omitempty"`
	// Unverified: the certificate of a device was not to be verified at the start. // I10
	Unverified bool `json:"unverified,omitempty"`
	// BareMetalHost is namespace/name when Metal3 also owns this host's power. Our
	// power lock must then be on it before the host is switched off.
	BareMetalHost    string `json:"bareMetalHost,omitempty"`
	BareMetalHostUID string `json:"bareMetalHostUID,omitempty"` // of that object
}

// MachineKey is the "namespace/name" of the Machine; "" if the target has none.
func (t Target) MachineKey() string {
	if t.Machine == "" {
		return ""
	}
	return t.Namespace + "/" + t.Machine
}

// Names are those under which people hold the target: of its Node, and of its Machine.
func (t Target) Names() []string {
	names := make([]string, 0, 2)
	for _, name := range [...]string{t.Node, t.MachineKey()} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// WithoutNode is the "namespace/name" of a Machine that has no Node; "" for every other
// target.
func (t Target) WithoutNode() string {
	if t.Node != "" {
		return ""
	}
	return t.MachineKey()
}

// Overlaps says whether two targets share a Machine, a Node or a host.
func (t Target) Overlaps(o Target) bool {
	return t.Node != "" && t.Node == o.Node ||
		t.Machine != "" && t.MachineKey() == o.MachineKey() && t.mayShareAPI(o) ||
		t.Host != "" && t.Host == o.Host ||
		t.Address != "" && t.Address == o.Address || // one BMC under two names
		t.SharesDevice(o) ||
		t.BareMetalHost != "" && t.BareMetalHost == o.BareMetalHost
}

// mayShareAPI says whether the Machines of two targets may be of one API. Those of two may be on two API servers,
// where a namespace of one name belongs to two people.
func (t Target) mayShareAPI(o Target) bool {
	group, _, _ := strings.Cut(t.MachineAPI, "/")
	other, _, _ := strings.Cut(o.MachineAPI, "/")
	return group == "" || other == "" || group == other
}

// SharesDevice says whether one device can switch the hosts of both targets.
func (t Target) SharesDevice(o Target) bool {
	theirs := strings.Split(o.Devices, "\n")
	return t.Devices != "" && slices.ContainsFunc(strings.Split(t.Devices, "\n"), func(key string) bool {
		return slices.Contains(theirs, key)
	})
}

// Request names one remediation request: an object in the cluster that asks for the run. An
// in-cluster controller, or a person, made it.
type Request struct {
	Kind      string `json:"kind"` // FencedRemediation, or Machine for one that is annotated
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"` // tells it from a later one of the same name
	// OnManagementAPI: the object is on a separate management API.
	OnManagementAPI bool `json:"onManagementAPI,omitempty"`
	// Check is the ID of the check that made it; "" if no check did. Once the
	// object is gone, this check says whether the run is still wanted.
	Check string `json:"check,omitempty"`
}

// Origin is where the Machine of a run came from, as fenced saw it when the run began.
// Later deletions of Machines of the same controller are limited by it. Next does not
// read it.
type Origin struct {
	Controller string    `json:"controller,omitempty"` // UID of the Machine's controller
	Created    time.Time `json:"created,omitzero"`
	// NeverReady: no Node of the Machine was ever seen Ready.
	NeverReady bool `json:"neverReady,omitempty"`
}

// MachineDeletedAt is when a run that has ended asked for the deletion of its Machine, or
// found the Machine being deleted; zero if it did neither.
func (r Run) MachineDeletedAt() time.Time {
	switch {
	case r.Open():
		return time.Time{}
	case r.Intent.Action == DeleteTargetMachine: // also without an answer
		return r.Intent.At
	case r.Step == Reprovisioned:
		return r.Ended
	}
	return time.Time{}
}
