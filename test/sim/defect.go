package sim

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Defect is a rule that is broken on purpose, to see that the audits notice it. The
// zero value is none.
type Defect struct {
	IgnoresPreconditions bool // Nodes are deleted by name
	RestoresNothing      bool
	IgnoresVersions      bool // the store drops compare-and-set
	IgnoresEpochs        bool // and epochs, and claims have no end
	LosesBackups         bool
	ForgetsStops         bool // pauses and holds
	ForgetsRuns          bool // a fenced that starts finds none
	StoresNoRuns         bool // the store says that it has, and has not
	FollowsEntries       bool // a command goes to where an entry of hosts.d leads then
	TellsPasswords       bool // errors of devices do
	PeopleLie            bool // all they say is that hosts are off
	CarriesOutLate       bool // the API server does what its client has given up
	// LateViews are older than they say, by so much.
	LateViews time.Duration
	// Reading spoils what a BMC answers.
	Reading func(r *bmc.Reading, uuid string)
	// Look spoils what the API server answers.
	Look func(f *run.Fresh, r remediate.Run)
	// Options spoils what the engine is built from.
	Options func(*engine.Options)
}

func (d *Defect) reading(r *bmc.Reading, h *host) {
	if d.Reading != nil {
		d.Reading(r, h.UUID)
	}
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
