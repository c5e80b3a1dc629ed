package wire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// BMCs is what is known about the devices that switch the hosts' power.
type BMCs struct {
	BMCs []BMC `json:"bmcs"`
}

// BMCFilter says which devices are asked for: all, if it is empty.
type BMCFilter struct {
	Cluster      string
	Of           string // a Node, or the "namespace/name" of a Machine
	Undependable bool   // only those that a fence could not rely on
}

// Wants reports whether a device of the cluster is asked for.
func (f BMCFilter) Wants(d *BMC) bool {
	return (f.Of == "" || d.Node == f.Of || d.Machine == f.Of) && (!f.Undependable || d.Undependable())
}

// BMC is one device: a BMC, or an outlet.
type BMC struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`              // empty for a host that no Node uses
	Machine string `json:"machine,omitempty"` // namespace/name
	Host    string `json:"host,omitempty"`    // its key in the inventory; empty when the entry cannot be used
	Source  string `json:"source,omitempty"`  // where the entry stands
	Level   int    `json:"level"`             // from 1; 0 when the entry cannot be used
	Device  string `json:"device,omitempty"`  // its address, without any secret
	Driver  string `json:"driver,omitempty"`
	// Assurance is strict, or lower for a driver that cannot refuse forged answers.
	Assurance string `json:"assurance,omitempty"`

	// State is what the newest look came to: ok, failed, mismatch (another machine
	// answers), unproven (nothing tells whose it is) or unchecked.
	State string `json:"state"`
	// Dependable is false when a fence would likely fail here.
	Dependable bool   `json:"dependable"`
	Reason     string `json:"reason,omitempty"` // the code of why the newest look failed
	Problem    string `json:"problem,omitempty"`
	// User and PasswordFrom are the account that the device refuses, and where its password stands: a file, a
	// credential of systemd, a Secret of the cluster. Absent unless it refuses one.
	User         string `json:"user,omitempty"`
	PasswordFrom string `json:"passwordFrom,omitempty"`
	Power        string `json:"power"`              // On, Off or Unknown
	PowerRaw     string `json:"powerRaw,omitempty"` // as the device wrote it
	Identity     string `json:"identity"`           // match, mismatch, unknown, "not enrolled", or empty
	UUID         string `json:"uuid,omitempty"`     // as the device tells it
	Serial       string `json:"serial,omitempty"`

	LatencySeconds    float64   `json:"latencySeconds,omitempty"` // of the newest good look
	LatencyP95Seconds float64   `json:"latencyP95Seconds,omitempty"`
	Checked           time.Time `json:"checked,omitzero"`
	LastGood          time.Time `json:"lastGood,omitzero"`
	Next              time.Time `json:"next,omitzero"`
	Failures          int       `json:"failures"` // in a row

	Manufacturer     string       `json:"manufacturer,omitempty"`
	Model            string       `json:"model,omitempty"`
	Firmware         string       `json:"firmware,omitempty"`
	MACs             []string     `json:"macs,omitempty"`
	RestorePolicy    string       `json:"restorePolicy,omitempty"`
	CertificateUntil time.Time    `json:"certificateUntil,omitzero"`
	PowerEvents      []PowerEvent `json:"powerEvents,omitempty"` // of the BMC's log, oldest first
	// DescribeProblem is why it could not be asked what it is; what is told of that
	// is older, or missing.
	DescribeProblem string `json:"describeProblem,omitempty"`

	Findings []BMCFinding `json:"findings"`
	Audited  time.Time    `json:"audited,omitzero"`
	// AuditProblem is why the newest audit could not be finished.
	AuditProblem string `json:"auditProblem,omitempty"`
	// Refused is why fenced would not fence the host at all, whatever its BMC says.
	Refused []BMCFinding `json:"refused,omitempty"`
}

// PowerEvent is one entry about power in a BMC's log.
type PowerEvent struct {
	At   time.Time `json:"at,omitzero"` // by the BMC's clock
	Text string    `json:"text"`
}

// BMCFinding is one weakness of a device, or one refusal of its host.
type BMCFinding struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Undependable counts the devices that a fence could not rely on, and those of
// hosts that are refused until a person does something. The own host, and one that
// is protected, are refused for good.
func (b BMCs) Undependable() (n int) {
	for i := range b.BMCs {
		if b.BMCs[i].Undependable() {
			n++
		}
	}
	return n
}

// Undependable reports whether a fence could not rely on the device, or its host is refused until
// a person does something.
func (b *BMC) Undependable() bool {
	return !b.Dependable || slices.ContainsFunc(b.Refused, func(r BMCFinding) bool { return !isRefusedForGood(r.Code) })
}

// isRefusedForGood reports whether a host is refused because somebody wants it so, and nothing is to be done.
func isRefusedForGood(code string) bool {
	return code == string(reason.OwnHost) || code == string(reason.Protected)
}

// IsUnreadCluster reports whether it is no device, but stands for all hosts of a cluster that has not been read yet.
func (b *BMC) IsUnreadCluster() bool { return b.State == "unchecked" && b.Host == "" }

// NotChecked reports whether nobody knows the state of a device: it was not looked at since the
// daemon started.
func (b *BMC) NotChecked() bool { return b.State == "unchecked" && b.Problem == "" && b.Host != "" }

// BMCCount counts devices as bmc list does.
type BMCCount struct {
	Total         int `json:"total"`
	NotDependable int `json:"notDependable"`
	NotChecked    int `json:"notChecked"` // since the start of the daemon
	// Accounts are the accounts that BMCs refuse.
	Accounts []RefusedAccount `json:"accounts,omitempty"`
}

// RefusedAccount is an account that BMCs refuse: how many, and the first of them.
type RefusedAccount struct {
	User         string `json:"user"`
	PasswordFrom string `json:"passwordFrom"` // a file, a credential of systemd, or a Secret of the cluster
	Count        int    `json:"count"`
	Cluster      string `json:"cluster"`
	Node         string `json:"node"`
	Machine      string `json:"machine,omitempty"` // namespace/name
	Device       string `json:"device"`
	Reason       string `json:"reason"`
	Problem      string `json:"problem"`
	Next         string `json:"next"`
}

// text says which BMC refuses whom.
func (a *RefusedAccount) text() string {
	what := a.Device
	if of := cmp.Or(a.Node, a.Machine); of != "" {
		what += " of " + of
	}
	what += " in " + a.Cluster
	if a.Count > 1 {
		what = fmt.Sprintf("%d BMCs, %s among them,", a.Count, what)
	}
	verb := " refuses"
	if a.Count > 1 {
		verb = " refuse"
	}
	return what + verb + " user " + a.User + " with the password from " + a.PasswordFrom + ": " + a.Reason + ": " + a.Problem
}

// Count counts the devices. A cluster whose hosts are not known yet counts nothing: the status
// says that it is not seen.
func (b BMCs) Count() (n BMCCount) {
	for i := range b.BMCs {
		n.Add(&b.BMCs[i])
	}
	return n
}

// Add counts a device.
func (n *BMCCount) Add(d *BMC) {
	if d.IsUnreadCluster() {
		return
	}
	n.Total++
	switch {
	case d.Undependable():
		n.NotDependable++
	case d.NotChecked():
		n.NotChecked++
	}
}

// Weak counts the findings, and the devices that could not be looked at for any.
func (b BMCs) Weak() (n int) {
	for _, d := range b.BMCs {
		n += len(d.Findings)
		if d.Problem != "" || d.AuditProblem != "" {
			n++
		}
	}
	return n
}
