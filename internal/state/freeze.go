package state

import (
	"context"
	"fmt"
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

// SaveFreeze writes the freeze durably and returns it with its new version.
func SaveFreeze(ctx context.Context, s Store, f Freeze) (Freeze, error) {
	data, err := encode(f)
	if err != nil {
		return f, fmt.Errorf("save the freeze of %s: %w", f.Host, err)
	}
	version, err := s.Put(ctx, Record{Kind: KindFreeze, Key: f.RunID, Version: f.Version, Data: data})
	if err != nil {
		return f, fmt.Errorf("save the freeze of %s: %w", f.Host, err)
	}
	f.Version = version
	return f, nil
}

// LoadFreezes reads all freezes, released ones too, beside an error that names
// each unreadable one.
func LoadFreezes(ctx context.Context, s Store) ([]Freeze, error) {
	return load(ctx, s, KindFreeze, decodeFreeze)
}

// DeleteFreeze forgets a freeze.
func DeleteFreeze(ctx context.Context, s Store, f Freeze) error {
	return s.Delete(ctx, KindFreeze, f.RunID, f.Version)
}

func decodeFreeze(r Record) (Freeze, error) {
	var f Freeze
	err := decode(r.Data, &f)
	if err == nil && f.RunID != r.Key {
		err = fmt.Errorf("it calls itself the freeze of run %q", f.RunID)
	}
	if err != nil {
		return Freeze{}, fmt.Errorf("read %s: %w", name(KindFreeze, r.Key), err)
	}
	f.Version = r.Version
	return f, nil
}
