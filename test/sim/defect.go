package sim

import (
	"encoding/json"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
)

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
