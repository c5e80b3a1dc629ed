package reason

// Code is a stable code that says why: of a verdict, of a refusal or of a
// gate. Codes are never renamed; docs/reasons.md has one row for each.
type Code string

// Reasons of a verdict.
const (
	// NodeCondition: the Node has an unhealthy condition of the check.
	NodeCondition Code = "NodeCondition"
	// RequestTimeout: no run could begin within the time of the remediation request, or its
	// check has given up on it.
	RequestTimeout Code = "RequestTimeout"
	// RequestNotHeld: the finalizer could not be set on the remediation request.
	RequestNotHeld Code = "RequestNotHeld"
	// RequestLimit: there are more remediation requests than fenced looks at.
	RequestLimit Code = "RequestLimit"
	// RequestNotTrusted: the remediation request only names its Node, and is where anybody may
	// have made it.
	RequestNotTrusted Code = "RequestNotTrusted"
	// NodeNotFound: the Machine names a Node that does not exist.
	NodeNotFound Code = "NodeNotFound"
	// NodeStartupTimeout: the Machine has no Node for longer than the check allows.
	NodeStartupTimeout Code = "NodeStartupTimeout"
	// MachineFailed: the Machine's phase is Failed.
	MachineFailed Code = "MachineFailed"
	// UnderRemediation: remediation of this target has been requested, or a run is
	// open for it.
	UnderRemediation Code = "UnderRemediation"
	// StartupCheckDisabled: the Machine has no Node and the check's start-up timeout is 0.
	StartupCheckDisabled Code = "StartupCheckDisabled"
	// MachineCondition: the Machine has an unhealthy condition of the check.
	MachineCondition Code = "MachineCondition"
	// RemediateRequested: somebody requested the remediation by annotation.
	RemediateRequested Code = "RemediateRequested"
	// SkipRequested: the Machine asks to be skipped.
	SkipRequested Code = "SkipRequested"
	// Excluded: the Node's label excludes it from remediation.
	Excluded Code = "Excluded"
	// NotReadyForChecks: the cluster is still being set up.
	NotReadyForChecks Code = "NotReadyForChecks"
	// Undecodable: the target's Node exists but could not be decoded, or a Machine
	// that may be the Node's could not.
	Undecodable Code = "Undecodable"
	// NodeMismatch: the Machine names a Node that another Machine or another host has.
	NodeMismatch Code = "NodeMismatch"
	// NodeNotOwned: the Machine names a Node that does not name it.
	NodeNotOwned Code = "NodeNotOwned"
)

// Reasons of a verdict and of a refusal.
const (
	// Deleting: the Machine is being deleted.
	Deleting Code = "Deleting"
	// Paused: the check, the cluster or the daemon is paused.
	Paused Code = "Paused"
)

// Refusals by the check and its API family.
const (
	// CheckLimit: the namespace has more checks than fenced evaluates.
	CheckLimit Code = "CheckLimit"
	// InvalidCheck: the check cannot be evaluated.
	InvalidCheck Code = "InvalidCheck"
	// CheckDisabled: the check refers to nothing that could remediate a target.
	CheckDisabled Code = "CheckDisabled"
	// NotCovered: no check covers the Node.
	NotCovered Code = "NotCovered"
	// NotUnhealthy: the check does not consider the target unhealthy.
	NotUnhealthy Code = "NotUnhealthy"
	// ShortCircuit: more targets are not healthy than the check's limit.
	ShortCircuit Code = "ShortCircuit"
	// OutOfRange: the number of unhealthy targets is outside the check's range.
	OutOfRange Code = "OutOfRange"
	// ClusterUpgrading: the whole cluster is being upgraded.
	ClusterUpgrading Code = "ClusterUpgrading"
	// PauseRequested: someone listed a reason in the check's pauseRequests.
	PauseRequested Code = "PauseRequested"
	// StormCooldown: the limit was exceeded until a short while ago.
	StormCooldown Code = "StormCooldown"
	// NoTemplateLeft: every template of the escalation has been tried.
	NoTemplateLeft Code = "NoTemplateLeft"
	// Budget: too many Nodes of a disruption budget are unavailable.
	Budget Code = "Budget"
	// NoController: no controller would recreate the Machine if it were deleted.
	NoController Code = "NoController"
	// ControlPlane: a control-plane Machine is not deleted.
	ControlPlane Code = "ControlPlane"
	// AlreadyRequested: the remediation that the check would request has been
	// requested.
	AlreadyRequested Code = "AlreadyRequested"
	// ControlPlaneBusy: another control-plane host is under remediation.
	ControlPlaneBusy Code = "ControlPlaneBusy"
	// QuorumUnknown: it is not known whether etcd survives the loss of this member.
	QuorumUnknown Code = "QuorumUnknown"
	// QuorumLost: etcd would lose its quorum with this member.
	QuorumLost Code = "QuorumLost"
	// Overlap: another check that covers the target is more restrictive.
	Overlap Code = "Overlap"
	// NodeAlive: Ready is Unknown but the kubelet still renews its Lease.
	NodeAlive Code = "NodeAlive"
	// LeaseTooLong: the kubelet's Lease lasts longer than fenced waits for a renewal.
	LeaseTooLong Code = "LeaseTooLong"
)

