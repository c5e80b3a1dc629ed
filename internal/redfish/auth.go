package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"

	"github.com/fenced/fenced/internal/bmc"
)

// auth is how requests are authenticated. The zero value means not decided yet.
type auth struct {
	session *gofish.Session
	basic   bool
	// limited: basic is used because the BMC had no session left.
	limited bool
	// number is the session number at the time of the decision.
	number uint64
}

// isReady reports whether no new login is needed. After a restart the BMC may
// have sessions again, so Basic is not kept.
func (a auth) isReady(number uint64) bool {
	return a.session != nil || a.basic && a.number == number
}

// authenticate opens a session, or uses Basic authentication if the service has
// no sessions or none left. A refused password is final: another try would count
// towards a lockout.
func (c *Client) authenticate(ctx context.Context) error {
	if c.auth.isReady(c.number.Load()) {
		return nil
	}
	session, err := c.openSession(ctx)
	next := auth{session: session, basic: session == nil}
	switch {
	case session != nil:
		c.basicRefused, c.token = false, bmc.NewSecret(session.Token)
	case err != nil && !sessionsUsedUp(err):
		return c.loginError(err)
	case err != nil && c.basicRefused:
		return failf(bmc.KindSessions, "no session left, and Basic authentication is refused: %w", err)
	default:
		next.limited = err != nil
	}
	if !c.auth.basic || !next.basic { // Basic is decided again, because the number changed
		c.newNumber()
	}
	next.number = c.number.Load()
	c.auth = next
	return nil
}

// openSession logs in if the service supports sessions, and the device's entry does
// not say that it demands Basic authentication. No session and no error means that
// there is none.
func (c *Client) openSession(ctx context.Context) (*gofish.Session, error) {
	if c.device.BasicAuth {
		return nil, nil
	}
	if c.logins == "" && c.links == nil {
		session, err := c.login(ctx, standardSessionsURI)
		if session != nil {
			c.logins = standardSessionsURI
		}
		if session != nil || sessionsUsedUp(err) || err != nil && !isAtWrongPath(err) {
			return session, err
		}
		// The service root shows, without credentials, whether the login was refused,
		// or only sent to a path that does not exist.
		l, rootErr := c.linksWithoutLogin(ctx)
		if rootErr != nil && bmc.KindOfStatus(statusOf(err)).RefusesAccount() {
			return nil, err // nothing says that the path was wrong, and the next try could lock the account
		}
		if rootErr != nil {
			return nil, rootErr
		}
		if strings.TrimSuffix(l.sessions, "/") == standardSessionsURI && !errors.Is(err, errRedirected) {
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

// linksWithoutLogin reads the service root, which is open to all.
func (c *Client) linksWithoutLogin(ctx context.Context) (links, error) {
	api, err := c.connect(ctx, auth{})
	if err != nil {
		return links{}, err
	}
	return c.serviceLinks(api)
}

// isAtWrongPath reports whether a login at the default path may have failed
// because this service has another path for logins, or none.
func isAtWrongPath(err error) bool {
	return errors.Is(err, errRedirected) || statusOf(err) >= 400 && statusOf(err) < 500 || hasNoSessions(err)
}

// unlessNoSessions returns err, or nil if it means that the service has no
// sessions.
func unlessNoSessions(err error) error {
	if hasNoSessions(err) {
		return nil
	}
	return err
}

// markBasicRefused records that Basic cannot replace a session, so that the
// password is not sent again and again.
func (c *Client) markBasicRefused(err error) error {
	c.auth, c.basicRefused = auth{}, true
	return failf(bmc.KindSessions, "no session left, and Basic authentication is refused: %w", err)
}

// lateRefusal is the refusal of a login whose caller had stopped waiting.
type lateRefusal struct {
	uri string
	at  time.Time
	err error
}

// login creates a session. The request continues after ctx ends, because the
// session in its answer must be deleted: BMCs have few sessions, and expire them
// late. If it is refused then, the next login learns it: another try would count
// towards a lockout.
func (c *Client) login(ctx context.Context, uri string) (*gofish.Session, error) {
	if late := c.refusedLate.Swap(nil); late != nil && late.uri == uri && time.Since(late.at) < loginTimeout {
		return nil, late.err
	}
	type answer struct {
		session *gofish.Session
		err     error
	}
	answers := make(chan answer) // unbuffered: an answer is either used or late, never both
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
			} else if err != nil && kindOf(c.loginError(err)).RefusesAccount() {
				c.refusedLate.Store(&lateRefusal{uri, time.Now(), err})
			}
		}
	}()
	select {
	case a := <-answers:
		return a.session, a.err
	case <-ctx.Done():
		c.abandonedLogins = append(c.abandonedLogins, done)
		return nil, ctx.Err()
	}
}

// createSession requests a session at uri; nil means that the service returned no
// token. gofish would not find the URI of a session that is only in the body.
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
	_ = json.NewDecoder(resp.Body).Decode(&body) // some send no body
	id := body.uri()
	if l, err := url.Parse(resp.Header.Get("Location")); err == nil && strings.HasPrefix(l.Path, "/") {
		id = l.RequestURI() // some BMCs return a full URL, with their own host or another one
	}
	return &gofish.Session{ID: id, Token: token}, nil
}

// abandon ends sessions when no caller can handle a failure. If it fails, the
// BMC's idle timeout ends them.
func (c *Client) abandon(ctx context.Context, sessions ...*gofish.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, s := range sessions {
		_ = c.endSession(ctx, s)
	}
}

// endSession deletes a session. A session that no longer exists is no error.
func (c *Client) endSession(ctx context.Context, s *gofish.Session) error {
	if s.ID == "" {
		return nil // there is no URI to delete
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

// hasNoSessions reports whether a login failed because the service has no
// sessions.
func hasNoSessions(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// sessionsUsedUp reports whether a login failed because no session was left. The
// status differs between vendors, the message less.
func sessionsUsedUp(err error) bool {
	return statusOf(err) == http.StatusServiceUnavailable ||
		hasMessage(err, "SessionLimitExceeded") || hasMessage(err, "CreateLimitReachedForResource")
}

// loginError adds the Kind to a failed login, as iLO answers a wrong password with
// 400, and a hint if the service demands Basic authentication. A 400 whose text is
// lost may be that of iLO too.
func (c *Client) loginError(err error) error {
	switch {
	case statusOf(err) == http.StatusBadRequest && (hasMessage(err, "Unauthorized") || isUnexplained(err)):
		return failf(bmc.KindAuth, "%w", err)
	case statusOf(err) == http.StatusBadRequest && hasMessage(err, "LoginAttemptDelayed"): // for some seconds after somebody's wrong password, iLO asks nobody for one
		return failf(bmc.KindBusy, "%w", err)
	case statusOf(err) == http.StatusUnauthorized && c.wire.basicWanted.Load():
		return &hintError{"the service demands Basic authentication on the login itself: if user name and password are right, set auth: basic in hosts.d", err}
	}
	return err
}

// isLogin reports whether req creates a session.
func isLogin(req *http.Request) bool { return req.Method == http.MethodPost && !isAction(req) }

// wantsBasic reports whether a 401 asks for Basic authentication.
func wantsBasic(h http.Header) bool {
	return slices.ContainsFunc(h.Values("WWW-Authenticate"), func(challenge string) bool {
		return strings.Contains(strings.ToLower(challenge), "basic")
	})
}

// isUnexplained reports whether an error answer has no text that could be read.
func isUnexplained(err error) bool {
	e := answerOf(err)
	return e != nil && len(e.ExtendedInfos) == 0 && e.Code == ""
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
