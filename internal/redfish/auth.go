package redfish

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"

	"github.com/fenced/fenced/internal/bmc"
)

// loginTimeout bounds a login that nobody waits for any more.
const loginTimeout = 10 * time.Second

// auth is how requests are authenticated. The zero value is: not yet.
type auth struct {
	session *gofish.Session
	basic   bool
	// limited says that basic stands in for a login the BMC had no room for.
	limited bool
	// number is the session number when this was chosen.
	number uint64
}

// settled says whether a needs no new login. After a restart of the BMC there
// may be room for a session again, so Basic is not kept.
func (a auth) settled(number uint64) bool {
	return a.session != nil || a.basic && a.number == number
}

// authenticate opens a session, or turns to Basic authentication where the
// service has no sessions or none left. A refused password is final: trying it
// in another way would count as one more failure towards a lockout.
func (c *Client) authenticate(ctx context.Context) error {
	if c.auth.settled(c.number.Load()) {
		return nil
	}
	api, err := c.connect(ctx, auth{})
	if err != nil {
		return err
	}
	links, err := rootLinks(api)
	if err != nil {
		return err
	}
	next := auth{basic: true}
	if links.Sessions != "" {
		session, err := c.login(ctx, links.Sessions)
		switch {
		case err == nil && session.Token != "":
			next = auth{session: session}
			c.basicRefused = false
		case err != nil && !hasNoSessions(err) && !sessionsUsedUp(err):
			return loginError(err)
		case err != nil:
			next.limited = sessionsUsedUp(err)
		}
		if next.limited && c.basicRefused {
			return failf(bmc.KindSessions, "no session left, and Basic authentication is refused: %w", err)
		}
	}
	c.restarted()
	next.number = c.number.Load()
	c.auth = next
	return nil
}

// refuseBasic takes note that Basic is no way around a lack of sessions, so
// that the password is not tried again and again.
func (c *Client) refuseBasic(err error) error {
	c.auth, c.basicRefused = auth{}, true
	return failf(bmc.KindSessions, "no session left, and Basic authentication is refused: %w", err)
}

// login creates a session. The request has a life of its own: when ctx ends
// first, the answer is still awaited, in order to delete the session it brings;
// BMCs have few, and give them back late.
func (c *Client) login(ctx context.Context, uri string) (*gofish.Session, error) {
	type answer struct {
		session *gofish.Session
		err     error
	}
	answers := make(chan answer) // not buffered: an answer is used or late, never both
	done := make(chan struct{})
	go func() {
		defer close(done)
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
		defer cancel()
		session, err := c.createSession(own, uri)
		select {
		case answers <- answer{session, err}:
		case <-ctx.Done():
			if err == nil {
				end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
				defer cancel()
				_ = c.endSession(end, session) // nobody is left to tell; the BMC's idle timeout remains
			}
		}
	}()
	select {
	case a := <-answers:
		return a.session, a.err
	case <-ctx.Done():
		c.late = append(c.late, done)
		return nil, ctx.Err()
	}
}

func (c *Client) createSession(ctx context.Context, uri string) (*gofish.Session, error) {
	api, err := c.connect(ctx, auth{})
	if err != nil {
		return nil, err
	}
	token, err := redfish.CreateSession(api, uri, c.device.Username, c.device.Password.Reveal())
	if err != nil {
		return nil, err
	}
	return &gofish.Session{ID: token.Session, Token: token.Token}, nil
}

// endSession deletes a session. One that is gone already is as good.
func (c *Client) endSession(ctx context.Context, s *gofish.Session) error {
	api, err := c.connect(ctx, auth{session: s})
	if err != nil {
		return err
	}
	_, err = api.Delete(s.ID)
	switch statusOf(err) {
	case http.StatusUnauthorized, http.StatusNotFound:
		return nil
	}
	return err
}

// hasNoSessions says whether a login failed because the service knows none.
func hasNoSessions(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// sessionsUsedUp says whether a login failed for want of room. The status of
// that differs between vendors, the message less.
func sessionsUsedUp(err error) bool {
	return statusOf(err) == http.StatusServiceUnavailable ||
		hasMessage(err, "SessionLimitExceeded") || hasMessage(err, "CreateLimitReachedForResource")
}

// loginError types a failed login: iLO answers a wrong password with 400.
func loginError(err error) error {
	if statusOf(err) == http.StatusBadRequest && hasMessage(err, "Unauthorized") {
		return failf(bmc.KindAuth, "%w", err)
	}
	return err
}

func hasMessage(err error, id string) bool {
	e := answerOf(err)
	if e == nil {
		return false
	}
	for _, info := range e.ExtendedInfos {
		if strings.Contains(info.MessageID, id) {
			return true
		}
	}
	return strings.Contains(e.Code, id)
}
