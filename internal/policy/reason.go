package policy

// Reason is a stable code that says why: of a verdict, of a refusal or of a
// gate. Codes are never renamed; docs/reasons.md has one row for each.
type Reason string

// Reasons of a verdict.
const (
	// NodeCondition: the Node has an unhealthy condition of the check.
	NodeCondition Reason = "NodeCondition"
	// NodeNotFound: the Machine names a Node that does not exist.
	NodeNotFound Reason = "NodeNotFound"
	// NodeStartupTimeout: the Machine has no Node for longer than the check allows.
	NodeStartupTimeout Reason = "NodeStartupTimeout"
	// MachineFailed: the Machine's phase is Failed.
	MachineFailed Reason = "MachineFailed"
	// UnderRemediation: someone has asked for this target's remediation, or a run is open on it.
	UnderRemediation Reason = "UnderRemediation"
	// StartupCheckDisabled: the Machine has no Node and the check's start-up timeout is 0.
	StartupCheckDisabled Reason = "StartupCheckDisabled"
	// MachineCondition: the Machine has an unhealthy condition of the check.
	MachineCondition Reason = "MachineCondition"
	// RemediateRequested: someone asked for the remediation by annotation.
	RemediateRequested Reason = "RemediateRequested"
	// SkipRequested: the Machine asks not to be remedied.
	SkipRequested Reason = "SkipRequested"
	// Excluded: the Node's label excludes it from remediation.
	Excluded Reason = "Excluded"
	// NotReadyForChecks: the cluster is still being set up.
	NotReadyForChecks Reason = "NotReadyForChecks"
	// Undecodable: the target's Node is there but could not be decoded, or a Machine
	// that may be the Node's.
	Undecodable Reason = "Undecodable"
	// NodeMismatch: the Machine names a Node that another Machine or another host has.
	NodeMismatch Reason = "NodeMismatch"
)

// Reasons of a verdict and of a refusal.
const (
	// Deleting: the Machine is being deleted.
	Deleting Reason = "Deleting"
	// Paused: the check, the cluster or the daemon is paused.
	Paused Reason = "Paused"
)

// Refusals by the check and its lineage.
const (
	// InvalidCheck: the check cannot be evaluated.
	InvalidCheck Reason = "InvalidCheck"
	// CheckDisabled: the check refers to nothing that could remedy a target.
	CheckDisabled Reason = "CheckDisabled"
	// NotCovered: no check covers the Node.
	NotCovered Reason = "NotCovered"
	// NotUnhealthy: the check does not hold the target for unhealthy.
	NotUnhealthy Reason = "NotUnhealthy"
	// ShortCircuit: more targets are not healthy than the check's limit.
	ShortCircuit Reason = "ShortCircuit"
	// OutOfRange: the number of unhealthy targets is outside the check's range.
	OutOfRange Reason = "OutOfRange"
	// ClusterUpgrading: the whole cluster is being upgraded.
	ClusterUpgrading Reason = "ClusterUpgrading"
	// PauseRequested: someone listed a reason in the check's pauseRequests.
	PauseRequested Reason = "PauseRequested"
	// StormCooldown: the limit was exceeded until a short while ago.
	StormCooldown Reason = "StormCooldown"
	// NoTemplateLeft: every rung of the escalation has been tried.
	NoTemplateLeft Reason = "NoTemplateLeft"
	// Budget: too many Nodes of a disruption budget are unavailable.
	Budget Reason = "Budget"
	// NoController: no controller would recreate the Machine if it were deleted.
	NoController Reason = "NoController"
	// ControlPlane: a control-plane Machine is not deleted.
	ControlPlane Reason = "ControlPlane"
	// AlreadyRequested: the remediation that the check asks for has been requested.
	AlreadyRequested Reason = "AlreadyRequested"
	// ControlPlaneBusy: another control-plane host is being remedied.
	ControlPlaneBusy Reason = "ControlPlaneBusy"
	// QuorumUnknown: nobody can say whether etcd survives the loss of this member.
	QuorumUnknown Reason = "QuorumUnknown"
	// QuorumLost: etcd would lose its quorum with this member.
	QuorumLost Reason = "QuorumLost"
	// Overlap: another check that covers the target is more restrictive.
	Overlap Reason = "Overlap"
	// NodeAlive: Ready is Unknown but the kubelet still renews its Lease.
	NodeAlive Reason = "NodeAlive"
)

