package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxRaw      = 64  // bmc.Reading.Raw
	maxIdentity = 128 // maximum length of a UUID or serial number
	maxNamed    = 8   // systems in an error
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

// systemURI returns the URI of the host's system: the configured one, else the
// only member of the collection, else the one with the pinned UUID. Never by
// position, because a BMC may change the order. // I8
func (c *Client) systemURI(ctx context.Context, api *gofish.APIClient) (string, error) {
	if c.uri != "" {
		return c.uri, nil
	}
	if c.device.Endpoint.System != "" {
		return c.device.Endpoint.System, nil
	}
	all, err := c.systems(api)
	switch {
	case len(all) > 0 && (len(all) > 1 || err != nil) && bmc.UsableUUID(c.device.SystemUUID):
		if c.uri, err = c.pinned(ctx, all, err); err != nil {
			return "", err
		}
		c.byUUID = true
	case err != nil:
		return "", err // one that is not listed could be the host
	case len(all) == 0:
		return "", failf(bmc.KindIdentity, "the service has no system")
	case len(all) == 1:
		c.uri = all[0]
	default:
		return "", failf(bmc.KindIdentity, "the service has %d systems (%s): put the path of one into the address, or pin a UUID", len(all), names(all))
	}
	return c.uri, nil
}

// system reads the host's system.
func (c *Client) system(ctx context.Context, api *gofish.APIClient) (*system, error) {
	uri, err := c.systemURI(ctx, api)
	if err != nil {
		return nil, err
	}
	s, err := getSystem(api, uri)
	if statusOf(err) == http.StatusNotFound {
		c.forgetSystem()
	}
	if err != nil {
		return nil, err
	}
	if s.repeated != nil { // it may be any machine, and its action any action
		c.lastSystem = nil
		return s, nil
	}
	if c.byUUID && !bmc.UUIDsMatch(s.identity.UUID, c.device.SystemUUID) {
		c.forgetSystem()
		return nil, failf(bmc.KindIdentity, "%s had the UUID %s and now has %q", uri, c.device.SystemUUID, s.identity.UUID)
	}
	if c.device.IgnoreUUID || !bmc.UsableUUID(s.identity.UUID) { // what else tells the systems of a service apart
		s.identity.System = strings.TrimSuffix(s.uri, "/")
	}
	if s.uri == uri+"/" { // the BMC redirects to it each time
		c.uri = s.uri
	}
	c.lastSystem, c.lastSystemNumber = s, c.number.Load()
	return s, nil
}

// forgetSystem makes the next try discover the system again.
func (c *Client) forgetSystem() { c.uri, c.byUUID, c.lastSystem = "", false, nil }

// pinned finds the one member with the pinned UUID; two with it are an error. It reads
// all members. What cannot be read or is not listed does not matter if another has the
// UUID: HGX lists its baseboard as a system beside the host.
func (c *Client) pinned(ctx context.Context, members []string, unlisted error) (string, error) {
	var found, unread []string
	unknown := unlisted // why the host may be another system than those that were read
	for _, uri := range members {
		s, err := c.member(ctx, uri)
		switch {
		case err != nil && ctx.Err() != nil:
			return "", err
		case err == nil && s.repeated != nil: // it may have the UUID, too
			return "", failf(bmc.KindProtocol, "read %s: %w", bmc.Printable(uri, maxIdentity), s.repeated)
		case err != nil:
			unread = append(unread, bmc.Printable(uri, maxIdentity))
			if unknown == nil || statusOf(err) == http.StatusUnauthorized { // 401 opens a new session
				unknown = err
			}
		case bmc.UUIDsMatch(s.identity.UUID, c.device.SystemUUID):
			found = append(found, uri)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", failf(bmc.KindIdentity, "%d systems (%s) claim the UUID %s", len(found), names(found), c.device.SystemUUID)
	case unknown == nil:
		return "", failf(bmc.KindIdentity, "none of the service's %d systems (%s) has the UUID %s", len(members), names(members), c.device.SystemUUID)
	}
	kind := kindOf(unknown)
	if kind == bmc.KindIdentity { // nobody knows
		kind = bmc.KindProtocol
	}
	if len(unread) == 0 {
		return "", failf(kind, "none of the %d systems that are listed has the UUID %s: %w", len(members), c.device.SystemUUID, unknown)
	}
	return "", failf(kind, "none of the systems that can be read has the UUID %s; read %s: %w", c.device.SystemUUID, names(unread), unknown)
}

// member reads one system of several. One that does not answer takes half of the time
// that is left.
func (c *Client) member(ctx context.Context, uri string) (*system, error) {
	if end, ends := ctx.Deadline(); ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	api, err := c.connect(ctx, c.auth)
	if err != nil {
		return nil, err
	}
	return getSystem(api, uri)
}

// systems lists the URIs of all systems of the service. With an error, some may be
// missing.
func (c *Client) systems(api *gofish.APIClient) ([]string, error) {
	root, err := c.serviceLinks(api)
	if err != nil {
		return nil, err
	}
	uri := cmp.Or(root.systems, standardSystemsURI)
	all, err := members(func(uri string) (object, error) {
		page, _, err := fetch(api, uri)
		return page, err
	}, uri)
	switch {
	case errors.Is(err, errTooMany):
		return nil, failf(bmc.KindIdentity, "the service has more than %d systems: put the path of one into the address", maxMembers)
	case root.systems == "" && statusOf(err) == http.StatusNotFound:
		return nil, failf(bmc.KindProtocol, "the service root names no systems, and there are none at %s: %w", uri, err)
	}
	return all, err
}

func names(uris []string) string {
	more := ""
	if len(uris) > maxNamed {
		uris, more = uris[:maxNamed], ", ..."
	}
	return strings.Join(uris, ", ") + more
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

// actionInfo reads the allowed reset types of a system that lists them in a
// separate resource. gofish v0.20 has no type for it.
func actionInfo(api *gofish.APIClient, uri string) ([]redfish.ResetType, error) {
	o, _, err := fetch(api, uri)
	if statusOf(err) == http.StatusNotFound {
		return nil, nil // a link to nothing lists nothing
	}
	if err != nil {
		return nil, err
	}
	return listedTypes(o), nil
}

// listedTypes returns the values that an ActionInfo allows for ResetType.
func listedTypes(o object) []redfish.ResetType {
	var parameters []object
	if json.Unmarshal(o["Parameters"], &parameters) != nil {
		return nil
	}
	for _, p := range parameters {
		if p.exact("Name") == "ResetType" {
			return resetTypes(p["AllowableValues"])
		}
	}
	return nil
}
