package redfish

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"

	"github.com/fenced/fenced/internal/bmc"
)

const maxNamed = 8 // in an error

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
