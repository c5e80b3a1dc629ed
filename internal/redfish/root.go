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

// standardSessionsURI is the URI for logins at nearly all services. Trying it
// first saves reading the service root before a power-off.
const standardSessionsURI = "/redfish/v1/SessionService/Sessions"

// standardSystemsURI is that of the systems at every service. Lite-On's root does not
// name it.
const standardSystemsURI = "/redfish/v1/Systems"

// links are the links of the service root that we follow; gofish does not export
// them.
type links struct{ sessions, systems, managers string }

// serviceLinks reads the service root once; it does not change.
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

// connect returns a gofish client bound to ctx without a request. gofish reads
// the service root for every client; noRequests gives it an empty one.
func (c *Client) connect(ctx context.Context, a auth) (*gofish.APIClient, error) {
	conf := gofish.ClientConfig{Endpoint: c.device.Endpoint.BaseURL(), HTTPClient: noRequests, Session: a.session}
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

// noRequests answers every request with an empty resource and sends nothing.
var noRequests = &http.Client{Transport: emptyRoot{}}

type emptyRoot struct{}

func (emptyRoot) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}
