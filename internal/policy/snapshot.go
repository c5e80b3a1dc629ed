package policy

import "time"

// Snapshot is the input of Decide, which does not modify it. Snapshots may share
// values.
type Snapshot struct {
	Checks   []Check
	Budgets  []DisruptionBudget
	Machines []Machine
	// Nodes is keyed by name.
	Nodes map[string]*Node
	// Leases is keyed by Node name.
	Leases map[string]Lease
	// NodeLocks are medik8s' Leases on Nodes, by the name of the Node. Only for saved objects: the
	// daemon reads them past the cache.
	NodeLocks map[string]NodeLock
	Hosts     []Host
	// Clusters are the Cluster API's Cluster objects.
	Clusters []Cluster
	// Requests are the existing remediation requests.
	Requests []Request
	// Pods are those of the control plane.
	Pods []Pod
	// Upgrading describes the upgrade of the cluster; "" if there is none.
	Upgrading string
	// OpenRuns are the runs that have not ended.
	OpenRuns []OpenRun
	// ReadsOff names the Nodes whose BMC has just been read Off twice.
	ReadsOff map[string]bool
	// Rules are the administrator's settings for all checks.
	Rules Rules
	// Errors are the objects that could not be decoded.
	Errors []ObjectError
	// Undecoded holds the keys of those objects, so that none is ever treated as
	// absent. An empty Name or Kind stands for any.
	Undecoded []ObjectKey
}

// Rules are an administrator's settings for all checks of a cluster. The zero
// value is the strictest.
type Rules struct {
	// ControlPlaneNever: no control-plane host is ever power-cycled.
	ControlPlaneNever bool
	// ExternalEtcd: etcd does not run on the control-plane Nodes.
	ExternalEtcd bool
	// NodesCountAsMembers: if there is no etcd Pod, a Ready control-plane Node
	// counts as a healthy member. Only for saved objects, never for a live cluster.
	NodesCountAsMembers bool
	// DeleteControlPlaneMachines allows the deletion of a control-plane Machine if
	// a controller that recreates it owns it.
	DeleteControlPlaneMachines bool
	// MachineFailureReason: a Machine of the Cluster API that reports a terminal
	// failure is unhealthy at once, as in the Cluster API before v1.11.
	MachineFailureReason bool
	// WaitForUpgrade: checks of every kind wait for an upgrade of the cluster, not
	// only NodeHealthChecks.
	WaitForUpgrade bool
	// ClusterRequired: a Cluster API check without its Cluster object is not
	// evaluated. Saved objects may lack it.
	ClusterRequired bool
	// Instance is this daemon's name in the annotation fenced.io/evaluator; empty
	// accepts any.
	Instance string
	// ZoneKey is the label that holds the zone of a Node.
	ZoneKey string
	// MaxChecks is how many checks of a namespace are evaluated. 0 means 1000.
	MaxChecks int
	// MaxTargets is how many targets all checks of a namespace may have together. With
	// more, none of them is evaluated. 0 means 100,000, and half a million without a namespace.
	MaxTargets int
	// TargetLimitPause is how long they wait once they have fewer.
	TargetLimitPause time.Duration
	// Namespaces are those in which the administrator says that the Machines of the cluster are, and
	// ManagementNamespace is the one of the Cluster API's; both may be empty. A Machine there owns the
	// Node that it names; any other one only if the Node names it.
	Namespaces          []string
	ManagementNamespace string
	// TrustNames: every Machine owns the Node that it names. Only for saved objects, which
	// may lack the annotations of the Nodes, never for a live cluster.
	TrustNames bool
	// HostsUnpinned: nothing but the BareMetalHosts themselves says which of two that lead to one BMC is
	// right. Only for saved objects, never for a live cluster, which has hosts.d and pins.
	HostsUnpinned bool
	// RequestNamespaces are those whose remediation requests may be for any Node that they
	// name, whoever made them.
	RequestNamespaces []string
	// ManagementApart: the Machines of the Cluster API are on a management API of their own.
	ManagementApart bool
}

// OpenRun is a run that has not ended; it may lack a Machine or a Node.
type OpenRun struct {
	ID      string
	Machine string // "namespace/name"
	// MachineAPI is the apiVersion of the Machine; "" if it is not known: of what another remediator was asked, and whose
	// record cannot be read, only the key tells the target. // I22
	MachineAPI string
	Node       string
	// ControlPlane: the run concerns a control-plane host. Its Machine and its Node
	// may be gone.
	ControlPlane bool
	// TakesNoTurn: no other control-plane host waits for the run.
	TakesNoTurn bool
	// SystemUUID is that of the Node when the run began; "" if it is not known.
	SystemUUID string
	// NodeLabels are those that the Node had when the run began; nil if they are not known.
	NodeLabels map[string]string
	// NodeNames are those that the Node named when the run began; empty if they are not known.
	NodeNames NodeNames
}

