package redfish

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish"

	"github.com/fenced/fenced/internal/bmc"
)

// maxURI limits the length of a link, in bytes.
const maxURI = 1024

// object is a resource as a BMC returned it. Properties are matched by their
// exact names (encoding/json alone would also accept "POWERSTATE"). One of an
// unexpected type counts as missing. gofish's own types reject the whole answer
// if any of a hundred unused fields violates the schema, and BMCs do that.
type object map[string]json.RawMessage

// fetch reads the resource at uri. The response is nil if there was no answer.
func fetch(api *gofish.APIClient, uri string) (object, *http.Response, error) {
	resp, err := api.Get(uri)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // the transport has limited it
	if err != nil {
		return nil, nil, err
	}
	o, err := decode(body)
	if err != nil {
		return nil, resp, failf(bmc.KindProtocol, "read %s: %w", bmc.Printable(uri, maxURI), err)
	}
	return o, resp, nil
}

// decode parses one resource. The error is a *bmc.RepeatedError if the resource
// has a name twice, at any depth. // I1
func decode(b []byte) (object, error) {
	if err := bmc.CheckNames(b); err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(bytes.TrimRight(b, " \t\r\n\x00"), &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("the answer is null, not a resource")
	}
	return o, nil
}

// text returns a string property, trimmed; empty for anything else.
func (o object) text(name string) string {
	return strings.TrimSpace(bmc.Printable(o.exact(name), maxIdentity))
}

// exact returns a string property unchanged; empty for anything else.
func (o object) exact(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// object returns an object property; nil, which has no properties, for anything
// else.
func (o object) object(name string) object {
	var inner object
	if json.Unmarshal(o[name], &inner) != nil {
		return nil
	}
	return inner
}

// link returns a property that refers to another resource; empty for anything
// else.
func (o object) link(name string) string { return o.object(name).uri() }

// uri returns the resource that o refers to: a path of the service, or "".
func (o object) uri() string {
	s := o.exact("@odata.id")
	if len(s) > maxURI || !strings.HasPrefix(s, "/") {
		return ""
	}
	return s
}

// links returns a property that refers to several resources. An invalid list is
// an error, because a missing entry could be the one that is needed; the valid
// entries come with it.
func (o object) links(name string) (uris []string, err error) {
	var items []object
	if json.Unmarshal(o[name], &items) != nil {
		return nil, failf(bmc.KindProtocol, "%s is no list of links", name)
	}
	for _, item := range items {
		uri := item.uri()
		if uri == "" {
			err = failf(bmc.KindProtocol, "%s holds %q, which is no link to a resource of the service", name, bmc.Printable(item.exact("@odata.id"), maxIdentity))
			continue
		}
		uris = append(uris, uri)
	}
	return uris, err
}

const (
	maxMembers = 64 // with more systems the address must contain the URI
	maxPages   = 16
)

// errTooMany is the error for a collection that is larger than maxMembers.
var errTooMany = errors.New("too many members")

// members lists the whole collection that starts at uri, each member once. With an
// error, some are missing.
func members(get func(uri string) (object, error), uri string) ([]string, error) {
	var all []string
	var invalid error
	listed := 0
	for range maxPages {
		page, err := get(uri)
		if err != nil {
			return all, err
		}
		uris, err := page.links("Members")
		invalid = cmp.Or(invalid, err)
		if listed += len(uris); listed > maxMembers {
			return nil, errTooMany
		}
		for _, uri := range uris {
			if !slices.ContainsFunc(all, func(known string) bool { return sameResource(known, uri) }) {
				all = append(all, uri)
			}
		}
		if uri = page.exact("Members@odata.nextLink"); uri == "" {
			var count int
			if invalid == nil && json.Unmarshal(page["Members@odata.count"], &count) == nil && count > listed {
				return all, failf(bmc.KindProtocol, "the collection counts %d members and lists %d", count, listed)
			}
			return all, invalid
		}
	}
	return nil, errTooMany
}

// sameResource reports whether two links lead to one resource: the slash at the
// end does not matter.
func sameResource(a, b string) bool {
	return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}
