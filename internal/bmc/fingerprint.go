package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Fingerprint is a digest of everything that selects what this device switches:
// the driver, the address and each parameter. An enrolment is valid for one
// fingerprint only. Accounts, secrets and how the BMC is trusted are not part of
// it. // I8, I10
func (d Device) Fingerprint() string {
	e := d.Endpoint
	b, _ := json.Marshal(struct { // text and numbers always marshal, maps in a fixed order
		Driver          Driver
		Provider, Agent string
		Protocol        Protocol
		Host            string
		Port            int
		System          string
		Parameters      map[string]string `json:",omitempty"` // an empty map and no map are equal
		Secret          []string          // the names of the secret parameters, not their values
		IgnoreUUID      bool              `json:",omitempty"`
	}{d.Driver, d.Provider, d.Agent, e.Protocol, e.plainHost(), e.Port, e.System, d.Parameters,
		slices.Sorted(maps.Keys(d.SecretParameters)), d.IgnoreUUID})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
