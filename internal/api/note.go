package api

import "time"

// Note is something about a Node or a Machine, or about one of its runs, that is no step: an order
// of a person, a refusal, a failure.
type Note struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"` // of the event
	Run     string    `json:"run,omitempty"`
	Check   string    `json:"check,omitempty"`
	Actor   string    `json:"actor,omitempty"` // who gave an order
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message"`
	// Count is how often it happened in a row, and Last when it last did; absent for once.
	Count int       `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`
}

// RunError is the newest failure of an open run since it entered its step.
type RunError struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message"`
}

// Text is the failure with its reason code, if it has one.
func (e RunError) Text() string {
	if e.Reason == "" {
		return e.Message
	}
	return e.Reason + ": " + e.Message
}