// Cluster is what policy needs of a cluster.x-k8s.io Cluster. A time is zero if
// its condition does not hold.
type Cluster struct {
	Namespace, Name          string
	Paused                   bool
	ControlPlaneInitialized  bool
	ControlPlaneSince        time.Time
	InfrastructureReady      bool
	InfrastructureReadySince time.Time
}

// Request is a remediation request: an object that asks a remediator to repair
// one target.
type Request struct {
	APIVersion, Kind, Namespace, Name string
	// Owners are all its owners.
	Owners []Owner
	// NodeName is the Node of a medik8s request; empty for the others.
	NodeName string
	// TemplateName is the template that it was made from; "" if it does not say.
	TemplateName string
	Created      time.Time
	// ControlPlane: the request is for a control-plane Node.
	ControlPlane bool
	// TimedOut is when its check gave up on it; zero if it did not.
	TimedOut time.Time
	// HealthyDelaySince is when the check started to wait after the recovery.
	HealthyDelaySince time.Time
	// Conditions are its status conditions.
	Conditions []Condition
	// Check is the mark of the check for which fenced made it, and MadeBy says which
	// installation made it for which cluster and on which record; both are empty for the
	// requests of others.
	Check, MadeBy string
	// Begun: a remediator has noticed it. It has a status or a finalizer.
	Begun bool
	// Finalizer: it has one, so it goes only when its remediator lets it go.
	Finalizer bool
	// OnManagementAPI: the request is on a separate management API. Its name says
	// nothing about Nodes there.
	OnManagementAPI bool
	UID             string
	// Generation counts the changes of its spec.
	Generation int64
	Deleting   bool
	// Power is what a FencedRemediation asks for; nil for requests of other kinds.
	Power *PowerRequest
}

// PowerRequest is the spec of a FencedRemediation.
type PowerRequest struct {
	// Attempts is how many power cycles it allows; 0 leaves that to the configuration.
	Attempts int
	// Timeout is how long after its creation a run must have begun; 0 is for ever.
	Timeout time.Duration
	// ReadyNodes: a Node that is Ready is power-cycled, too.
	ReadyNodes bool
	// HasFinalizer: it has the finalizer of fenced, which this installation set for this cluster.
	// FinalizerElsewhere: somebody else set it, or nobody knows who.
	HasFinalizer, FinalizerElsewhere bool
	// HeldBy says who set the finalizer, and is another text for each run. HeldFor is the ID of the run, and
	// HeldMachine the system UUID of the machine that it may have switched off; "" in older finalizers.
	HeldBy, HeldFor, HeldMachine string
	// Phase and Run are what it was told last; "" if nothing.
	Phase, Run string
}

// The phases in which a request stays for ever: nothing more is done, or no run will begin any
// more.
const (
	PhaseSucceeded = "Succeeded"
	PhaseFailed    = "Failed"
)

// Answered reports whether the request was told that nothing more will be done. A later failure of
// the same Node needs a request of its own. // I4
func (p *PowerRequest) Answered() bool { return p.Phase == PhaseSucceeded || p.Phase == PhaseFailed }

// ObjectKey names one object.
type ObjectKey struct {
	Kind, Namespace, Name string
	// Group is the API group of a Machine: both families have the kind, and one may be on another
	// API server. It is empty for all other kinds.
	Group string
}

// ObjectError is an object that was not evaluated, and why.
type ObjectError struct {
	Object  string `json:"object"`
	Message string `json:"message"`
}

// Machine is what policy needs of a Machine of either API family.
type Machine struct {
	// APIVersion tells the API family.
	APIVersion           string
	Namespace, Name, UID string
	Labels, Annotations  map[string]string

	Phase    string
	Deleting bool
	// NodeName is status.nodeRef.name; empty while no Node has joined. NodeUID is
	// status.nodeRef.uid; empty if the reference has none.
	NodeName, NodeUID string
	// Created is the creation time.
	Created time.Time
	// LastUpdated is the last status write, from which OpenShift counts the
	// start-up timeout.
	LastUpdated time.Time
	ProviderID  string
	// ControllerOwner is the owner that recreates the Machine.
	ControllerOwner Owner
	ControlPlane    bool
	// ExternalRemediationRequested: the Machine carries the annotation
	// host.metal3.io/external-remediation.
	ExternalRemediationRequested bool

	// Suspended says why OpenShift's controllers leave the Machine alone: the Cluster
	// API is authoritative for it, or it is paused. Empty if they act on it.
	// Authoritative: its status says that OpenShift's API is. A cluster without copies of
	// its Machines in the Cluster API does not say.
	Suspended     string
	Authoritative bool

	// ClusterName is the value of the Cluster API's cluster label.
	ClusterName string
	// Infrastructure is the Cluster API's infrastructure Machine, in the namespace of the
	// Machine. Its Kind is "Kind.group".
	Infrastructure InfrastructureRef
	// Failure is the Cluster API's failureReason and failureMessage; empty if it
	// reports no terminal failure.
	Failure string
	// Conditions are the Cluster API's, in the format of v1beta2.
	Conditions []Condition
	// InfrastructureReadySince is when its infrastructure became ready; zero if it
	// is not ready.
	InfrastructureReadySince time.Time
	// OwnerRemediated is the status of that condition; empty if it is absent.
	OwnerRemediated string
	// Paused, SkipRemediation and RemediateRequested report whether the Cluster
	// API's annotations exist, whatever their values.
	Paused, SkipRemediation, RemediateRequested bool
}

