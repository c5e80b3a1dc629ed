package redfish

import (
	"errors"
	"net/http"
	"strings"

	"github.com/stmcginnis/gofish"

	"github.com/fenced/fenced/internal/bmc"
)

const maxNamed = 8 // in an error

// systemURI returns the URI of the host's system: the configured one, else the
// only member of the collection, else the one with the pinned UUID. Never by
// position, because a BMC may change the order. // I8
func (c *Client) systemURI(api *gofish.APIClient) (string, error) {
	if c.uri != "" {
		return c.uri, nil
	}
	if c.device.Endpoint.System != "" {
		return c.device.Endpoint.System, nil
	}
	all, err := c.systems(api)
	if err != nil {
		return "", err
	}
	switch {
	case len(all) == 0:
		return "", failf(bmc.KindIdentity, "the service has no system")
	case len(all) == 1:
		c.uri = all[0]
	case !bmc.UsableUUID(c.device.SystemUUID):
		return "", failf(bmc.KindIdentity, "the service has %d systems (%s): put the path of one into the address, or pin a UUID", len(all), names(all))
	default:
		if c.uri, err = c.pinned(api, all); err != nil {
			return "", err
		}
		c.byUUID = true
	}
	return c.uri, nil
}

// system reads the host's system.
func (c *Client) system(api *gofish.APIClient) (*system, error) {
	uri, err := c.systemURI(api)
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

// pinned finds the one member with the pinned UUID. It reads all members; two
// with the same UUID are an error.
func (c *Client) pinned(api *gofish.APIClient, members []string) (string, error) {
	var found []string
	for _, uri := range members {
		s, err := getSystem(api, uri)
		if err != nil {
			return "", err
		}
		if s.repeated != nil {
			return "", s.repeated
		}
		if bmc.UUIDsMatch(s.identity.UUID, c.device.SystemUUID) {
			found = append(found, uri)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", failf(bmc.KindIdentity, "none of the service's %d systems (%s) has the UUID %s", len(members), names(members), c.device.SystemUUID)
	}
	return "", failf(bmc.KindIdentity, "%d systems (%s) claim the UUID %s", len(found), names(found), c.device.SystemUUID)
}

// systems lists the URIs of all systems of the service.
func (c *Client) systems(api *gofish.APIClient) ([]string, error) {
	root, err := c.serviceLinks(api)
	if err != nil {
		return nil, err
	}
	if root.systems == "" {
		return nil, failf(bmc.KindIdentity, "the service has no systems")
	}
	all, err := members(func(uri string) (object, error) {
		page, _, err := fetch(api, uri)
		return page, err
	}, root.systems)
	if errors.Is(err, errTooMany) {
		return nil, failf(bmc.KindIdentity, "the service has more than %d systems: put the path of one into the address", maxMembers)
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
