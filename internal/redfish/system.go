package redfish

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw      = 64  // bmc.Reading.Raw
	maxIdentity = 128 // of a UUID or serial number as text
)

// system is what we use of a ComputerSystem. It is not gofish's own type: that
// one refuses the whole answer when any of a hundred fields we never look at
// has another type than the schema says, and BMCs do that.
type system struct {
	common.Entity
	// kind is the resource's type, like #ComputerSystem.v1_20_0.ComputerSystem.
	kind     string
	state    bmc.PowerState
	raw      string
	identity bmc.Identity
	reset    resetAction
}

// resetAction is the power action of a system as it offers it.
type resetAction struct {
	Target     string              `json:"target"`
	ActionInfo string              `json:"@Redfish.ActionInfo"`
	Types      []redfish.ResetType `json:"ResetType@Redfish.AllowableValues"`
}

// UnmarshalJSON reads the few fields by their exact names; encoding/json alone
// would also take "POWERSTATE". Only what is no JSON object is an error.
func (s *system) UnmarshalJSON(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	if fields == nil {
		return fmt.Errorf("the answer is null, not a resource")
	}
	s.kind = text(fields["@odata.type"])
	s.state, s.raw = powerState(fields["PowerState"])
	s.identity = bmc.Identity{UUID: text(fields["UUID"]), Serial: text(fields["SerialNumber"])}
	s.reset = resetAction{}
	var actions struct {
		Reset resetAction `json:"#ComputerSystem.Reset"`
	}
	if json.Unmarshal(fields["Actions"], &actions) == nil { // else: offers no action we can use
		s.reset = actions.Reset
	}
	return nil
}

// powerState takes exactly "On" and "Off". Transitions, null, a missing field
// and anything else are Unknown, and Unknown is never off. // I1
func powerState(b json.RawMessage) (bmc.PowerState, string) {
	var word string
	if json.Unmarshal(b, &word) != nil || string(b) == "null" {
		return bmc.Unknown, printable(string(b), maxRaw)
	}
	raw := printable(word, maxRaw)
	switch redfish.PowerState(word) {
	case redfish.OnPowerState:
		return bmc.On, raw
	case redfish.OffPowerState:
		return bmc.Off, raw
	}
	return bmc.Unknown, raw
}

// text is a JSON string, empty for anything else.
func text(b json.RawMessage) string {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return ""
	}
	return printable(s, maxIdentity)
}

// reading is the system's answer, which arrived now.
func (s *system) reading(now time.Time) bmc.Reading {
	return bmc.Reading{State: s.state, Raw: s.raw, At: now, Identity: s.identity}
}

// getSystem reads one system. A chassis has a PowerState too, but it is not the
// host's.
func getSystem(api common.Client, uri string) (*system, error) {
	var s system
	if err := s.Get(api, uri, &s); err != nil {
		return nil, err
	}
	if s.kind != "" && !strings.HasPrefix(s.kind, "#ComputerSystem.") {
		return nil, failf(bmc.KindIdentity, "%s is a %q, not a ComputerSystem", uri, s.kind)
	}
	return &s, nil
}

// want is the power state that cmd leads to, and the reset types that do it, the
// preferred first. No soft or cycling type is ever among them. // I3
func want(cmd bmc.Command) (bmc.PowerState, []redfish.ResetType) {
	switch cmd {
	case bmc.CommandOff:
		return bmc.Off, []redfish.ResetType{redfish.ForceOffResetType}
	case bmc.CommandOn:
		return bmc.On, []redfish.ResetType{redfish.OnResetType, redfish.ForceOnResetType}
	}
	return bmc.Unknown, nil
}

// choose picks the reset type for cmd among those the system allows. A system
// that lists none is asked for the preferred one, and may refuse it.
func (r resetAction) choose(cmd bmc.Command) (redfish.ResetType, error) {
	_, types := want(cmd)
	if len(types) == 0 {
		return "", failf(bmc.KindUnsupported, "%v is not a power command", cmd)
	}
	if r.Target == "" {
		return "", failf(bmc.KindUnsupported, "the system offers no reset action")
	}
	if len(r.Types) == 0 {
		return types[0], nil
	}
	for _, t := range types {
		for _, allowed := range r.Types {
			if t == allowed {
				return t, nil
			}
		}
	}
	return "", failf(bmc.KindUnsupported, "the system does not allow %s, only %q", types[0], r.Types)
}
