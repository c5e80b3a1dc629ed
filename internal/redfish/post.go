package redfish

import (
	"context"
	"net/http"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

// maxETag limits the length of an ETag, in bytes. A longer one is not used.
const maxETag = 256

// post sends the reset, with If-Match if etag is not empty. It returns whether the
// reset may have arrived.
func (c *Client) post(ctx context.Context, s *system, kind redfish.ResetType, etag string) (bmc.Sent, error) {
	target, err := c.wire.path(s.reset.target)
	if err != nil {
		return bmc.SentNo, err
	}
	before := c.wire.carried.Load()
	api, err := c.connect(withAction(ctx), c.auth)
	if err != nil {
		return bmc.SentNo, err
	}
	headers := map[string]string{}
	if etag != "" {
		headers["If-Match"] = etag
	}
	resp, err := api.PostWithHeaders(target, struct{ ResetType redfish.ResetType }{kind}, headers)
	if err == nil {
		resp.Body.Close()
		return bmc.SentYes, nil // 200, 201, 202 with a task, 204: accepted, but not proven
	}
	c.lastSystem = nil // the refusal may mean that it has changed
	status := statusOf(err)
	switch {
	case status >= 400 && status < 500:
		return bmc.SentYes, err
	case c.wire.carried.Load() != before:
		return bmc.SentMaybe, err
	}
	return bmc.SentNo, err
}

// needsETag reports whether a reset was refused because it had no If-Match: AMI
// MegaRAC answers 428, Huawei iBMC 412. The first try has none, because the ETag
// changes with the power state, and iDRAC 10 refuses it on every action.
func needsETag(err error) bool {
	status := statusOf(err)
	return status == http.StatusPreconditionFailed || status == http.StatusPreconditionRequired
}

// postWithETag reads the system again and sends the reset with its ETag, once. The
// reset is absolute, so nothing depends on the state that the ETag stands for. The
// machine must be the one that was read. // I3, I8
func (c *Client) postWithETag(ctx context.Context, api *gofish.APIClient, cmd bmc.Command, refusal error) (bmc.Sent, error) {
	s, err := c.resettable(ctx, api)
	if err != nil {
		return bmc.SentYes, err // the first one arrived, and was refused
	}
	if s.etag == "" {
		return bmc.SentYes, refusal
	}
	kind, err := s.reset.choose(cmd)
	if err != nil {
		return bmc.SentYes, err
	}
	return c.post(ctx, s, kind, s.etag)
}

// etagOf returns the ETag of a resource, "" if it has none that can be used.
func etagOf(o object, h http.Header) string {
	etag := h.Get("ETag")
	if etag == "" {
		etag = o.exact("@odata.etag")
	}
	if len(etag) > maxETag {
		return ""
	}
	return etag
}