// Group is the API group of the Machine.
func (m *Machine) Group() string { return group(m.APIVersion) }

// Key is "namespace/name".
func (m *Machine) Key() string { return key(m.Namespace, m.Name) }

// InfrastructureRef names an infrastructure Machine.
type InfrastructureRef struct{ Kind, Name string }

// Owner is an owner reference; the zero value means none.
type Owner struct {
	Kind, Name, UID string
}

// Node is what policy and the guards need of a Node.
type Node struct {
	Name, UID   string
	Created     time.Time
	Labels      Labels
	Annotations map[string]string
	Conditions  Conditions
	Deleting    bool
	ProviderID  string
	// OpenShiftMachine and ClusterMachine are what NamedMachines returns.
	OpenShiftMachine, ClusterMachine string
	SystemUUID                       string
	BootID                           string
	MachineID                        string
	Addresses                        []string
	// ControlPlane: its labels say so or, in the view, the Pods on it. fromPod: only those do.
	ControlPlane, fromPod bool
	// unlabelled: it does not exist, and nobody knows its labels; see targetNode.
	unlabelled bool
}

// Ready reports whether the Node's Ready condition is True.
func (n *Node) Ready() bool {
	c, ok := n.Condition("Ready")
	return ok && c.Status == "True"
}

// KubeletReporting reports whether Ready is True or False, not Unknown: the
// control plane heard from the kubelet within its grace period.
func (n *Node) KubeletReporting() bool {
	if n == nil {
		return false
	}
	c, ok := n.Condition("Ready")
	return ok && c.Status != "Unknown"
}

// Condition returns the condition of a type.
func (n *Node) Condition(kind string) (Condition, bool) {
	for c := range n.Conditions.All() {
		if c.Type == kind {
			return c, true
		}
	}
	return Condition{}, false
}

// The times that others write are kept between these two. Times beyond the years 0 to 9999 are no JSON, so that one of them, or
// its sum with a timeout, would keep a run from being saved and an answer from being given.
var (
	earliestTime = time.Time{}.Add(time.Second) // the zero time means that there is none
	latestTime   = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Bounded is a time that others wrote, with which one can go on. All times before or after the bounds
// lead to the same decisions as they do.
func Bounded(t time.Time) time.Time {
	switch {
	case t.IsZero():
	case t.Before(earliestTime):
		return earliestTime
	case t.After(latestTime):
		return latestTime
	}
	return t
}

// Lease is the heartbeat of one kubelet.
type Lease struct {
	RenewTime time.Time // by the clock of whoever wrote it
	// Since is when this version of the Lease was first read, and Before when an earlier one was
	// last read, by the clock of the reader; zero: it is not known.
	Since, Before time.Time
	// Duration is leaseDurationSeconds; zero where the Lease does not say.
	Duration time.Duration
}

// Host is what policy and the engine need of a BareMetalHost.
type Host struct {
	Namespace, Name, UID string
	// OnManagementAPI: the host is on a separate management API, which holds no
	// Machines of OpenShift.
	OnManagementAPI bool
	Address         string
	CredentialsName string
	// DisableCertificateVerification skips TLS verification of the BMC.
	DisableCertificateVerification bool
	// DisablePowerOff: the host's owner forbids turning it off.
	DisablePowerOff       bool
	Online                bool
	ExternallyProvisioned bool
	// ConsumerRef is the "namespace/name" of the Machine on this host. ConsumerKind is its
	// "Kind.group"; empty if the reference does not say both.
	ConsumerRef, ConsumerKind string
	// State is status.provisioning.state.
	State string
	// Annotations holds the keys that concern power: reboot.*, detached, paused.
	Annotations map[string]string
	// Serial and MACs come from the hardware inspection and the inventory. They are
	// the second factor of the host's identity. // I8
	Serial string
	MACs   []string
	// NICs are those of the MACs that the inspection found.
	NICs []string
}

// Key is "namespace/name".
func (h *Host) Key() string { return key(h.Namespace, h.Name) }
