package state

import (
	"context"
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

var typeHold = typed[Hold]{
	kind: KindHold, key: Hold.Key, version: func(h *Hold) *uint64 { return &h.Version },
	name: func(h Hold) string { return "the hold of " + h.Key() },
}

// NewHolds is an empty table of holds, ended ones too. There is one for each Node, beside
// a quarantine: a new one takes the place of the old.
func NewHolds(changed func(Hold)) *Table[Hold] { return newTable(typeHold, changed) }

// SaveHold writes the hold durably and returns it with its new version.
func SaveHold(ctx context.Context, s Store, h Hold) (Hold, error) { return typeHold.save(ctx, s, h) }

// LoadHolds reads all holds, ended ones too, beside an error that names each
// unreadable one.
func LoadHolds(ctx context.Context, s Store) ([]Hold, error) { return typeHold.list(ctx, s) }

// DeleteHold forgets a hold.
func DeleteHold(ctx context.Context, s Store, h Hold) error { return typeHold.delete(ctx, s, h) }
