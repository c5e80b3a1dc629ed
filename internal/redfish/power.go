package redfish

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stmcginnis/gofish"

	"github.com/fenced/fenced/internal/bmc"
)

// Read reads the power state and the identity, in one request.
func (c *Client) Read(ctx context.Context) (bmc.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	r, s, err := c.read(ctx)
	if err != nil {
		return bmc.Reading{}, c.fail("read power state", bmc.SentNo, err)
	}
	if s.repeated == nil { // else nobody knows who answered
		c.lastIdentity = &r.Identity
	}
	return r, nil
}

func (c *Client) read(ctx context.Context) (r bmc.Reading, s *system, err error) {
	err = c.do(ctx, func(api *gofish.APIClient) (err error) {
		if s, err = c.system(ctx, api); err == nil {
			r = s.reading(time.Now())
		}
		return err
	})
	r.Session = c.number.Load()
	return r, s, err
}

// Send sends an absolute power command; it is idempotent. If the BMC refuses it
// as invalid in the current state, Send reads the state: a host that is already
// in the wanted state is no error.
func (c *Client) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.SendTimeout)
	defer cancel()
	sent, err := c.send(ctx, cmd)
	if err == nil {
		return bmc.Receipt{}, nil
	}
	if status := statusOf(err); sent == bmc.SentYes && (status == http.StatusConflict || status == http.StatusBadRequest) {
		target, _ := wantedState(cmd)
		if r, _, readErr := c.read(ctx); readErr == nil && r.State == target {
			return bmc.Receipt{Already: true}, nil
		}
	}
	return bmc.Receipt{}, c.fail("send "+cmd.String(), sent, err)
}

// send sends cmd, again if the connection of the last reading has ended: it reads
// first then. If a service ends connections without a word, that shows at the second
// try, and the third asks for it.
func (c *Client) send(ctx context.Context, cmd bmc.Command) (sent bmc.Sent, err error) {
	for range 3 {
		sent, err = c.command(ctx, cmd)
		if !errors.Is(err, errOtherConnection) || sent != bmc.SentNo {
			break
		}
	}
	return sent, err
}

func (c *Client) command(ctx context.Context, cmd bmc.Command) (bmc.Sent, error) {
	sent := bmc.SentNo
	err := c.do(ctx, func(api *gofish.APIClient) error {
		sent = bmc.SentNo // second try after a 401, which carried out nothing
		s, err := c.resettable(ctx, api)
		if err != nil {
			return err
		}
		kind, err := s.reset.choose(cmd)
		if err != nil {
			return err
		}
		sent, err = c.post(ctx, s, kind, "")
		if needsETag(err) {
			sent, err = c.postWithETag(ctx, api, cmd, err)
		}
		return err
	})
	return sent, err
}

// resettable returns the system with its allowed reset types. If it was read on
// this session, it is not read again, so that a command after a read is one
// request. It must be the machine that answered the last Read: on another session
// or connection the address may lead to another machine. // I8
func (c *Client) resettable(ctx context.Context, api *gofish.APIClient) (*system, error) {
	s := c.lastSystem
	if s == nil || c.lastSystemNumber != c.number.Load() || c.auth.basic && c.wire.read.isClosing() {
		var err error
		if s, err = c.system(ctx, api); err != nil {
			return nil, err
		}
	}
	if s.repeated != nil {
		return nil, s.repeated
	}
	if c.lastIdentity != nil && !c.lastIdentity.Equal(s.identity) {
		return nil, failf(bmc.KindIdentity, "system %q (serial %q) was read, but %q (serial %q) answers now; no command was sent",
			c.lastIdentity.UUID, c.lastIdentity.Serial, s.identity.UUID, s.identity.Serial)
	}
	if len(s.reset.types) == 0 && s.reset.info != "" {
		uri, err := c.wire.path(s.reset.info)
		if err != nil {
			return nil, err
		}
		types, err := actionInfo(api, uri)
		if err != nil {
			return nil, err
		}
		s.reset.types = types
	}
	return s, nil
}
