package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
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
	// Recent are the newest runs that ended in the last 24 hours, newest first; RecentMore is how many more there are.
	Recent     []RecentRun `json:"recent,omitempty"`
	RecentMore int         `json:"recentMore,omitempty"`
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
	// Aside is why this instance leaves the cluster to the others, and to whom: its own host is
	// to be fenced. Empty means that it does not.
	Aside        string `json:"aside,omitempty"`
	Paused       bool   `json:"paused,omitempty"`
	PausedReason string `json:"pausedReason,omitempty"`
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

// blockedSentences says what is not remediated, and why. Targets of one check with the same reason
// have one sentence, so that a site that is down does not fill the screen.
func blockedSentences(list []Blocked) (why []string) {
	type group struct{ cluster, check, run, reason string }
	members := map[group][]Blocked{}
	var order []group
	for _, b := range list {
		g := group{b.Cluster, b.Check, b.Run, b.Reason}
		if len(members[g]) == 0 {
			order = append(order, g)
		}
		members[g] = append(members[g], b)
	}
	for _, g := range order {
		first, n := members[g][0], len(members[g])
		switch name := cmp.Or(first.Node, first.Machine); {
		case g.run != "":
			why = append(why, fmt.Sprintf("run %s of %s may not go on: %s", g.run, name, first.cause()))
		case n == 1:
			why = append(why, fmt.Sprintf("%s in %s is not remediated (%s): %s", name, g.cluster, g.check, first.cause()))
		default:
			why = append(why, fmt.Sprintf("%d targets in %s are not remediated (%s), %s and others: %s", n, g.cluster, g.check, name, first.cause()))
		}
	}
	return why
}

// cause is the reason with all that is known of it.
func (b Blocked) cause() string {
	text := fmt.Sprintf("%s: %s; since %s", b.Reason, b.Message, b.Since.UTC().Format(time.RFC3339))
	if !b.NextTry.IsZero() {
		text += ", next try " + b.NextTry.UTC().Format(time.RFC3339)
	}
	if b.Next != "" {
		text += ". Next: " + b.Next
	}
	return text
}

// title names the check for people; those of Nodes have no namespace.
func (k *CheckStatus) title() string {
	return "check " + strings.TrimPrefix(k.Namespace+"/"+k.Name, "/")
}

// Degraded says in sentences why this fenced does not do, or may not be doing,
// its whole job; empty when it does. `fencectl status` exits 2 on any.
func (s Status) Degraded() []string {
	var why []string
	add := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	why = append(why, s.notArmedSentences()...)
	if s.Paused {
		add("paused: %s", s.PausedReason)
	}
	if a := s.Audit; a != nil {
		add("nothing destructive is done: the audit log cannot be written since %s: %s", a.Since.UTC().Format(time.RFC3339), a.Problem)
	}
	for _, c := range s.Clusters {
		if c.Paused && !s.Paused {
			add("cluster %s is paused: %s", c.Name, c.PausedReason)
		}
		if c.Problem != "" {
			add("cluster %s: %s", c.Name, c.Problem)
		}
		if c.FilesRefused != "" {
			add("cluster %s: nothing begins there, because a protection or a budget may be missing; open runs go on. %s", c.Name, c.FilesRefused)
		}
		if c.Aside != "" {
			add("cluster %s is left to other instances: %s", c.Name, c.Aside)
		}
		if c.DeletionsOverdue > 0 {
			add("cluster %s: %d deleted Machines, or their Nodes, still exist after guards.deletionTimeout", c.Name, c.DeletionsOverdue)
		}
		for _, h := range c.Holds {
			if h.Quarantine {
				add("%s in %s is in quarantine: %s", cmp.Or(h.Node, h.Machine), c.Name, h.Reason)
			}
		}
		if c.Mode == "respond" { // where checks start nothing
			continue
		}
		for i := range c.Checks {
			if text := c.Checks[i].trouble(); text != "" {
				add("%s in %s %s", c.Checks[i].title(), c.Name, text)
			}
		}
		if c.Cover != nil {
			why = append(why, c.Cover.sentences(c.Name, slices.ContainsFunc(c.Checks, func(k CheckStatus) bool { return k.State == "Paused" }))...)
		}
	}
	why = append(why, blockedSentences(s.Blocked)...)
	for i := range s.Runs {
		if text := s.Runs[i].trouble(); text != "" {
			add("%s", text)
		}
	}
	if n := s.BMCs.NotDependable; n > 0 {
		add("%d of %d BMCs are not dependable: fencectl bmc list", n, s.BMCs.Total)
	}
	return why
}

// trouble returns why fenced does not do what the check is there for, or an empty string. One that is paused, for
// maintenance or because it was left to others, is as somebody wants it.
func (k *CheckStatus) trouble() string {
	switch {
	case k.State == "Invalid":
		return fmt.Sprintf("is invalid and protects no target: %s. fencectl check-config shows it", k.Message)
	case k.State == "Disabled":
		return fmt.Sprintf("is disabled and protects no target: %s. fencectl check-config shows it", k.Message)
	case k.SelectsNothing:
		return "selects nothing, so it protects no target. fencectl check-config shows it"
	case k.Allowed || k.State != "" && k.State != "Active":
		return ""
	}
	limit := ""
	if k.Limit != "" {
		limit = ", " + k.Limit
	}
	return fmt.Sprintf("allows no remediation (%s): %d of %d not healthy%s. Find the common cause: fencectl plan",
		cmp.Or(k.Reason, "ShortCircuit"), k.Expected-k.Healthy, k.Expected, limit)
}

// notArmedSentences name each cluster in which fenced begins nothing by itself.
func (s Status) notArmedSentences() (why []string) {
	if s.Armed {
		return nil
	}
	for i := range s.Clusters {
		if c := &s.Clusters[i]; !c.Armed {
			why = append(why, fmt.Sprintf("cluster %s is in mode %s and not armed: fenced fences nothing there by itself. To arm it: fencectl arm --cluster %s --reason WHY", c.Name, c.Mode, c.Name))
		}
	}
	if len(why) == 0 {
		return []string{"not armed: fenced knows no cluster"}
	}
	return why
}

// trouble returns why an open run is not on its way, or an empty string.
func (r *RunStatus) trouble() string {
	text := fmt.Sprintf("run %s of %s ", r.ID, cmp.Or(r.Node, r.Machine))
	switch {
	case r.Step == ResultHeld:
		text += "is held: " + r.Reason
	case r.Step == ResultWaiting:
		text += "waits: " + r.Reason
		if !r.NextTry.IsZero() {
			text += ", next try " + r.NextTry.UTC().Format(time.RFC3339)
		}
	case r.LastError == nil:
		return ""
	default:
		text += "is in step " + r.Step
	}
	if e := r.LastError; e != nil {
		text += fmt.Sprintf("; last error at %s: %s", e.At.UTC().Format(time.RFC3339), e.Text())
	}
	if r.Next != "" {
		text += ". Next: " + r.Next
	}
	return text
}
