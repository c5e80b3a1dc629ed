package remediate

import (
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// ErrChanged is the error of a restore that failed only because somebody changed the Node meanwhile, as its kubelet does. It says nothing
// about what the next one will find.
var ErrChanged = errors.New("the Node was changed meanwhile")

// Answer is the answer of a read to a question; the zero value is "could not tell".
type Answer uint8

// The answers.
const (
	CannotTell Answer = iota
	No
	Yes
)

// AnswerOf makes an Answer of a bool that was read.
func AnswerOf(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// APIState is how the API server answered this look.
type APIState uint8

// The API states; the zero value is Unreachable.
const (
	APIUnreachable APIState = iota
	APIReachable
	APIForbidden
)

// Observation is everything one look found. All its reads are uncached and of this
// round. What could not be read stays at its zero value.
type Observation struct {
	// At is when the reads of the cluster began. Step 1 and the deletion of a Machine
	// need them no older than two seconds. // I4
	At time.Time

	// Level is the power level that was asked: Power to Identity are of this level alone.
	// When the run's level changes, package run opens the new one. What was read of another
	// level counts as not read. // I1
	Level int
	// Devices are those of the level, for notes: "pdu-a#7 + pdu-b#7".
	Devices string
	// ProofKind is the kind of proof that two Off reads of this level make.
	ProofKind ProofKind
	Power     bmc.Reading // State Unknown when the read failed
	// PowerError says why the read failed, or the level could not be opened; "" when
	// neither did.
	PowerError bmc.Kind
	// LevelRefusal is the reason code if the level could not be asked at all, for example
	// InvalidHost or SecretMissing; "" when the BMC itself failed.
	LevelRefusal reason.Code
	Proof        bmc.Proof
	// LowerLevelOn names a level that has read On where this one does not tell: a lower one, or any of the last question
	// before an isolation. It is only asked while a manual confirmation is on the record. // I26
	LowerLevelOn string
	// OffAccepted: in this process the level accepted Off, before every reading
	// in Proof. A restart forgets it and sends Off again. // I1
	OffAccepted bool
	// Identity: the BMC that answered belongs to the machine of this Node.
	Identity Answer

	// Clock: this host's clock agrees with the API server's; CannotTell until the API server
	// has answered this process. While it does not agree, no deadline expires. Package
	// run sets Paused as well, so that nothing destructive is done. // I16
	Clock Answer
	// ClockSet: since the record was last saved, the process was restarted or its clock was
	// set. Only asked while Clock is not Yes.
	ClockSet bool

	API APIState
	// ClusterUID tells the cluster that answered: the UID of its Namespace kube-system. Another
	// one than the record's answers nothing about this run; see withoutOtherCluster. // I2
	ClusterUID string
	// ManagementUID is the same of a separate management cluster.
	ManagementUID string
	OtherCluster  bool // set by Next: another cluster answered than the record's
	Node          Node
	Lease         Lease
	Machine       Machine
	// Justified: the fresh Node and Machine, evaluated again, still justify this run (a
	// manual fence justifies itself). Why explains a No. // I4
	Justified Answer
	Why       string
	// Withdrawn: nobody asks for this run any more. Its request or check is gone, is being deleted,
	// is paused or off, or has given up on the target; or the mode of the cluster does not allow the
	// run. That a limit refuses the target, or that the run itself has changed it, is none of
	// these. WithdrawnWhy explains a Yes. // I4
	Withdrawn    Answer
	WithdrawnWhy string
	// GivenUp: the request of this run is there, and the check that made it has given up on it.
	GivenUp bool
	// Quorum: etcd keeps its quorum without this control-plane host. Only asked for
	// control planes. QuorumWhy explains a No. // I12
	Quorum    Answer
	QuorumWhy string
	// Contested: another remediator or power owner is active; Contender names it. It is
	// read afresh before steps 1 and 2. // I22
	Contested Answer
	Contender string

	// PowerLock: our power lock is on the BareMetalHost. Only asked when the target has
	// one. BareMetalHostUID is the UID of that object; "" if it does not exist or was not read.
	PowerLock        Answer
	BareMetalHostUID string
	// MachineMetal is the BareMetalHost that the Machine names now; "" if none, or if it is not known.
	MachineMetal string
	// PowerForbidden says why the host must not be switched off: its power owner forbids
	// it (disablePowerOff, online: false), its BMC is frozen (I5), or two hosts lead to
	// it by now (I9); "" = it may be switched off.
	PowerForbidden string
	// OwnerWantsOff: the owner of the host's power wants it off (online: false), and switches it
	// off again whenever it is on.
	OwnerWantsOff bool
	// OtherPowerLock is an annotation reboot.metal3.io of somebody else on the BareMetalHost; "" if
	// none was read. Whoever set it takes the host for off, and its power owner keeps it off.
	OtherPowerLock string
	// PodsGone: no pod is bound to the Node's name any more. // I7
	PodsGone Answer
	// PodsReleased and VolumesReleased: no pod and no VolumeAttachment of the Node is left that
	// ReleasePods would delete. Only read for a run that releases them.
	PodsReleased, VolumesReleased Answer
	// Backup is the durable copy of the Node, parsed back equal. // I21
	Backup Backup
	// Restored: every key of the backup that fenced still restores is on the Node, read back.
	Restored Answer
	// ReadBack are the keys of the backup that are on the Node, or that the API server's answer to the
	// last restore showed on it. Those that the record has already may be left out.
	ReadBack []string
	// RestoreError says why the API server refused the last restore, or the one before, if only ErrChanged kept the last one from it.
	RestoreError string
	// Paused: a person paused fenced or holds this target, or this daemon never switches
	// the target off, or the clock is wrong. // I13, I16, I23
	Paused bool
	// PausedWhy explains Paused. PausedReason is the reason code of a run that ends for
	// it; "" = Paused.
	PausedWhy    string
	PausedReason reason.Code
	// RenamedTo names another Node that now has the target's system UUID: the host
	// came back under another name. // I6
	RenamedTo string
	// NodesUnseen: the Nodes of the cluster cannot be seen now, so an empty RenamedTo
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
	Created         time.Time // by the clock of this host
	Deleting        bool
	Ready           Answer // Yes = Ready is True
	OutOfService    bool   // carries our out-of-service taint
}

// registered says whether a kubelet has registered this Node. One without a boot ID is of none yet: a controller that keeps
// Nodes in Git recreates a deleted one, which is neither a registration nor a sign of life. // I5, I6
func (n Node) registered() bool { return n.Exists == Yes && n.BootID != "" }

// Lease is the Node's heartbeat. Known with an empty ResourceVersion means
// that there is none.
type Lease struct {
	Known           bool      `json:"known"`
	ResourceVersion string    `json:"resourceVersion"`
	RenewTime       time.Time `json:"renewTime,omitzero"`
	// Duration is leaseDurationSeconds; the kubelet renews after a quarter of it. Zero
	// where the Lease does not say.
	Duration time.Duration `json:"duration,omitempty"`
	// These are only in the record of a run: when this Lease was first read, the boot of its Node
	// then, and whether it was a renewal while no kubelet had a Node of this name.
	Seen         time.Time `json:"seen,omitzero"`
	BootID       string    `json:"bootID,omitempty"`
	Unregistered bool      `json:"unregistered,omitempty"`
	// KubeletReporting: the Node's Ready condition is not Unknown. So the control plane saw
	// this Lease renewed within its grace period, whatever the host's clock wrote into it.
	KubeletReporting bool `json:"heard,omitempty"`
}

// renewedSince reports whether a kubelet has written the Lease since it was as before. A Lease that is gone shows none. // I5
func (l Lease) renewedSince(before Lease) bool {
	return l.Known && l.ResourceVersion != "" && l.ResourceVersion != before.ResourceVersion
}

// A Lease that was renewed less than recentFor before the Off may be renewed again. It must
// then stand still for quietFor: by then a kubelet that runs has missed a renewal. Neither is longer
// than for times.LongestLease, whatever is written into the Lease once the host is off. // I5
func (l Lease) recentFor() time.Duration {
	return max(leaseRecentFor, min(l.Duration, times.LongestLease))
}

func (l Lease) quietFor() time.Duration {
	return max(leaseQuietFor, min(l.Duration, times.LongestLease)/2)
}

// Machine is the target's Machine as it is now.
type Machine struct {
	Exists   Answer
	UID      string
	Deleting bool
	// Requested: it carries the remediation request annotation of its API family.
	Requested bool
	// Marked: it is handed over to its owner already (OwnerRemediated is False).
	Marked bool
	// Replaceable: its owner is a controller that creates a new one, and its host may be
	// reprovisioned (not externally provisioned, and a control plane only where the
	// run's limits allow that). Why explains a No.
	Replaceable Answer
	Why         string
}

// Backup names the Node object that was saved. Unread says that the store did not answer, so that there may
// be one.
type Backup struct {
	UID             string
	ResourceVersion string
	Unread          bool
}

// Action is one thing for package run to do. The zero value is to do nothing.
type Action string

// The actions. Those that are not Destructive are safe at any time.
const (
	Nothing             Action = ""
	SetPowerLock        Action = "SetHold"             // reboot.metal3.io/fenced on the BareMetalHost
	ReleasePowerLock    Action = "ReleaseHold"         // remove it
	SendOff             Action = "SendOff"             // ForceOff
	SendOn              Action = "SendOn"              // On
	BackupNode          Action = "BackupNode"          // fresh GET, save durably, read back
	IsolateNode         Action = "IsolateNode"         // delete (or taint) with UID + resourceVersion of the backup
	ReleasePods         Action = "ReleasePods"         // delete the pods and VolumeAttachments of the isolated Node, each by its UID
	RestoreTargetNode   Action = "RestoreNode"         // merge the backup in, live value wins; drop our taint
	ClearRequest        Action = "ClearRequest"        // remove the Machine's remediation request
	DeleteTargetMachine Action = "DeleteTargetMachine" // or mark it for its owner, as its API family does; with UID precondition
)

// Destructive says whether an action takes something away; the others bring back.
func (a Action) Destructive() bool {
	switch a {
	case SetPowerLock, SendOff, IsolateNode, ReleasePods, DeleteTargetMachine:
		return true
	}
	return false
}
