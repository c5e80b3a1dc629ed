package state

import (
	"context"
	"time"
)

// Freeze says that a host was seen alive while its BMC said Off: until a person
// releases it, nothing is switched off there. There is one for each run that
// found such a thing out, kept beside its release. // I5
type Freeze struct {
	RunID   string `json:"runID"`
	Version uint64 `json:"-"`

	Host    string `json:"host"` // bmc.Host.Name
	Cluster string `json:"cluster"`
	Node    string `json:"node,omitempty"`
	Devices string `json:"devices,omitempty"` // as in Pin
	// Class is the model and firmware of the BMC that said so; empty when it is
	// not known, or when an outlet did.
	Class  string    `json:"class,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`

	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Active says whether nobody has released the host yet.
func (f Freeze) Active() bool { return f.ReleasedBy == "" }

var typeFreeze = typed[Freeze]{
	kind: KindFreeze, key: func(f Freeze) string { return f.RunID }, version: func(f *Freeze) *uint64 { return &f.Version },
	name: func(f Freeze) string { return "the freeze of " + f.Host + " by run " + f.RunID },
}

// NewFreezes is an empty table of freezes, released ones too.
func NewFreezes(changed func(Freeze)) *Table[Freeze] { return newTable(typeFreeze, changed) }

// SaveFreeze writes the freeze durably and returns it with its new version.
func SaveFreeze(ctx context.Context, s Store, f Freeze) (Freeze, error) {
	return typeFreeze.save(ctx, s, f)
}

// LoadFreezes reads all freezes, released ones too, beside an error that names
// each unreadable one.
func LoadFreezes(ctx context.Context, s Store) ([]Freeze, error) { return typeFreeze.list(ctx, s) }

// DeleteFreeze forgets a freeze.
func DeleteFreeze(ctx context.Context, s Store, f Freeze) error { return typeFreeze.delete(ctx, s, f) }
