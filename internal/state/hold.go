package state

import (
	"context"
	"fmt"
	"time"
)

// Hold keeps one Node from being fenced, until it expires or a person releases it:
// a person's, or the quarantine of a host that was fenced again and again.
type Hold struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Version uint64 `json:"-"`

	By     string    `json:"by"` // a person, or "fenced"
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero = until it is released
	// Quarantine: fenced made it, for a host that comes to no rest. It does not bind
	// people. // I15
	Quarantine bool `json:"quarantine,omitempty"`

	// Released by a person: the record stays until it is forgotten, because the runs
	// before it count no more.
	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Key tells it from the holds of other Nodes, and from the quarantine beside a
// person's hold: neither takes the other's place, nor ends with it.
func (h Hold) Key() string {
	if h.Quarantine {
		return h.Cluster + "/" + h.Node + "/quarantine"
	}
	return h.Cluster + "/" + h.Node
}

// Active says whether the hold stands at that time.
func (h Hold) Active(now time.Time) bool {
	return h.ReleasedBy == "" && (h.Until.IsZero() || now.Before(h.Until))
}

// Ended is when the hold ceases to stand, or did; zero while nobody has released it
// and it has no end.
func (h Hold) Ended() time.Time {
	if h.ReleasedBy != "" {
		return h.ReleasedAt
	}
	return h.Until
}

// SaveHold writes the hold durably and returns it with its new version. There is
// one for each Node, beside a quarantine: a new one takes the place of the old.
func SaveHold(ctx context.Context, s Store, h Hold) (Hold, error) {
	data, err := encode(h)
	if err != nil {
		return h, fmt.Errorf("save the hold of %s: %w", h.Node, err)
	}
	version, err := s.Put(ctx, Record{Kind: KindHold, Key: h.Key(), Version: h.Version, Data: data})
	if err != nil {
		return h, fmt.Errorf("save the hold of %s: %w", h.Node, err)
	}
	h.Version = version
	return h, nil
}

// LoadHolds reads all holds, ended ones too, beside an error that names each
// unreadable one.
func LoadHolds(ctx context.Context, s Store) ([]Hold, error) {
	return load(ctx, s, KindHold, decodeHold)
}

// DeleteHold forgets a hold.
func DeleteHold(ctx context.Context, s Store, h Hold) error {
	return s.Delete(ctx, KindHold, h.Key(), h.Version)
}

func decodeHold(r Record) (Hold, error) {
	var h Hold
	err := decode(r.Data, &h)
	if err == nil && h.Key() != r.Key {
		err = fmt.Errorf("it calls itself the hold of %q", h.Key())
	}
	if err != nil {
		return Hold{}, fmt.Errorf("read %s: %w", name(KindHold, r.Key), err)
	}
	h.Version = r.Version
	return h, nil
}
