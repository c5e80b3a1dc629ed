package state

import (
	"strings"
	"time"
)

// Hold stops the fencing of one Node or Machine until it expires or a person releases it. A person
// orders a hold. fenced itself creates one, the quarantine, for a host that it has fenced
// too often.
type Hold struct {
	Cluster string `json:"cluster"`
	// Node is the name of the Node, or the "namespace/name" of a Machine.
	Node    string `json:"node"`
	Version uint64 `json:"-"`

	By     string    `json:"by"` // a person, or "fenced"
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is released
	// Quarantine is true if fenced created the hold. A quarantine does not stop the
	// orders of people. // I15
	Quarantine bool `json:"quarantine,omitempty"`

	// A person released the hold. The record stays for a while, because the runs before
	// the release no longer count.
	ReleasedBy     string    `json:"releasedBy,omitempty"`
	ReleasedReason string    `json:"releasedReason,omitempty"`
	ReleasedAt     time.Time `json:"releasedAt,omitzero"`
}

// Key returns the key of the record. The quarantine of a Node and a person's hold of the
// same Node have different keys, so neither replaces or ends the other.
func (h Hold) Key() string {
	of := h.Node
	if strings.Contains(of, "/") {
		of = "machine/" + of // otherwise Machine n/quarantine would have the key of Node n's quarantine
	}
	if h.Quarantine {
		return h.Cluster + "/" + of + "/quarantine"
	}
	return h.Cluster + "/" + of
}

// Active returns whether the hold is in force at that time.
func (h Hold) Active(now time.Time) bool {
	return h.ReleasedBy == "" && (h.Until.IsZero() || now.Before(h.Until))
}

// Ended returns the time when the hold ends or ended. It returns the zero time for a hold
// without an end that nobody has released.
func (h Hold) Ended() time.Time {
	if h.ReleasedBy != "" {
		return h.ReleasedAt
	}
	return h.Until
}

var holdRecord = recordType[Hold]{
	kind: KindHold, key: Hold.Key, version: func(h *Hold) *uint64 { return &h.Version },
	name: func(h Hold) string { return "the hold of " + h.Key() },
}

// NewHolds returns an empty table of holds, for ended ones too. See Table. A Node has at most
// one hold and one quarantine: a new one replaces the old one.
func NewHolds(changed func(Hold)) *Table[Hold] { return newTable(holdRecord, changed) }
