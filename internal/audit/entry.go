package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The types of entries that the log itself writes; all others are events of the
// daemon.
const (
	Opened   = "Opened"   // the daemon started, or a new file started
	Repaired = "Repaired" // an unfinished line was removed
	Lost     = "Lost"     // entries could not be written
)

// Entry is one decision, order or action.
type Entry struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	Machine string    `json:"machine,omitempty"` // of a target that has no Node
	Run     string    `json:"run,omitempty"`
	Step    string    `json:"step,omitempty"`
	Action  string    `json:"action,omitempty"`
	Reason  string    `json:"reason,omitempty"` // a stable code
	Message string    `json:"message,omitempty"`
	Check   string    `json:"check,omitempty"` // the check that asked for it
	Actor   string    `json:"actor,omitempty"` // of an order
	Why     string    `json:"why,omitempty"`   // the reason that the person gave for an order
	Inputs  string    `json:"inputs,omitempty"`
	Gates   []Gate    `json:"gates,omitempty"`
	Origin  *Origin   `json:"origin,omitempty"` // of Opened
}

// Gate is one gate of a decision.
type Gate struct {
	Name      string `json:"name"`
	Pass      bool   `json:"pass"`
	Reason    string `json:"reason,omitempty"`
	Value     string `json:"value,omitempty"`
	Threshold string `json:"threshold,omitempty"`
}

// Origin is the writer of the log.
type Origin struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	Store   string `json:"store"` // the id of the store that holds the decisions
}

// Limits of an entry. Much of its text comes from BMCs and from the cluster.
const (
	maxText  = 1024
	maxValue = 256
	maxGates = 64
)

// limited returns the entry with every text printable and cut.
func (e Entry) limited() Entry {
	for _, s := range []*string{
		&e.Type, &e.Cluster, &e.Node, &e.Run, &e.Step, &e.Action, &e.Reason, &e.Message, &e.Check, &e.Actor, &e.Why, &e.Inputs,
	} {
		*s = printable(*s, maxText)
	}
	gates := make([]Gate, 0, min(len(e.Gates), maxGates))
	for _, g := range e.Gates[:cap(gates)] {
		g.Name, g.Reason = printable(g.Name, maxValue), printable(g.Reason, maxValue)
		g.Value, g.Threshold = printable(g.Value, maxValue), printable(g.Threshold, maxValue)
		gates = append(gates, g)
	}
	e.Gates = gates
	if e.Origin != nil {
		e.Origin = &Origin{printable(e.Origin.Version, maxValue), printable(e.Origin.Host, maxValue), printable(e.Origin.Store, maxValue)}
	}
	return e
}

// printable makes text safe to show, and cuts it to most bytes, not counting the
// mark of the cut.
func printable(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		piece := string(r)
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if b.Len()+len(piece) > most {
			b.WriteString("...")
			break
		}
		b.WriteString(piece)
	}
	return b.String()
}

// encode returns the bytes that are hashed.
func (e Entry) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read it
	if err := enc.Encode(e.limited()); err != nil {
		return nil, fmt.Errorf("encode entry %d: %w", e.Seq, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
