package api

import "time"

// HoldStatus is a Node that is not fenced: a person holds it, or the daemon keeps off
// a host that was fenced again and again.
type HoldStatus struct {
	Node       string    `json:"node"`              // empty if a Machine is held
	Machine    string    `json:"machine,omitempty"` // namespace/name
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until,omitzero"` // absent = until it is released
	Quarantine bool      `json:"quarantine,omitempty"`
}