// Refusals by the daemon's guards.
const (
	// RequestFailed: the request for another remediator could not be made.
	RequestFailed Code = "RequestFailed"
	// Delegated: the check leaves the remediation to another controller.
	Delegated Code = "Delegated"
	// Observing: the cluster's mode does not let the daemon act on its own.
	Observing Code = "Observing"
	// NotOwner: another instance owns the cluster.
	NotOwner Code = "NotOwner"
	// Hold: an operator holds this target.
	Hold Code = "Hold"
	// NotSynced: the first full view of the cluster is not complete.
	NotSynced Code = "NotSynced"
	// ViewStale: the view of the cluster is too old.
	ViewStale Code = "ViewStale"
	// ClockSkew: this host's clock and the API server's differ too much.
	ClockSkew Code = "ClockSkew"
	// NoNodesVisible: the workload API shows no Node at all, or none of this cluster's.
	NoNodesVisible Code = "NoNodesVisible"
	// EverythingDown: every Node is not ready, so the daemon's own view may be
	// wrong.
	EverythingDown Code = "EverythingDown"
	// QuietPeriod: too soon after a start, a reload, an unpause or an API outage.
	QuietPeriod Code = "QuietPeriod"
	// Protected: the host is marked as never to be fenced automatically.
	Protected Code = "Protected"
	// DuplicateUUID: another Node has the same system UUID, so power would hit both.
	DuplicateUUID Code = "DuplicateUUID"
	// OwnHost: the target is the machine that this daemon runs on.
	OwnHost Code = "OwnHost"
	// Contested: another remediator is alive and would act on the same target.
	Contested Code = "Contested"
	// NoHost: no BMC is known for the target.
	NoHost Code = "NoHost"
	// SecretMissing: the BMC's credentials cannot be found.
	SecretMissing Code = "SecretMissing"
	// InvalidHost: the host's entry or BareMetalHost cannot be used.
	InvalidHost Code = "InvalidHost"
	// Frozen: the host was seen alive while its BMC said Off.
	Frozen Code = "Frozen"
	// ClassFrozen: BMCs of this model and firmware reported Off for running hosts.
	ClassFrozen Code = "ClassFrozen"
	// NotFrozen: an order would release a host that is not frozen.
	NotFrozen Code = "NotFrozen"
	// BMCFault: the BMC answers, but reports a fault that rules out a proof of Off.
	BMCFault Code = "BMCFault"
	// DuplicateHost: two hosts of the inventory lead to one BMC or one machine.
	DuplicateHost Code = "DuplicateHost"
	// AddressChanged: the BareMetalHost points to another BMC than the one recorded
	// for it, or the Machine to another BareMetalHost; or the host leads to another BMC
	// or outlet than when its run began.
	AddressChanged Code = "AddressChanged"
	// SecretShared: the BareMetalHost names the Secret of another host, and its BMC
	// was neither pinned nor enrolled.
	SecretShared Code = "SecretShared"
	// BMCShared: the BareMetalHost has another account at the BMC of another host,
	// and was neither pinned nor enrolled.
	BMCShared Code = "BMCShared"
	// NotEnrolled: nobody has enrolled the device as the one that switches this
	// host.
	NotEnrolled Code = "NotEnrolled"
	// PowerOwner: the host's owner forbids turning it off, or wants it off.
	PowerOwner Code = "PowerOwner"
	// IdentityMismatch: the BMC belongs to another machine than the Node.
	IdentityMismatch Code = "IdentityMismatch"
	// IdentityUnknown: nothing proves that BMC and Node are the same machine.
	IdentityUnknown Code = "IdentityUnknown"
	// InFlightLimit: as many runs are open in the cluster as are allowed at once.
	InFlightLimit Code = "InFlightLimit"
	// TotalInFlight: as many runs are open over all clusters as are allowed at once.
	TotalInFlight Code = "TotalInFlight"
	// StartRate: the cluster started so many runs recently that the next one waits.
	StartRate Code = "StartRate"
	// Quarantined: the host was fenced too often, so the daemon does not fence it
	// again.
	Quarantined Code = "Quarantined"
	// ZoneInFlight: as many runs are open in the zone as are allowed at once.
	ZoneInFlight Code = "ZoneInFlight"
	// ZoneBreaker: so much of the zone is not ready that the zone itself may be the
	// cause.
	ZoneBreaker Code = "ZoneBreaker"
	// PowerInterval: too soon after the last run on this host.
	PowerInterval Code = "PowerInterval"
	// DeletionLimit: as many Machines of the check are being deleted as are allowed at
	// once.
	DeletionLimit Code = "DeletionLimit"
	// DeletionRate: fenced deleted so many Machines of the cluster recently that the
	// next one waits.
	DeletionRate Code = "DeletionRate"
	// DeletionBackOff: the controller of the Machine made replacements that failed
	// before they were ever Ready.
	DeletionBackOff Code = "DeletionBackOff"
	// ReplacementStarting: the Machine replaces a deleted one, and its start-up
	// timeout runs.
	ReplacementStarting Code = "ReplacementStarting"
	// DeletionOverdue: a Machine or its Node still exists long after fenced asked for
	// the deletion.
	DeletionOverdue Code = "DeletionOverdue"
	// ReloadRefused: the files have an error, so a reload changed nothing.
	ReloadRefused Code = "ReloadRefused"
	// FilesRefused: a file of policies.d or hosts.d has an error, so a protection or a budget may be missing.
	FilesRefused Code = "FilesRefused"
	// FencesPerDay: too many runs on this host within a day.
	FencesPerDay Code = "FencesPerDay"
)

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
	// AmbiguousName: a name means more than one Node, Machine or run.
	AmbiguousName Code = "AmbiguousName"
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

