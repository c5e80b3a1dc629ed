package redfish

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw      = 64  // bmc.Reading.Raw
	maxIdentity = 128 // maximum length of a UUID or serial number
)

// system is the part of a ComputerSystem that we use.
type system struct {
	uri      string // URI of the answer, after redirects
	object          // the whole answer, for Describe
	state    bmc.PowerState
	raw      string
	identity bmc.Identity
	reset    resetAction
	etag     string // "" if there is none
	// repeated is the error of an answer that has a name twice: it proves no state
	// and no identity, and no command goes to its action.
	repeated error
}

// resetAction is the power action that a system offers.
type resetAction struct {
	target string
	info   string // where the allowed types are listed, if not in the action
	types  []redfish.ResetType
}

// asSystem extracts the properties that we use.
func asSystem(uri string, o object) *system {
	s := &system{uri: uri, object: o}
	s.state, s.raw = powerState(o["PowerState"])
	s.identity = bmc.Identity{UUID: o.text("UUID"), Serial: serial(o)}
	action := o.object("Actions").object("#ComputerSystem.Reset")
	s.reset = resetAction{target: action.exact("target"), info: action.exact("@Redfish.ActionInfo")}
	s.reset.types = resetTypes(action["ResetType@Redfish.AllowableValues"])
	return s
}

// serial is the serial number that the host's firmware reports to its operating
// system. Dell's SerialNumber is that of the main board; the service tag is the
// SKU.
func serial(o object) string {
	if tag := o.text("SKU"); tag != "" && strings.HasPrefix(o.text("Manufacturer"), "Dell") {
		return tag
	}
	return o.text("SerialNumber")
}

// resetTypes parses a list of allowed types; an invalid list is empty.
func resetTypes(b json.RawMessage) []redfish.ResetType {
	var types []redfish.ResetType
	if json.Unmarshal(b, &types) != nil {
		return nil
	}
	return types
}

// powerState accepts exactly "On" and "Off". Transitions, null, a missing field
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

// reading converts the system's answer, which arrived now.
func (s *system) reading(now time.Time) bmc.Reading {
	return bmc.Reading{State: s.state, Raw: s.raw, At: now, Identity: s.identity}
}

// getSystem reads one system. The PowerState of a chassis is not that of the
// host. An answer that repeats a name is a system whose state is Unknown. // I1
func getSystem(api *gofish.APIClient, uri string) (*system, error) {
	o, resp, err := fetch(api, uri)
	if e, ok := errors.AsType[*bmc.RepeatedError](err); ok {
		return &system{uri: resp.Request.URL.Path, raw: bmc.Printable(e.Error(), maxRaw), repeated: err}, nil
	}
	if err != nil {
		return nil, err
	}
	if kind := o.text("@odata.type"); kind != "" && !strings.HasPrefix(kind, "#ComputerSystem.") {
		return nil, failf(bmc.KindIdentity, "%s is a %q, not a ComputerSystem", uri, kind)
	}
	s := asSystem(resp.Request.URL.Path, o)
	s.etag = etagOf(o, resp.Header)
	return s, nil
}

// wantedState returns the power state that cmd leads to, and the reset types for
// it in order of preference. They never include a soft or cycling type. // I3
func wantedState(cmd bmc.Command) (bmc.PowerState, []redfish.ResetType) {
	switch cmd {
	case bmc.CommandOff:
		return bmc.Off, []redfish.ResetType{redfish.ForceOffResetType}
	case bmc.CommandOn:
		return bmc.On, []redfish.ResetType{redfish.OnResetType, redfish.ForceOnResetType}
	}
	return bmc.Unknown, nil
}

// choose selects the reset type for cmd among those that the system allows. If
// the system lists none, it is the preferred one, which the system may refuse.
func (r resetAction) choose(cmd bmc.Command) (redfish.ResetType, error) {
	_, types := wantedState(cmd)
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