// Refusals by the daemon's guards.
const (
	// Delegated: the check leaves the remedy to another controller.
	Delegated Reason = "Delegated"
	// Observing: the cluster's mode does not let the daemon act on its own judgement.
	Observing Reason = "Observing"
	// NotOwner: another instance holds the cluster.
	NotOwner Reason = "NotOwner"
	// Hold: an operator holds this target.
	Hold Reason = "Hold"
	// NotSynced: the first full view of the cluster is not there yet.
	NotSynced Reason = "NotSynced"
	// ViewStale: the view of the cluster is too old.
	ViewStale Reason = "ViewStale"
	// ClockSkew: this host's clock and the API server's differ too much.
	ClockSkew Reason = "ClockSkew"
	// NoNodesVisible: the workload API shows no Node at all, or none of this cluster's.
	NoNodesVisible Reason = "NoNodesVisible"
	// EverythingDown: every Node is not ready, so the daemon's own view is suspected.
	EverythingDown Reason = "EverythingDown"
	// QuietPeriod: too soon after a start, a reload, an unpause or an API outage.
	QuietPeriod Reason = "QuietPeriod"
	// Protected: the host is marked as never to be fenced automatically.
	Protected Reason = "Protected"
	// DuplicateUUID: another Node has the same system UUID, so power would hit both.
	DuplicateUUID Reason = "DuplicateUUID"
	// OwnHost: the target is the machine that this daemon runs on.
	OwnHost Reason = "OwnHost"
	// Contested: another remediator is alive and would act on the same target.
	Contested Reason = "Contested"
	// NoHost: no BMC is known for the target.
	NoHost Reason = "NoHost"
	// SecretMissing: the BMC's credentials cannot be found.
	SecretMissing Reason = "SecretMissing"
	// InvalidHost: the host's entry or BareMetalHost cannot be used.
	InvalidHost Reason = "InvalidHost"
	// Frozen: the host was seen alive while its BMC said Off.
	Frozen Reason = "Frozen"
	// ClassFrozen: BMCs of this model and firmware said Off about living hosts.
	ClassFrozen Reason = "ClassFrozen"
	// NotFrozen: an order would release a host that is not frozen.
	NotFrozen Reason = "NotFrozen"
	// BMCFault: the BMC answers, and reports a fault that no proof of Off can stand
	// beside.
	BMCFault Reason = "BMCFault"
	// DuplicateHost: two hosts of the inventory lead to one BMC or one machine.
	DuplicateHost Reason = "DuplicateHost"
	// AddressChanged: the BareMetalHost was pointed at another BMC than the one that
	// was known to be its own, or the Machine at another BareMetalHost.
	AddressChanged Reason = "AddressChanged"
	// SecretShared: the BareMetalHost names the Secret of another host, and its BMC was
	// neither pinned nor enrolled.
	SecretShared Reason = "SecretShared"
	// BMCShared: the BareMetalHost has another account at the BMC of another host, and was
	// neither pinned nor enrolled.
	BMCShared Reason = "BMCShared"
	// NotEnrolled: nobody has vouched that the device switches this host.
	NotEnrolled Reason = "NotEnrolled"
	// PowerOwner: the host's owner forbids turning it off, or wants it off.
	PowerOwner Reason = "PowerOwner"
	// IdentityMismatch: the BMC belongs to another machine than the Node.
	IdentityMismatch Reason = "IdentityMismatch"
	// IdentityUnknown: nothing proves that BMC and Node are the same machine.
	IdentityUnknown Reason = "IdentityUnknown"
	// InFlightLimit: as many runs are open in the cluster as are allowed at once.
	InFlightLimit Reason = "InFlightLimit"
	// TotalInFlight: as many runs are open over all clusters as are allowed at once.
	TotalInFlight Reason = "TotalInFlight"
	// StartRate: so many runs were begun in the cluster of late that the next one waits.
	StartRate Reason = "StartRate"
	// Quarantined: the host was fenced again and again, so the daemon keeps off it.
	Quarantined Reason = "Quarantined"
	// ZoneInFlight: as many runs are open in the zone as are allowed at once.
	ZoneInFlight Reason = "ZoneInFlight"
	// ZoneBreaker: so much of the zone is not ready that the zone is suspected.
	ZoneBreaker Reason = "ZoneBreaker"
	// PowerInterval: too soon after the last run on this host.
	PowerInterval Reason = "PowerInterval"
	// FencesPerDay: too many runs on this host within a day.
	FencesPerDay Reason = "FencesPerDay"
)
