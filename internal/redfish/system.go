package redfish

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw      = 64  // bmc.Reading.Raw
	maxIdentity = 128 // of a UUID or serial number as text
)

// system is what we use of a ComputerSystem.
type system struct {
	uri      string // where it answered, after redirects
	object          // the whole answer, for Describe
	state    bmc.PowerState
	raw      string
	identity bmc.Identity
	reset    resetAction
}

// resetAction is the power action of a system as it offers it.
type resetAction struct {
	target string
	info   string // where the allowed types are listed, if not beside the action
	types  []redfish.ResetType
}

// asSystem reads the few properties we use.
func asSystem(uri string, o object) *system {
	s := &system{uri: uri, object: o}
	s.state, s.raw = powerState(o["PowerState"])
	s.identity = bmc.Identity{UUID: o.text("UUID"), Serial: serial(o)}
	action := o.object("Actions").object("#ComputerSystem.Reset")
	s.reset = resetAction{target: action.exact("target"), info: action.exact("@Redfish.ActionInfo")}
	s.reset.types = resetTypes(action["ResetType@Redfish.AllowableValues"])
	return s
}

// serial is the number that the host's own firmware tells its operating system.
// Dell's SerialNumber is that of the main board; the service tag is the SKU.
func serial(o object) string {
	if tag := o.text("SKU"); tag != "" && strings.HasPrefix(o.text("Manufacturer"), "Dell") {
		return tag
	}
	return o.text("SerialNumber")
}

// resetTypes reads a list of allowed types; none for what is no such list.
func resetTypes(b json.RawMessage) []redfish.ResetType {
	var types []redfish.ResetType
	if json.Unmarshal(b, &types) != nil {
		return nil
	}
	return types
}

// powerState takes exactly "On" and "Off". Transitions, null, a missing field
// and anything else are Unknown, and Unknown is never off. // I1
func powerState(b json.RawMessage) (bmc.PowerState, string) {
	var word string
	if json.Unmarshal(b, &word) != nil || string(b) == "null" {
		return bmc.Unknown, bmc.Printable(string(b), maxRaw)
	}
	raw := bmc.Printable(word, maxRaw)
	switch redfish.PowerState(word) {
	case redfish.OnPowerState:
		return bmc.On, raw
	case redfish.OffPowerState:
		return bmc.Off, raw
	}
	return bmc.Unknown, raw
}

// reading is the system's answer, which arrived now.
func (s *system) reading(now time.Time) bmc.Reading {
	return bmc.Reading{State: s.state, Raw: s.raw, At: now, Identity: s.identity}
}

// getSystem reads one system. A chassis has a PowerState too, but it is not the
// host's.
func getSystem(api *gofish.APIClient, uri string) (*system, error) {
	o, resp, err := fetch(api, uri)
	if err != nil {
		return nil, err
	}
	if kind := o.text("@odata.type"); kind != "" && !strings.HasPrefix(kind, "#ComputerSystem.") {
		return nil, failf(bmc.KindIdentity, "%s is a %q, not a ComputerSystem", uri, kind)
	}
	return asSystem(resp.Request.URL.Path, o), nil
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
	if r.target == "" {
		return "", failf(bmc.KindUnsupported, "the system offers no reset action")
	}
	if len(r.types) == 0 {
		return types[0], nil
	}
	for _, t := range types {
		for _, allowed := range r.types {
			if t == allowed {
				return t, nil
			}
		}
	}
	return "", failf(bmc.KindUnsupported, "the system does not allow %s, only %q", types[0], r.types)
}
