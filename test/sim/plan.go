package sim

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// Plan is the world that a seed describes.
type Plan struct {
	Seed uint64

	Workers       int
	ControlPlanes int // each with an etcd member
	Zones         int // 0: no zone labels
	Instances     int
	Metal         bool // BareMetalHosts, whose owner powers hosts on by itself
	Outlets       bool // a second power level
	Isolation     remediate.Isolation
	Git           bool // a controller creates deleted Nodes again
	Plugin        bool // the operator of a network plugin taints Nodes, and takes that off again
	LongLeases    bool // Leases of two minutes
	Reprovision   bool
	FoundOffStays bool // powerOnFoundOff: false
	Medik8s       bool // each remediator takes medik8s' Lease on a Node before it acts
	Waits         bool // runs that time or a change may heal wait, and go on by themselves
	Requests      bool // mode respond: a controller in the cluster asks, and fenced acts on that alone
	Others        bool // the check is handed over, and has templates of other remediators
	Escalates     bool // and it is a NodeHealthCheck with several of them
	FencesLast    bool // of which the last is fenced's own

	Storm, Calm time.Duration
	OnePassword bool   // all BMCs have the same password
	OnlyCuts    bool   // hosts do not fail, but lose the API server
	StopAt      string // the story ends when this rule is broken

	// Events per hour: on one host, at one BMC, to one instance, by people.
	Hosts, BMCs, Outages, People float64
	// The probability that one call fails.
	StoreFails, CallLost, CallSlow, Kill float64
	// Events per hour: wrong configurations, new files in policies.d, confirmations
	// by people; and the probability that a condition's time is absurd.
	Mistakes, Policies, Words, Absurd float64
	// Withdraws is how often, per hour, a request is deleted or given up although its Node is not Ready.
	Withdraws float64
	// Forgets: who asks deletes its request when the Node is gone, and asks for none, as NodeHealthCheck does.
	Forgets bool
	// Meddles is how often, per hour, somebody deletes a request for another remediator, or changes
	// it, or makes one, or deletes its template, or starts the check's own controller.
	Meddles float64
	// Clocks is how often, per hour, the clock of a fenced is set wrong by hours.
	// Unless it is zero, the clocks also differ a little from the start.
	Clocks float64
	// Names is how often, per hour, another machine takes the name of a Node; Hands how often a
	// person switches on a host that fenced has switched off, ten times as often while no fenced can;
	// Restores how often an old backup of the store is restored.
	Names, Hands, Restores float64
	// Copies is how often, per hour, the kubeconfig leads to a copy of the cluster for some minutes.
	Copies float64
	// Spells is the probability that a booting kernel writes its UUID in another way, Breaks that a
	// host does not boot until it is repaired.
	Spells, Breaks float64
	Limit          int           // maxUnhealthy of the check, which then selects Nodes; 0: none
	StartsPerHour  int           // that guards allow
	Attempts       int           // power cycles of a run before it gives up
	Retry          time.Duration // first pause of a run that waits
	// BMCFaults are the possible faults of a BMC, all equally likely.
	BMCFaults []fake.Fault
}

func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := Plan{
		Seed: seed, Workers: 3 + r.IntN(4), Instances: 1, Isolation: remediate.IsolateDelete,
		Storm: 45 * time.Minute, Calm: 75 * time.Minute,
		Hosts: pick(r, 1, 2, 4), BMCs: pick(r, 0.5, 3, 6), Outages: pick(r, 0, 1, 3), People: pick(r, 0, 2, 10, 100),
		StoreFails: pick(r, 0, 0.01, 0.05), CallLost: pick(r, 0, 0.01, 0.05), CallSlow: pick(r, 0, 0.01, 0.05),
		Kill: pick(r, 0, 0.0005, 0.003), BMCFaults: bmcFaults,
		Metal: r.IntN(3) == 0, Outlets: r.IntN(3) == 0, Reprovision: r.IntN(2) == 0, FoundOffStays: r.IntN(4) == 0,
	}
	if r.IntN(3) == 0 { // also BMCs that report Off for hosts that are on
		p.BMCFaults = append(slices.Clone(bmcFaults), fake.Liar, fake.Liar, fake.Liar)
	}
	if r.IntN(3) > 0 {
		p.Instances = 2 + r.IntN(2)
	}
	if r.IntN(2) == 0 {
		p.ControlPlanes = 3
	}
	if r.IntN(2) == 0 {
		p.Zones = 2
	}
	if r.IntN(4) == 0 {
		p.Isolation = remediate.IsolateTaint
	}
	p.Mistakes, p.Policies, p.Words = pick(r, 0, 2, 6), pick(r, 0, 2), pick(r, 0, 2)
	p.Absurd, p.OnePassword = pick(r, 0, 0.1, 0.5), r.IntN(2) == 0
	p.Git, p.LongLeases = r.IntN(4) == 0, r.IntN(4) == 0
	p.Clocks = pick(r, 0, 0, 3, 12)
	p.Waits = r.IntN(2) == 0
	p.Medik8s = r.IntN(3) == 0
	p.Requests, p.Withdraws = r.IntN(4) == 0, pick(r, 0, 5, 30)
	p.Others, p.Meddles = !p.Requests && r.IntN(4) == 0, pick(r, 0, 5, 30)
	p.Escalates, p.FencesLast = p.Others && r.IntN(2) == 0, r.IntN(2) == 0
	p.Git = p.Git && !p.Escalates // a Node from Git has no labels, and a NodeHealthCheck knows nothing else
	p.Names, p.Hands, p.Restores = pick(r, 0, 0, 0, 4, 12), pick(r, 0, 0, 20, 200), pick(r, 0, 0, 0, 3)
	p.Spells, p.Breaks = pick(r, 0, 0, 0.5), pick(r, 0, 0, 0, 0.5)
	p.StartsPerHour, p.Retry = int(pick(r, 12, 12, 4)), time.Duration(pick(r, 5, 30, 30))*time.Second
	if p.Attempts = 2; r.IntN(3) == 0 {
		p.Attempts = 1
	}
	if r.IntN(5) == 0 && !p.Others && !p.Requests {
		p.Limit, p.Git = 2, false // a Node from Git has no labels, either
	}
	p.Copies = pick(r, 0, 0, 0, 4)
	p.Forgets = p.Requests && r.IntN(2) == 0
	if p.Others { // which an old store knows nothing about
		p.Restores = 0
	}
	p.Plugin = r.IntN(3) == 0
	return p
}

