package redfish

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

// standardSessions is where services take logins, nearly all of them. Trying it
// first saves asking the service root on the way to a power-off.
const standardSessions = "/redfish/v1/SessionService/Sessions"

// links are what we follow from the service root; gofish keeps them to itself.
type links struct{ sessions, systems, managers string }

// serviceLinks reads the service root, once: it does not change.
func (c *Client) serviceLinks(api *gofish.APIClient) (links, error) {
	if c.links != nil {
		return *c.links, nil
	}
	root, _, err := fetch(api, common.DefaultServiceRoot)
	if statusOf(err) == http.StatusNotFound {
		return links{}, failf(bmc.KindProtocol, "there is no Redfish service: %w", err)
	}
	if err != nil {
		return links{}, err
	}
	c.links = &links{
		sessions: root.object("Links").link("Sessions"),
		systems:  root.link("Systems"),
		managers: root.link("Managers"),
	}
	return *c.links, nil
}

// connect gives a gofish client bound to ctx. It costs no request: gofish insists
// on reading the service root for every client, and is given an empty one.
func (c *Client) connect(ctx context.Context, a auth) (*gofish.APIClient, error) {
	conf := gofish.ClientConfig{Endpoint: c.device.Endpoint.BaseURL(), HTTPClient: unasked, Session: a.session}
	if a.basic {
		conf.BasicAuth, conf.Username, conf.Password = true, c.device.Username, c.device.Password.Reveal()
	}
	api, err := gofish.ConnectContext(ctx, conf)
	if err != nil {
		return nil, err
	}
	api.HTTPClient = c.http
	return api, nil
}

// unasked answers every request with an empty resource and sends nothing.
var unasked = &http.Client{Transport: emptyRoot{}}

type emptyRoot struct{}

func (emptyRoot) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}
