package api

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Status is what fenced is and does at this moment.
type Status struct {
	Version      string          `json:"version"`
	LogLevel     string          `json:"logLevel,omitempty"` // of now: debug, info, warn or error
	Armed        bool            `json:"armed"`
	Paused       bool            `json:"paused"`
	PausedReason string          `json:"pausedReason"`
	Clusters     []ClusterStatus `json:"clusters"`
	Runs         []RunStatus     `json:"runs"` // open runs only, Waiting and Held ones too
	// Blocked are the targets that a check wants remediated, and the Waiting runs, that something
	// forbids now; BlockedMore is how many more there are.
	Blocked     []Blocked `json:"blocked"`
	BlockedMore int       `json:"blockedMore,omitempty"`
	// BMCs counts the devices that switch the hosts' power.
	BMCs BMCCount `json:"bmcs"`
	// Audit is set while the audit log cannot be written.
	Audit *AuditStatus `json:"audit,omitempty"`
}

// AuditStatus is since when, and why, the audit log cannot be written. fenced does
// nothing destructive then.
type AuditStatus struct {
	Problem string    `json:"problem"`
	Since   time.Time `json:"since"`
	Missing uint64    `json:"missing"` // entries that it lacks since the start of the daemon
}

// ClusterStatus is one cluster as fenced sees it.
type ClusterStatus struct {
	Name           string  `json:"name"`
	Mode           string  `json:"mode"`
	Armed          bool    `json:"armed"`               // fenced acts here without orders from people
	Owner          bool    `json:"owner"`               // this instance may act on it
	OwnerName      string  `json:"ownerName,omitempty"` // which one may; "" = none
	Epoch          uint64  `json:"epoch"`               // grows with each change of owners
	ViewAgeSeconds float64 `json:"viewAgeSeconds"`
	// Problem is why nothing is decided for this cluster although it is armed:
	// a stale view, another installation of fenced, no owner. Empty means none.
	Problem string `json:"problem,omitempty"`
	// Aside is why this instance leaves the cluster to the others, and to whom: its own host is
	// to be fenced. Empty means that it does not.
	Aside        string        `json:"aside,omitempty"`
	Paused       bool          `json:"paused,omitempty"`
	PausedReason string        `json:"pausedReason,omitempty"`
	Nodes        int           `json:"nodes"`
	Checks       []CheckStatus `json:"checks"`
	ChecksMore   int           `json:"checksMore,omitempty"` // how many more there are
	// DeletionsInProgress and DeletionsOverdue count the Machines that fenced deleted and that
	// still exist, or whose Nodes do: within guards.deletionTimeout, and for longer.
	DeletionsInProgress int `json:"deletionsInProgress,omitempty"`
	DeletionsOverdue    int `json:"deletionsOverdue,omitempty"`
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
	// Reason and Limit say why the limit forbids remediation, while it does: ShortCircuit or
	// OutOfRange, and how many may be unhealthy.
	Reason string `json:"reason,omitempty"`
	Limit  string `json:"limit,omitempty"`
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

// Explanation is why a node is, or is not, fenced now: the gates in the order
// in which they are asked.
type Explanation struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`              // empty if the Machine has none
	Machine string `json:"machine,omitempty"` // namespace/name, if it was asked for
	Verdict string `json:"verdict"`
	// Refused is the reason code of the first gate that does not pass.
	Refused string `json:"refused"`
	Class   string `json:"class,omitempty"` // of Refused: transient, mended or person
	Message string `json:"message"`
	// Earliest is when it could be fenced if nothing else changes.
	Earliest time.Time     `json:"earliest,omitzero"`
	Run      *RunRecord    `json:"run,omitempty"` // the open run, if there is one
	Gates    []reason.Gate `json:"gates"`
}

// Event is one thing that happened, in the order it happened.
type Event struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	Machine string    `json:"machine,omitempty"` // namespace/name, of a target without a Node
	Run     string    `json:"run,omitempty"`
	Type    string    `json:"type"`
	Step    string    `json:"step,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}
