package wire

import "time"

// PeriodReport is what happened in a period, and what would have: the answer to fencectl report. Times that end a span are zero
// while it lasts.
type PeriodReport struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Cluster string    `json:"cluster,omitempty"` // empty: all
	// Summary are plain sentences: how far the evidence reaches, then what it says.
	Summary  []string         `json:"summary"`
	Evidence Evidence         `json:"evidence"`
	Modes    []ModeSpan       `json:"modes"`
	Fenced   FencedInPeriod   `json:"fenced"`
	Would    WouldHaveFenced  `json:"wouldHaveFenced"`
	Refused  []RefusedReason  `json:"refused"`
	Phases   []PhaseTimes     `json:"phases"`
	BMCs     BMCsInPeriod     `json:"bmcs"`
	Limits   []LimitsOfACheck `json:"limits"`
}

// Evidence is how much of the period the audit log covers.
type Evidence struct {
	From    time.Time `json:"from,omitzero"` // since when the log knows; zero: it knows nothing
	Entries int       `json:"entries"`
	// CoveredSeconds is the period without the gaps in which no fenced ran, or entries are missing.
	CoveredSeconds float64       `json:"coveredSeconds"`
	Gaps           []EvidenceGap `json:"gaps"`
	GapsMore       int           `json:"gapsMore,omitempty"`
	// RunsOfState is how many runs the log does not have, and the state does: of another instance, or of a log that is gone.
	RunsOfState int `json:"runsOfState,omitempty"`
	// Dropped is how many things were not followed, because too many were open at the same time.
	Dropped int `json:"dropped,omitempty"`
}

// EvidenceGap is a time of which the log does not say everything.
type EvidenceGap struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"`
	Cluster string    `json:"cluster,omitempty"` // only this one was not seen
	What    string    `json:"what"`
	Broken  bool      `json:"-"` // entries are missing or were changed
}

// ModeSpan is a time in which a cluster had one mode.
type ModeSpan struct {
	Cluster string    `json:"cluster"`
	Mode    string    `json:"mode"` // with "armed" and "paused" behind commas
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"`
	Seconds float64   `json:"seconds"`
}

// FencedInPeriod are the runs that began in the period.
type FencedInPeriod struct {
	Count    int            `json:"count"`
	ByResult map[string]int `json:"byResult"`
	Runs     []PeriodRun    `json:"runs"` // the newest, oldest first
	RunsMore int            `json:"runsMore,omitempty"`
}

// PeriodRun is one run.
type PeriodRun struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"`
	Machine string    `json:"machine,omitempty"` // namespace/name
	Trigger string    `json:"trigger"`
	By      string    `json:"by"`              // fenced, or who ordered it
	Proof   string    `json:"proof,omitempty"` // what the host was known from to be off: BMC, Device or Human
	Result  string    `json:"result"`
	Reason  string    `json:"reason,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
}

// WouldHaveFenced is what checks wanted remediated while the mode of the cluster let fenced only observe.
type WouldHaveFenced struct {
	Count   int `json:"count"`   // one target may be among them several times
	Targets int `json:"targets"` // different Nodes and Machines
	// ByOutcome counts them by what became of them: Recovered, Fenced, Open or Unknown.
	ByOutcome map[string]int `json:"byOutcome"`
	// Recovery is how long those took that ended as Recovered.
	Recovery Times            `json:"recovery"`
	List     []ObservedTarget `json:"list"` // the newest, oldest first
	ListMore int              `json:"listMore,omitempty"`
}

// What became of a target that a check wanted remediated.
const (
	OutcomeRecovered = "Recovered" // no check asked for it any more, and no run had begun, or one that waited was aborted
	OutcomeFenced    = "Fenced"    // a run began
	OutcomeOpen      = "Open"      // a check asks for it still
	OutcomeUnknown   = "Unknown"   // fenced stopped, or the log has a gap, before it was seen
)

// ObservedTarget is a Node or a Machine that a check wanted remediated.
type ObservedTarget struct {
	Cluster string    `json:"cluster"`
	Node    string    `json:"node,omitempty"`
	Machine string    `json:"machine,omitempty"`
	Check   string    `json:"check,omitempty"` // the first that asked
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"`
	Seconds float64   `json:"seconds"`
	Outcome string    `json:"outcome"`
}

// RefusedReason is how often and how long one reason kept targets of checks from being remediated, and refused orders.
type RefusedReason struct {
	Reason         string  `json:"reason"`
	Class          string  `json:"class,omitempty"`
	Count          int     `json:"count"`   // times that it began
	Targets        int     `json:"targets"` // different Nodes and Machines
	Orders         int     `json:"orders"`  // orders of people that it refused
	LongestSeconds float64 `json:"longestSeconds"`
	TotalSeconds   float64 `json:"totalSeconds"`
	Now            int     `json:"now"` // targets and runs that it blocks now
}

// Times are durations of one kind, in seconds.
type Times struct {
	Count         int     `json:"count"`
	MedianSeconds float64 `json:"medianSeconds"`
	P95Seconds    float64 `json:"p95Seconds"`
	MaxSeconds    float64 `json:"maxSeconds"`
}

// PhaseTimes is how long one phase of the runs took.
type PhaseTimes struct {
	Phase string `json:"phase"`
	Means string `json:"means"` // from what to what
	Times
}

// BMCsInPeriod is how dependable the BMCs were, as far as the log tells it: it has no single look, only when a BMC stopped being
// dependable and when it was again.
type BMCsInPeriod struct {
	Total         int         `json:"total"` // now
	NotDependable int         `json:"notDependable"`
	NeverChecked  int         `json:"neverChecked"` // since the start of the daemon
	Outages       []BMCOutage `json:"outages"`      // by device, the longest first
	OutagesMore   int         `json:"outagesMore,omitempty"`
}

// BMCOutage are the times in which one device was not dependable.
type BMCOutage struct {
	Cluster        string  `json:"cluster"`
	Node           string  `json:"node"`
	Device         string  `json:"device"` // its address and its host
	Count          int     `json:"count"`
	LongestSeconds float64 `json:"longestSeconds"`
	TotalSeconds   float64 `json:"totalSeconds"`
	// GoodShare is the part of the covered time without an outage, from 0 to 1.
	GoodShare float64 `json:"goodShare"`
	Reason    string  `json:"reason"` // of the newest
	Lasts     bool    `json:"lasts"`
}

// LimitsOfACheck is how near a check came to its limit, and how often and how long the limit forbade remediation.
type LimitsOfACheck struct {
	Cluster        string  `json:"cluster"`
	Check          string  `json:"check"`
	Near           int     `json:"near"`
	Closed         int     `json:"closed"`
	LongestSeconds float64 `json:"longestSeconds"`
	TotalSeconds   float64 `json:"totalSeconds"`
	Lasts          bool    `json:"lasts"`
	Message        string  `json:"message"` // the newest
}