func (p Plan) mode() string {
	if p.Requests {
		return guard.ModeRespond
	}
	return guard.ModeEvaluate
}

func pick(r *rand.Rand, of ...float64) float64 { return of[r.IntN(len(of))] }

// podsGoneTimeout is how long step 3 waits for pods. // I7
const podsGoneTimeout = 70 * time.Second

// offReadSpacing and proofMaxAge are those of I1.
const (
	offReadSpacing = 3 * time.Second
	proofMaxAge    = 5 * time.Second
)

func (p Plan) guards() guard.Limits {
	return guard.Limits{
		QuietPeriod: time.Minute, ViewMaxAge: 30 * time.Second, ClockSkewMax: 5 * time.Second, MinPowerInterval: 2 * time.Minute,
		MaxInFlight: 2, MaxInFlightPercent: 100, MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3,
		MaxFencesPerDay: 4, MaxInFlightTotal: 20, StartsPerHour: p.StartsPerHour, ZoneKey: "zone",
	}
}

func (p Plan) run() remediate.Limits {
	var retry time.Duration
	ready := 6 * time.Minute
	if p.Attempts == 1 {
		ready = 3 * time.Minute
	}
	if p.Waits {
		retry = p.Retry
	}
	return remediate.Limits{
		RetryInterval: retry,
		OffDeadline:   time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: podsGoneTimeout, OnDeadline: 3 * time.Minute,
		ReadyTimeout: ready, RestoreTimeout: 10 * time.Minute, RunTimeout: 40 * time.Minute,
		MinPowerInterval: time.Minute, MaxAttempts: p.Attempts, PowerOnFoundOff: !p.FoundOffStays, Reprovision: p.Reprovision,
		ReleasePods: p.Waits,
	}
}

// Defect is a rule that is broken on purpose, to test that the audits notice it.
// The zero value breaks none.
type Defect struct {
	IgnoresPreconditions bool // Nodes are deleted by name
	RestoresNothing      bool
	IgnoresVersions      bool // the store drops compare-and-set
	IgnoresEpochs        bool // and epochs, and claims have no end
	LosesBackups         bool
	ForgetsStops         bool // pauses and holds
	HoldsNoRequests      bool // finalizers of requests are only said to be set
	TakesNoLocks         bool // medik8s' Leases on Nodes are only said to be taken
	RenewsNoLocks        bool // and they are only said to be renewed
	OwnsWhateverIsThere  bool // a request of the name of a record is that of the record
	SeesNoController     bool // the check's own controller is never alive
	ForgetsAsked         bool // a fenced that starts finds no records of other remediators
	StoresNoAsked        bool // which are only said to be stored
	ForgetsRuns          bool // a fenced that starts finds none
	StoresNoRuns         bool // the store reports success, but stores nothing
	FollowsEntries       bool // a command goes to the current address in hosts.d
	TellsPasswords       bool // errors of devices contain passwords
	PeopleLie            bool // they only confirm that hosts are off
	CarriesOutLate       bool // the API server carries out requests that its client has cancelled
	// LateViews is how much older views are than they claim.
	LateViews time.Duration
	// Reading changes what a BMC answers.
	Reading func(r *bmc.Reading, uuid string)
	// Stored changes what a fenced reads of a stored run, or of a stored pin.
	Stored func(kind state.Kind, fields map[string]any)
	// Look changes what the API server answers.
	Look func(f *run.Fresh, r remediate.Run)
	// Options changes the options of the engine.
	Options func(*engine.Options)
}

func (d *Defect) reading(r *bmc.Reading, h *host) {
	if d.Reading != nil {
		d.Reading(r, h.UUID)
	}
}

// stored is what a fenced reads of a record.
func (d *Defect) stored(r state.Record) state.Record {
	if d.Stored == nil || r.Data == nil || r.Kind != state.KindRun && r.Kind != state.KindPin {
		return r
	}
	var record struct {
		V    int            `json:"v"`
		Data map[string]any `json:"data"`
	}
	err := json.Unmarshal(r.Data, &record)
	if err == nil {
		d.Stored(r.Kind, record.Data)
		r.Data, err = json.Marshal(record)
	}
	if err != nil {
		panic("sim: change a record: " + err.Error())
	}
	return r
}

func (d *Defect) looked(f *run.Fresh, r remediate.Run) {
	if d.Look != nil {
		d.Look(f, r)
	}
}

func (d *Defect) options(o *engine.Options) {
	if d.Options != nil {
		d.Options(o)
	}
}
