package policy

import "time"

// Snapshot is everything Decide looks at. It is read, never written; values
// may be shared between snapshots.
type Snapshot struct {
	Checks   []Check
	Machines []Machine
	// Nodes is keyed by name.
	Nodes map[string]*Node
	// Leases is keyed by Node name.
	Leases map[string]Lease
	Hosts  []Host
	// OpenRuns maps a Machine's "namespace/name" to the run that is open on it.
	OpenRuns map[string]string
	// Requests are the remediation requests that exist already.
	Requests []ObjectKey
	// Errors are the objects that could not be decoded.
	Errors []ObjectError
	// Undecoded holds the keys of those objects, so that none is ever taken for
	// absent. An empty Name or Kind stands for any.
	Undecoded []ObjectKey
}

// ObjectKey names one object.
type ObjectKey struct {
	Kind, Namespace, Name string
}

// ObjectError is an object that was not judged, and why.
type ObjectError struct {
	Object  string `json:"object"`
	Message string `json:"message"`
}

// Machine is what policy needs of a machine.openshift.io Machine.
type Machine struct {
	Namespace, Name      string
	UID, ResourceVersion string
	Labels               map[string]string
	Annotations          map[string]string

	Phase    string
	Deleting bool
	// NodeName is status.nodeRef.name; empty while no Node has joined.
	NodeName string
	// LastUpdated is the last status write, the clock of the start-up check.
	LastUpdated time.Time
	ProviderID  string
	// ControllerOwner is the owner that recreates the Machine.
	ControllerOwner Owner
	ControlPlane    bool
	// ExternalRemediationRequested: the Machine carries the annotation
	// host.metal3.io/external-remediation.
	ExternalRemediationRequested bool
}

// Key is "namespace/name".
func (m *Machine) Key() string { return key(m.Namespace, m.Name) }

// Owner is a controller owner reference; the zero value is none.
type Owner struct {
	Kind, Name, UID string
}

// Node is what policy and the guards need of a Node.
type Node struct {
	Name                 string
	UID, ResourceVersion string
	Labels, Annotations  map[string]string
	Conditions           []Condition
	Taints               []Taint
	Unschedulable        bool
	Deleting             bool
	ProviderID           string
	SystemUUID           string
	BootID               string
	MachineID            string
	Addresses            []string
	ControlPlane         bool
}

// Ready says whether the Node's Ready condition is True.
func (n *Node) Ready() bool {
	c, ok := n.condition("Ready")
	return ok && c.Status == "True"
}

func (n *Node) condition(kind string) (Condition, bool) {
	for _, c := range n.Conditions {
		if c.Type == kind {
			return c, true
		}
	}
	return Condition{}, false
}

// Condition is one condition of a Node. A zero LastTransition is taken for
// infinitely old, as the lineages do.
type Condition struct {
	Type, Status   string
	LastTransition time.Time
}

// Taint is one taint of a Node.
type Taint struct {
	Key, Value, Effect string
}

// Lease is the heartbeat of one kubelet.
type Lease struct {
	ResourceVersion string
	RenewTime       time.Time
}

// Host is what policy and the engine need of a BareMetalHost.
type Host struct {
	Namespace, Name, UID string
	Address              string
	CredentialsName      string
	// DisableCertificateVerification skips TLS verification of the BMC.
	DisableCertificateVerification bool
	// DisablePowerOff: the host's owner forbids turning it off.
	DisablePowerOff       bool
	Online                bool
	ExternallyProvisioned bool
	// ConsumerRef is the "namespace/name" of the Machine on this host.
	ConsumerRef       string
	PoweredOn         bool
	ProvisioningState string
	// Annotations holds the keys that concern power: reboot.*, detached, paused.
	Annotations map[string]string
}

// Key is "namespace/name".
func (h *Host) Key() string { return key(h.Namespace, h.Name) }

// ControlPlaneNode says whether a Node with these labels is a control-plane
// member.
func ControlPlaneNode(labels map[string]string) bool {
	_, master := labels["node-role.kubernetes.io/master"]
	_, controlPlane := labels["node-role.kubernetes.io/control-plane"]
	return master || controlPlane
}

// ControlPlaneMachine says whether a Machine with these labels and this owner
// carries a control-plane member.
func ControlPlaneMachine(labels map[string]string, owner Owner) bool {
	switch labels["machine.openshift.io/cluster-api-machine-role"] {
	case "master", "control-plane":
		return true
	}
	return owner.Kind == "ControlPlaneMachineSet"
}
