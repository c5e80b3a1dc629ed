package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// Plan is what a seed makes of the world.
type Plan struct {
	Seed uint64

	Workers       int
	ControlPlanes int // each with an etcd member
	Zones         int // 0: no zone labels
	Instances     int
	Metal         bool // BareMetalHosts, whose owner switches hosts on by itself
	Outlets       bool // a second power level
	Isolation     remediate.Isolation
	Git           bool // a controller makes Nodes that are gone again
	LongLeases    bool // of two minutes
	Reprovision   bool
	FoundOffStays bool // powerOnFoundOff: false

	Storm, Calm time.Duration
	OnePassword bool   // of all BMCs
	OnlyCuts    bool   // hosts do not fail, but are cut off from the API server
	StopAt      string // the story ends when that rule is broken

	// How often things happen, each per hour: on one host, at one BMC, to one
	// instance, by people.
	Hosts, BMCs, Outages, People float64
	// How likely one call goes wrong.
	StoreFails, CallLost, CallSlow, Kill float64
	// How often, per hour, something is written down wrongly, policies.d grows, and a
	// person vouches for a host; and how likely a condition's time is absurd.
	Mistakes, Policies, Words, Absurd float64
	// Clocks is how often, per hour, the clock of a fenced is set wrong by hours. Unless it
	// is zero the clocks also differ a little from the beginning.
	Clocks float64
	// BMCFaults are what may befall a BMC; each as likely as the others.
	BMCFaults []fake.Fault
}

// NewPlan draws a world from a seed.
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
	if r.IntN(3) == 0 { // also BMCs that say Off about hosts that are on
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
	return p
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
		MaxFencesPerDay: 4, MaxInFlightTotal: 20, StartsPerHour: 12, ZoneKey: "zone",
	}
}

func (p Plan) run() remediate.Limits {
	return remediate.Limits{
		OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: podsGoneTimeout, OnDeadline: 3 * time.Minute,
		ReadyTimeout: 6 * time.Minute, RestoreTimeout: 10 * time.Minute, RunTimeout: 40 * time.Minute,
		MinPowerInterval: time.Minute, MaxAttempts: 2, PowerOnFoundOff: !p.FoundOffStays, Reprovision: p.Reprovision,
	}
}
