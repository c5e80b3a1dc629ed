package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Fingerprint is a digest of all that chooses what this device switches: the
// driver, the address and each parameter, whatever an agent calls it. An enrolment
// holds for what it was made for, and ends when any of that changes. Accounts,
// secrets and how the BMC is trusted are no part of it. // I8, I10
func (d Device) Fingerprint() string {
	e := d.Endpoint
	b, _ := json.Marshal(struct { // text and numbers only: it always marshals, and maps in order
		Driver          Driver
		Provider, Agent string
		Protocol        Protocol
		Host            string
		Port            int
		System          string
		Parameters      map[string]string `json:",omitempty"` // none is as good as no map
		Secret          []string          // that they are given, not what they are
	}{d.Driver, d.Provider, d.Agent, e.Protocol, e.plainHost(), e.Port, e.System, d.Parameters,
		slices.Sorted(maps.Keys(d.SecretParameters))})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
