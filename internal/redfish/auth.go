package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"

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
	session, err := c.openSession(ctx)
	next := auth{session: session, basic: session == nil}
	switch {
	case session != nil:
		c.basicRefused = false
	case err != nil && !sessionsUsedUp(err):
		return loginError(err)
	case err != nil && c.basicRefused:
		return failf(bmc.KindSessions, "no session left, and Basic authentication is refused: %w", err)
	default:
		next.limited = err != nil
	}
	if !c.auth.basic || !next.basic { // Basic is settled anew because the number changed
		c.restarted()
	}
	next.number = c.number.Load()
	c.auth = next
	return nil
}

// openSession logs in where the service takes logins. No session and no error
// is a service that has none to give.
func (c *Client) openSession(ctx context.Context) (*gofish.Session, error) {
	if c.logins == "" && c.links == nil {
		session, err := c.login(ctx, standardSessions)
		if session != nil {
			c.logins = standardSessions
		}
		if session != nil || sessionsUsedUp(err) || err != nil && !misplaced(err) {
			return session, err
		}
		// The service root tells, without credentials, whether the refusal came from
		// the place of logins, or only from there being none at this path.
		api, rootErr := c.connect(ctx, auth{})
		if rootErr != nil {
			return nil, rootErr
		}
		l, rootErr := c.serviceLinks(api)
		if rootErr != nil {
			return nil, rootErr
		}
		if strings.TrimSuffix(l.sessions, "/") == standardSessions && !errors.Is(err, errRedirected) {
			return nil, unlessNoSessions(err)
		}
	}
	if c.logins == "" {
		c.logins = c.links.sessions
	}
	if c.logins == "" {
		return nil, nil
	}
	session, err := c.login(ctx, c.logins)
	return session, unlessNoSessions(err)
}

// misplaced says whether a login at a path that is only usual may have failed
// because this service takes logins elsewhere, or nowhere.
func misplaced(err error) bool {
	return errors.Is(err, errRedirected) || statusOf(err) >= 400 && statusOf(err) < 500 || hasNoSessions(err)
}

// unlessNoSessions is err, but nil where it says that the service has no sessions.
func unlessNoSessions(err error) error {
	if hasNoSessions(err) {
		return nil
	}
	return err
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
			if session != nil {
				c.abandon(ctx, session)
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

// createSession asks for a session at uri; nil is a service that gave no token.
// gofish would not find the name of one that stands in the body only.
func (c *Client) createSession(ctx context.Context, uri string) (*gofish.Session, error) {
	api, err := c.connect(ctx, auth{})
	if err != nil {
		return nil, err
	}
	resp, err := api.Post(uri, struct{ UserName, Password string }{c.device.Username, c.device.Password.Reveal()})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	token := resp.Header.Get("X-Auth-Token")
	if token == "" {
		return nil, nil
	}
	var body object
	_ = json.NewDecoder(resp.Body).Decode(&body) // some send none
	id := body.uri()
	if l, err := url.Parse(resp.Header.Get("Location")); err == nil && strings.HasPrefix(l.Path, "/") {
		id = l.RequestURI() // some name their own host in it, others another
	}
	return &gofish.Session{ID: id, Token: token}, nil
}

// abandon ends sessions when nobody is left to tell of a failure; then the
// BMC's idle timeout remains.
func (c *Client) abandon(ctx context.Context, sessions ...*gofish.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, s := range sessions {
		_ = c.endSession(ctx, s)
	}
}

// endSession deletes a session. One that is gone already is as good.
func (c *Client) endSession(ctx context.Context, s *gofish.Session) error {
	if s.ID == "" {
		return nil // it has no name to be ended by
	}
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
