package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Answer is what a read said to a question; the zero value is "could not tell".
type Answer uint8

// The answers.
const (
	CannotTell Answer = iota
	No
	Yes
)

// Ask turns a bool that was really read into an Answer.
func Ask(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// APIState is how the cluster's API answered this look.
type APIState uint8

// The API states; the zero value is Unreachable.
const (
	APIUnreachable APIState = iota
	APIReachable
	APIForbidden
)

// Observation is everything one look found. All reads of it are uncached and belong
// to this round; what could not be read stays at its zero value.
type Observation struct {
	// At is when the reads of the cluster began; step 1 and machine deletion
	// want them no older than two seconds. // I4
	At time.Time

	// Level is the power level that was asked: Power to Identity are its alone.
	// Whoever looks opens the run's level anew when that has changed; what was
	// read of another level counts as not read. // I1
	Level int
	// Devices are those of the level, for notes: "pdu-a#7 + pdu-b#7".
	Devices string
	// ProofKind is what an Off read twice at this level is worth.
	ProofKind ProofKind
	Power     bmc.Reading // State Unknown when the read failed
	// PowerError is why the read failed, or the level could not be opened; "" when
	// neither did.
	PowerError bmc.Kind
	// LevelRefusal is the reason code of what keeps the level from being asked at all, as
	// InvalidHost or SecretMissing; "" when the BMC itself failed.
	LevelRefusal string
	Proof        bmc.Proof
	// LowerLevelOn names a level below that reads On while this one cannot be read; only
	// asked while a person's word is on the record. // I26
	LowerLevelOn string
	// OffAccepted: in this process the level accepted Off, before every reading
	// in Proof. A restart forgets it and sends Off again. // I1
	OffAccepted bool
	// Identity: what answered is the power of this Node.
	Identity Answer

	// Clock: this host's clock agrees with that of the API server, as far as that has
	// answered since the process began. While it does not, no deadline expires; that
	// nothing which hurts is done is up to Paused. // I16
	Clock Answer
	// ClockSet: no look since the record was last saved was by this very clock: the process
	// is a new one, or its clock was set. Only asked while Clock is not Yes.
	ClockSet bool

	API     APIState
	Node    Node
	Lease   Lease
	Machine Machine
	// Justified: the fresh Node and Machine, judged again, still ask for this
	// run (a manual fence justifies itself). Why is the sentence to No. // I4
	Justified Answer
	Why       string
	// Quorum: etcd survives the loss of this control-plane host. Asked only about
	// control planes. QuorumWhy is the sentence to No. // I12
	Quorum    Answer
	QuorumWhy string
	// Contested names another remediator or power owner at work; it is read
	// afresh before steps 1 and 2. // I22
	Contested Answer
	Contender string

	// PowerLock: our hold stands on the BareMetalHost. Only asked when the target
	// has one.
	PowerLock Answer
	// PowerForbidden is why the host must not be switched off: its power owner forbids
	// it (disablePowerOff, online: false), its BMC has lied (I5), or it is there twice
	// by now (I9); "" = nothing is against it.
	PowerForbidden string
	// Pods says whether no pod is bound to the Node's name any more. // I7
	PodsGone Answer
	// Backup is the durable copy of the Node, parsed back equal. // I21
	Backup Backup
	// Restored: every key of the backup that we own is on the Node, read back.
	Restored Answer
	// RestoreError is why the last try to write it back was refused.
	RestoreError string
	// Paused: a person stopped everything, or holds this target, or it is one that this
	// daemon never switches off. // I13, I23
	Paused bool
	// PausedWhy is the sentence to Paused, PausedReason what a run ends with for it;
	// "" = Paused.
	PausedWhy, PausedReason string
	// RenamedTo names another Node that now has the target's system UUID: the host
	// came back under another name. // I6
	RenamedTo string
	// NodesUnseen: the Nodes of the cluster cannot be seen now, so an empty Elsewhere
	// says nothing.
	NodesUnseen bool
}

// Node is the target's Node as it is now.
type Node struct {
	Exists          Answer
	UID             string
	ResourceVersion string
	BootID          string
	SystemUUID      string
	Deleting        bool
	Ready           Answer // Yes = Ready is True
	OutOfService    bool   // carries our out-of-service taint
}

// unregistered says whether no kubelet has made or taken on this Node yet: it has no boot ID.
// Whoever keeps Nodes in Git makes a deleted one again, which is neither a registration
// nor a sign of life. // I5, I6
func (n Node) unregistered() bool { return n.Exists == Yes && n.BootID == "" }

// Lease is the Node's heartbeat. Known with an empty ResourceVersion means
// that there is none.
type Lease struct {
	Known           bool      `json:"known"`
	ResourceVersion string    `json:"resourceVersion"`
	RenewTime       time.Time `json:"renewTime,omitzero"`
	// Duration is for how long the kubelet takes its Lease, by its own word; it renews at
	// a quarter of that. Zero where the Lease does not say.
	Duration time.Duration `json:"duration,omitempty"`
	// Seen is when this Lease was first read; only in the record of a run.
	Seen time.Time `json:"seen,omitzero"`
	// KubeletReporting: the Node's Ready is not Unknown, so the control plane saw this Lease move
	// within its grace period, whatever the host's clock writes into it.
	KubeletReporting bool `json:"heard,omitempty"`
}

// recent is how shortly before an Off a Lease may have been renewed to be one that may
// be renewed again; still is for how long it must then stand still: by then a kubelet
// that lives has missed a renewal. // I5
func (l Lease) recent() time.Duration { return max(leaseRecent, l.Duration) }
func (l Lease) still() time.Duration  { return max(leaseStill, l.Duration/2) }

// seenAt is the Lease for the record of a run.
func (l Lease) seenAt(now time.Time) *Lease {
	l.Seen = now
	return &l
}

// Machine is the target's Machine as it is now.
type Machine struct {
	Exists   Answer
	UID      string
	Deleting bool
	// Requested: it carries the lineage's remediation request annotation.
	Requested bool
	// Marked: it is handed over to its owner already (OwnerRemediated is False).
	Marked bool
	// Replaceable: a controller owns it that makes a new one, and its host may be
	// reprovisioned (not externally provisioned, and a control plane only where
	// the run's limits allow that). Why is the sentence to No.
	Replaceable Answer
	Why         string
}

// Backup names the Node object that was saved.
type Backup struct {
	UID             string
	ResourceVersion string
}

// Action is one thing for the engine to do. The zero value is to do nothing.
type Action string

// The actions. Those that do not hurt are safe at any time.
const (
	Nothing             Action = ""
	SetPowerLock        Action = "SetHold"             // reboot.metal3.io/fenced on the BareMetalHost
	ReleasePowerLock    Action = "ReleaseHold"         // remove it
	SendOff             Action = "SendOff"             // ForceOff
	SendOn              Action = "SendOn"              // On
	BackupNode          Action = "BackupNode"          // fresh GET, save durably, read back
	IsolateNode         Action = "IsolateNode"         // delete (or taint) with UID + resourceVersion of the backup
	RestoreTargetNode   Action = "RestoreNode"         // merge the backup in, live value wins; drop our taint
	ClearRequest        Action = "ClearRequest"        // remove the Machine's remediation request
	DeleteTargetMachine Action = "DeleteTargetMachine" // or mark it for its owner, as its lineage does; with UID precondition
)

// Destructive says whether an action takes something away; the others bring back.
func (a Action) Destructive() bool {
	switch a {
	case SetPowerLock, SendOff, IsolateNode, DeleteTargetMachine:
		return true
	}
	return false
}
