package redfish

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

const maxRedirects = 3

// errRedirected marks the error of a request that was redirected in a way that is
// not followed.
var errRedirected = errors.New("not followed")

// checkRedirect follows a redirect only on the BMC's own origin, and only if it
// keeps the method: that is 307 and 308, and all of them for a read. A redirected
// POST could otherwise become a GET, whose 200 would look like an accepted command.
// Credentials never leave the origin. // I10
func (t *transport) checkRedirect(req *http.Request, via []*http.Request) error {
	method := via[0].Method
	switch {
	case !t.endpoint.Serves(req.URL):
		return failf(bmc.KindProtocol, "the BMC redirects a %s to another host, %q: %w", method, origin(req.URL), errRedirected)
	case req.Method != method:
		return failf(bmc.KindProtocol, "the BMC redirects a %s as a %s: %w", method, req.Method, errRedirected)
	case len(via) > maxRedirects:
		return failf(bmc.KindProtocol, "the BMC redirects more than %d times", maxRedirects)
	}
	return nil
}

// checkURL refuses a URL outside the configured scheme, host and port. BMCs
// return links, action targets and redirects as text. Appended to our address,
// "@elsewhere/" is a URL on another host, which would receive our session
// token. // I10
func (t *transport) checkURL(u *url.URL) error {
	if t.endpoint.Serves(u) {
		return nil
	}
	return failf(bmc.KindProtocol, "the BMC refers to another host, %q: not followed", origin(u))
}

// origin is the part of u that is shown in an error: without user information.
func origin(u *url.URL) string { return bmc.Printable(u.Scheme+"://"+u.Host, maxIdentity) }

// path returns the path of a target that a BMC gave as text. Some give a whole
// URL; it must be on the BMC's own origin. // I10
func (t *transport) path(target string) (string, error) {
	if len(target) <= maxURI && strings.HasPrefix(target, "/") {
		return target, nil
	}
	u, err := url.Parse(target)
	if err != nil || len(target) > maxURI || !u.IsAbs() || u.Host == "" {
		return "", failf(bmc.KindProtocol, "%q is no path of the service", bmc.Printable(target, maxIdentity))
	}
	if err := t.checkURL(u); err != nil {
		return "", err
	}
	return u.RequestURI(), nil
}

type actionKey struct{}

// withAction marks the requests of ctx as a power command, also after a redirect.
func withAction(ctx context.Context) context.Context {
	return context.WithValue(ctx, actionKey{}, true)
}

func isAction(req *http.Request) bool { return req.Context().Value(actionKey{}) != nil }
