package report

// Subject is a kind of object that an Event can be about.
type Subject string

// The subjects of Events.
const (
	Node    Subject = "Node"
	Machine Subject = "Machine"
	Check   Subject = "check" // or the request in its place
)

// Row is one line of the table of Events.
type Row struct {
	Reason  string
	Warning bool
	On      []Subject
	// Means is when the Event is written, for the documents.
	Means string
	// Like is whose reason this is: the controllers in a cluster that report the same thing
	// by this name. Empty: it is fenced's own.
	Like string
}

// The reasons of Events. Where a controller in the cluster has a name for the same thing,
// it is that name.
const (
	remediationStarted      = "RemediationStarted"
	externalAnnotationAdded = "ExternalAnnotationAdded"
	poweringOff             = "PoweringOff"
	hostPoweredOff          = "HostPoweredOff"
	nodeDeleted             = "NodeDeleted"
	addOutOfServiceTaint    = "AddOutOfServiceTaint"
	poweringOn              = "PoweringOn"
	hostPoweredOn           = "HostPoweredOn"
	nodeRegistered          = "NodeRegistered"
	remediationFinished     = "RemediationFinished"
	remediationWaiting      = "RemediationWaiting"
	remediationHeld         = "RemediationHeld"
	remediationAborted      = "RemediationAborted"
	replacingMachine        = "ReplacingMachine"
	machineDeleted          = "MachineDeleted"
	machineMarkedUnhealthy  = "MachineMarkedUnhealthy"
	machineDeletionFailed   = "MachineDeletionFailed"
	actionFailed            = "ActionFailed"
	skippedNoController     = "SkippedNoController"
	remediationSkipped      = "RemediationSkipped"
	remediationRestricted   = "RemediationRestricted"
	remediationAllowed      = "RemediationAllowed"
	checkDisabled           = "Disabled"
	checkEnabled            = "Enabled"
)

// Names of those whose reasons these are.
const (
	openShift  = "OpenShift's MachineHealthCheck"
	clusterAPI = "the Cluster API's MachineHealthCheck"
	bothChecks = "both kinds of MachineHealthCheck"
	nodeCheck  = "medik8s' NodeHealthCheck"
	medik8s    = "medik8s' remediators"
)

var (
	onTarget = []Subject{Node, Machine}
	onAll    = []Subject{Node, Machine, Check}
)

// Table lists every Event that fenced writes, in the order of a run. The table of
// docs/kubernetes-events.md is made from it.
func Table() []Row {
	return []Row{
		{remediationStarted, false, onAll, "a run began; the message says why", medik8s},
		{externalAnnotationAdded, false, []Subject{Machine}, "in place of `RemediationStarted` on a Machine of OpenShift whose MachineHealthCheck asked for a power cycle: its controller uses this name at this moment. fenced adds no annotation for it", openShift},
		{poweringOff, false, onTarget, "step 1 began again: another attempt or another power level", ""},
		{hostPoweredOff, false, onTarget, "the host is off; the message says what proved it", ""},
		{nodeDeleted, false, onTarget, "the Node is gone: its pods and volumes may move", ""},
		{addOutOfServiceTaint, false, onTarget, "the Node has the out-of-service taint: its pods and volumes may move", medik8s},
		{poweringOn, false, onTarget, "fenced switches the host on again: another power level, another try, or a run that gives the host back without isolating its Node", ""},
		{hostPoweredOn, false, onTarget, "the host is on", ""},
		{nodeRegistered, false, onTarget, "the host has booted and its Node has registered; fenced restores the Node", ""},
		{remediationFinished, false, onAll, "the run is Done: the Node is restored and Ready", medik8s},
		{remediationWaiting, true, onAll, "the run waits for a reason that may heal, and goes on by itself", ""},
		{remediationHeld, true, onAll, "the run is Held: a person must act", ""},
		{remediationAborted, true, onAll, "the run ended without a remediation", ""},
		{replacingMachine, false, onTarget, "step 6: the Machine is to be replaced", ""},
		{machineDeleted, false, onAll, "the Machine is deleted or being deleted, for its owner to replace it", openShift},
		{machineMarkedUnhealthy, false, onAll, "a Machine of the Cluster API was handed over to its owner", clusterAPI},
		{machineDeletionFailed, true, onTarget, "the Machine could not be deleted or handed over; fenced tries again", openShift},
		{actionFailed, true, onTarget, "another action of a run failed; fenced tries again", ""},
		{skippedNoController, false, onTarget, "a check wants the Machine replaced, and no controller would recreate it", openShift},
		{remediationSkipped, true, onTarget, "a check wants the target remediated, and its limit or a gate forbids it; the message begins with the [reason code](reasons.md)", medik8s},
		{remediationRestricted, true, []Subject{Check}, "the limit of the check began to forbid remediation, or was found closed at the start", bothChecks},
		{remediationAllowed, false, []Subject{Check}, "the limit of the check allows remediation again", ""},
		{checkDisabled, true, []Subject{Check}, "the check is Paused, Disabled or Invalid: it protects no target", nodeCheck},
		{checkEnabled, false, []Subject{Check}, "the check is Active again", nodeCheck},
	}
}

// rows is the Table by reason.
var rows = func() map[string]Row {
	all := map[string]Row{}
	for _, r := range Table() {
		all[r.Reason] = r
	}
	return all
}()