// Reasons with which a run is Held, ends, or goes back to On without isolation.
// docs/six-steps.md says what each of them asks an operator to do.
const (
	// PowerForbidden: the host may not be switched off: its owner forbids it, its BMC has lied, or it is there twice.
	PowerForbidden Code = "PowerForbidden"
	// TargetChanged: fresh reads show another Node, machine, Machine, BareMetalHost or cluster than the decision was made on;
	// or a request is older than what has the name of its target now.
	TargetChanged Code = "TargetChanged"
	// Recovered: the fresh objects do not ask for the run any more.
	Recovered Code = "Recovered"
	// Withdrawn: the request or check of the run is gone or paused, or the mode does not allow the run any more.
	Withdrawn Code = "Withdrawn"
	// Aborted: a person aborted the run.
	Aborted Code = "Aborted"
	// Unfenced: a person wanted the host back.
	Unfenced Code = "Unfenced"
	// ClosedAsIs: a person ended the run and left the host as it is.
	ClosedAsIs Code = "ClosedAsIs"
	// OperatorOff: the host stays off, as was ordered.
	OperatorOff Code = "OperatorOff"
	// ConfirmedOff: the host stays off after a manual confirmation.
	ConfirmedOff Code = "ConfirmedOff"
	// FalseOff: the host lived while its BMC said Off.
	FalseOff Code = "FalseOff"
	// OutletContradicted: an outlet reads Off while a lower power level reads On.
	OutletContradicted Code = "OutletContradicted"
	// NotSaved: the store did not confirm the first record of the run.
	NotSaved Code = "NotSaved"
	// NotJudged: what the decision needs could not be read in time.
	NotJudged Code = "NotJudged"
	// PowerOffFailed: the host was not proven off in time.
	PowerOffFailed Code = "PowerOffFailed"
	// IsolationFailed: the Node could not be deleted or tainted in time.
	IsolationFailed Code = "IsolationFailed"
	// NodeStillReady: the control plane still calls the Node Ready.
	NodeStillReady Code = "NodeStillReady"
	// NodeFinalizer: a finalizer keeps the deleted Node.
	NodeFinalizer Code = "NodeFinalizer"
	// APIForbidden: the API server forbids what the step needs.
	APIForbidden Code = "APIForbidden"
	// APIUnreachable: the API server did not answer in time.
	APIUnreachable Code = "APIUnreachable"
	// PowerOnFailed: the host was not read On in time.
	PowerOnFailed Code = "PowerOnFailed"
	// RestoreFailed: labels, annotations or taints could not be restored.
	RestoreFailed Code = "RestoreFailed"
	// RequestNotCleared: the remediation request could not be taken off the Machine.
	RequestNotCleared Code = "RequestNotCleared"
	// AttemptsExhausted: the power cycles are used up.
	AttemptsExhausted Code = "AttemptsExhausted"
	// RunTimeout: the run took longer than power.runTimeout.
	RunTimeout Code = "RunTimeout"
	// FoundOff: the host was off before fenced came.
	FoundOff Code = "FoundOff"
	// NodeRenamed: the host registered as another Node.
	NodeRenamed Code = "NodeRenamed"
)
