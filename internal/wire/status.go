package wire

import (
	"time"
)

// Status is what fenced is and does at this moment.
type Status struct {
	Version      string          `json:"version"`
	LogLevel     string          `json:"logLevel,omitempty"` // of now: debug, info, warn or error
	Armed        bool            `json:"armed"`
	Paused       bool            `json:"paused"`
	PausedReason string          `json:"pausedReason"`
	PausedNext   string          `json:"pausedNext,omitempty"` // the command that ends the pause
	Clusters     []ClusterStatus `json:"clusters"`
	Runs         []RunStatus     `json:"runs"` // open runs only, Waiting and Held ones too
	// Blocked are the targets that a check wants remediated, and the Waiting runs, that something
	// forbids now; BlockedMore is how many more there are.
	Blocked     []Blocked `json:"blocked"`
	BlockedMore int       `json:"blockedMore,omitempty"`
	// Recent are the newest runs that ended in the last 24 hours, newest first; RecentMore is how many more there are.
	Recent     []RecentRun `json:"recent,omitempty"`
	RecentMore int         `json:"recentMore,omitempty"`
	// BMCs counts the devices that switch the hosts' power.
	BMCs BMCCount `json:"bmcs"`
	// Audit is set while the audit log cannot be written.
	Audit *AuditStatus `json:"audit,omitempty"`
	// Reload is set while the daemon does not run what its files say, because the last reload was refused.
	Reload *ReloadStatus `json:"reload,omitempty"`
}

// ReloadStatus is since when the files are refused, and why. fenced goes on with what it had before.
type ReloadStatus struct {
	Problem string    `json:"problem"` // with file and line, where it is one of a file
	Since   time.Time `json:"since"`
	// Restart is what would become of a restart with these files; empty if it would take them in.
	Restart string `json:"restart,omitempty"`
	Next    string `json:"next"`
}

// AuditStatus is since when, and why, the audit log cannot be written. fenced does
// nothing destructive then.
type AuditStatus struct {
	Problem string    `json:"problem"`
	Since   time.Time `json:"since"`
	Missing uint64    `json:"missing"` // entries that it lacks since the start of the daemon
	Next    string    `json:"next,omitempty"`
}

// ClusterStatus is one cluster as fenced sees it.
type ClusterStatus struct {
	Name      string `json:"name"`
	Mode      string `json:"mode"`
	Armed     bool   `json:"armed"`               // fenced acts here without orders from people
	Owner     bool   `json:"owner"`               // this instance may act on it
	OwnerName string `json:"ownerName,omitempty"` // which one may; "" = none
	Epoch     uint64 `json:"epoch"`               // grows with each change of owners
	// HeldBy is which other installation of fenced holds the Lease of the cluster, so that this one may not act. Absent
	// if none does.
	HeldBy         string  `json:"heldBy,omitempty"`
	ViewAgeSeconds float64 `json:"viewAgeSeconds"`
	// Problem is why nothing is decided for this cluster although it is armed:
	// a stale view, another installation of fenced, no owner. Empty means none.
	Problem string `json:"problem,omitempty"`
	// ProblemReason is the code of Problem, if it has one; Next is what a person can do about it.
	ProblemReason string `json:"problemReason,omitempty"`
	Next          string `json:"next,omitempty"`
	// Aside is why this instance leaves the cluster to the others, and to whom: its own host is
	// to be fenced. Empty means that it does not.
	Aside        string `json:"aside,omitempty"`
	Paused       bool   `json:"paused,omitempty"`
	PausedReason string `json:"pausedReason,omitempty"`
	PausedNext   string `json:"pausedNext,omitempty"` // the command that ends the pause
	// FilesRefused says why nothing begins: a file of policies.d or hosts.d has an error. It names the file and the line.
	FilesRefused string        `json:"filesRefused,omitempty"`
	Nodes        int           `json:"nodes"`
	Checks       []CheckStatus `json:"checks"`
	ChecksMore   int           `json:"checksMore,omitempty"` // how many more there are
	// DeletionsInProgress and DeletionsOverdue count the Machines that fenced deleted and that
	// still exist, or whose Nodes do: within guards.deletionTimeout, and for longer.
	DeletionsInProgress int `json:"deletionsInProgress,omitempty"`
	DeletionsOverdue    int `json:"deletionsOverdue,omitempty"`
	// Cover counts the Nodes that checks cover, and says which of them could not be fenced. It is absent
	// while the Nodes, or the BMCs, are not known.
	Cover *NodeCover `json:"cover,omitempty"`
	// Hint is what a person should change in the configuration. Empty means nothing.
	Hint string `json:"hint,omitempty"`
	// Deviating are the targets that are not plainly healthy; DeviatingMore is how many more there are.
	// Lists that are too long are cut to equal shares of the namespaces.
	Deviating     []TargetStatus `json:"deviating"`
	DeviatingMore int            `json:"deviatingMore,omitempty"`
	// Holds are the Nodes that are not fenced for now, whatever they are like.
	Holds []HoldStatus `json:"holds,omitempty"`
	// Requests are the oldest open remediation requests that others made; RequestsMore is how many
	// more there are.
	Requests     []RequestStatus `json:"requests,omitempty"`
	RequestsMore int             `json:"requestsMore,omitempty"`
}

