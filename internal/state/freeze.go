package state

import (
	"time"
)

// Freeze records that a host was alive while its BMC reported Off. Until a person releases
// the host, fenced powers nothing off there. Each run that notices such a host has one
// Freeze. A released Freeze stays, with its release. // I5
type Freeze struct {
	RunID   string `json:"runID"`
	Version uint64 `json:"-"`

	Host    string `json:"host"` // bmc.Host.Name
	Cluster string `json:"cluster"`
	Node    string `json:"node,omitempty"`
	Devices string `json:"devices,omitempty"` // as in Pin
	// Class is the model and firmware of the BMC that falsely reported Off. It is empty
	// if that is unknown, or if an outlet reported Off.
	Class  string    `json:"class,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`

	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Active returns whether nobody has released the host yet.
func (f Freeze) Active() bool { return f.ReleasedBy == "" }

var freezeRecord = recordType[Freeze]{
	kind: KindFreeze, key: func(f Freeze) string { return f.RunID }, version: func(f *Freeze) *uint64 { return &f.Version },
	name:  func(f Freeze) string { return "the freeze of " + f.Host + " by run " + f.RunID },
	lasts: Freeze.Active, // until a person releases the host // I5
}

// NewFreezes returns an empty table of freezes, for released ones too. See Table.
func NewFreezes(changed func(Freeze)) *Table[Freeze] { return newTable(freezeRecord, changed) }
