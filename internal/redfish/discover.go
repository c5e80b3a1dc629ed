package redfish

import (
	"encoding/json"
	"strings"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxSystems = 64 // a service with more needs the URI in the address
	maxPages   = 16
	maxNamed   = 8 // in an error
)

// links are what we follow from the service root; gofish keeps them to itself.
type links struct{ Sessions, Systems string }

// rootLinks reads the remembered service root.
func rootLinks(api *gofish.APIClient) (links, error) {
	resp, err := api.Get(common.DefaultServiceRoot)
	if err != nil {
		return links{}, err
	}
	defer resp.Body.Close()
	var root struct {
		Systems common.Link
		Links   struct{ Sessions common.Link }
	}
	if err := json.NewDecoder(resp.Body).Decode(&root); err != nil {
		return links{}, failf(bmc.KindProtocol, "read service root: %w", err)
	}
	return links{Sessions: root.Links.Sessions.String(), Systems: root.Systems.String()}, nil
}

// systemURI is where the host's system is: as configured, else the only member
// of the collection, else the one with the pinned UUID. Never by position: the
// order is the BMC's whim. // I8
func (c *Client) systemURI(api *gofish.APIClient) (string, error) {
	if c.device.Endpoint.System != "" {
		return c.device.Endpoint.System, nil
	}
	if c.uri != "" {
		return c.uri, nil
	}
	members, err := systems(api)
	if err != nil {
		return "", err
	}
	switch {
	case len(members) == 0:
		return "", failf(bmc.KindIdentity, "the service has no system")
	case len(members) == 1:
		c.uri = members[0]
	case !bmc.UsableUUID(c.device.SystemUUID):
		return "", failf(bmc.KindIdentity, "the service has %d systems (%s): put the path of one into the address, or pin a UUID", len(members), names(members))
	default:
		if c.uri, err = c.byUUID(api, members); err != nil {
			return "", err
		}
	}
	return c.uri, nil
}

// byUUID finds the one member with the pinned UUID. All are read, because two
// that claim it are none.
func (c *Client) byUUID(api *gofish.APIClient, members []string) (string, error) {
	var found []string
	for _, uri := range members {
		s, err := getSystem(api, uri)
		if err != nil {
			return "", err
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
func systems(api *gofish.APIClient) ([]string, error) {
	root, err := rootLinks(api)
	if err != nil {
		return nil, err
	}
	if root.Systems == "" {
		return nil, failf(bmc.KindIdentity, "the service has no systems")
	}
	var members []string
	next := root.Systems
	for range maxPages {
		page, err := common.GetCollection(api, next)
		if err != nil {
			return nil, err
		}
		members = append(members, page.ItemLinks...)
		if len(members) > maxSystems {
			break
		}
		if next = page.MembersNextLink; next == "" {
			return members, nil
		}
	}
	return nil, failf(bmc.KindIdentity, "the service has more than %d systems: put the path of one into the address", maxSystems)
}

func names(uris []string) string {
	more := ""
	if len(uris) > maxNamed {
		uris, more = uris[:maxNamed], ", ..."
	}
	return strings.Join(uris, ", ") + more
}