// CheckStatus is one health check: its counts and whether its limit allows
// remediation.
type CheckStatus struct {
	Kind                string `json:"kind"`
	Namespace           string `json:"namespace"`
	Name                string `json:"name"`
	State               string `json:"state,omitempty"` // Active, Paused, Disabled, Invalid
	Message             string `json:"message,omitempty"`
	Expected            int    `json:"expected"`
	Healthy             int    `json:"healthy"`
	Allowed             bool   `json:"allowed"`
	RemediationsAllowed int    `json:"remediationsAllowed"`
	// SelectsNothing: it is active, and no target matches its selector.
	SelectsNothing bool `json:"selectsNothing,omitempty"`
	// UnknownCondition says that a rule names a condition that no Node has, and which one was probably meant.
	UnknownCondition string `json:"unknownCondition,omitempty"`
	// Reason and Limit say why the limit forbids remediation, while it does: ShortCircuit or
	// OutOfRange, and how many may be unhealthy.
	Reason string `json:"reason,omitempty"`
	Limit  string `json:"limit,omitempty"`
	// LimitIsZero says that the limit is a percentage of too few targets, so that the check remediates nothing.
	LimitIsZero string `json:"limitIsZero,omitempty"`
}

// TargetStatus is one target that deviates, and why.
type TargetStatus struct {
	Node    string    `json:"node"`
	Machine string    `json:"machine"`
	Check   string    `json:"check,omitempty"` // kind and name
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// HoldStatus is a Node that is not fenced: a person holds it, or the daemon keeps off
// a host that was fenced again and again.
type HoldStatus struct {
	Node       string    `json:"node"`              // empty if a Machine is held
	Machine    string    `json:"machine,omitempty"` // namespace/name
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until,omitzero"` // absent = until it is released
	Quarantine bool      `json:"quarantine,omitempty"`
	// Selector has the labels if the order was about all Nodes that have them.
	Selector string `json:"selector,omitempty"`
}

// RequestStatus is one remediation request for which something is left to do.
type RequestStatus struct {
	Kind      string `json:"kind"` // FencedRemediation, Metal3Remediation, or Machine for one that is annotated
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`    // of its target
	Machine   string `json:"machine,omitempty"` // namespace/name
	Phase     string `json:"phase"`             // Pending, Running or Held; Succeeded or Failed while only its finalizer is left
	Run       string `json:"run,omitempty"`     // the run that it is told about
	// Reason and Message say what refuses a pending one, or where the run of another is.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Finalizer: fenced holds it.
	Finalizer bool `json:"finalizer,omitempty"`
}

// Blocked is a target that a check wants remediated, or a Waiting run, and what forbids it now.
type Blocked struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Machine string `json:"machine"`       // namespace/name
	Check   string `json:"check"`         // kind and name; empty for a run that a person ordered
	Run     string `json:"run,omitempty"` // of a Waiting run
	Reason  string `json:"reason"`
	Class   string `json:"class,omitempty"` // of the reason: transient, mended or person
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // what a person can do about it
	// Since is since when that is the reason.
	Since time.Time `json:"since,omitzero"`
	// NextTry is when fenced asks again; absent: when what forbids it has changed.
	NextTry time.Time `json:"nextTry,omitzero"`
}
