package bmclib

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// loginTimeout is how long the answer to a login is waited for, to end the
// session that it may have begun.
const loginTimeout = 10 * time.Second

// logsIn says whether req begins a Redfish session.
func logsIn(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(strings.TrimSuffix(req.URL.Path, "/"), "/Sessions")
}

// login sends req beyond the end of ctx: a session that a BMC opened for a caller
// who is gone would hold one of its few places.
func (g *guard) login(ctx context.Context, req *http.Request) (*http.Response, error) {
	type answer struct {
		resp *http.Response
		err  error
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
	done := make(chan answer, 1)
	go func() {
		resp, err := g.exchange(req.Clone(own))
		done <- answer{resp, err}
	}()
	select {
	case a := <-done:
		cancel()
		return a.resp, a.err
	case <-ctx.Done():
		go func() {
			defer cancel()
			if a := <-done; a.err == nil {
				g.forget(own, req, a.resp)
			}
		}()
		return nil, ctx.Err()
	}
}

// forget ends the session that resp began.
func (g *guard) forget(ctx context.Context, req *http.Request, resp *http.Response) {
	defer g.transport.CloseIdleConnections()
	session, err := req.URL.Parse(resp.Header.Get("Location"))
	token := resp.Header.Get("X-Auth-Token")
	if err != nil || token == "" || g.foreign(session) != nil {
		return
	}
	end, err := http.NewRequestWithContext(ctx, http.MethodDelete, session.String(), nil)
	if err != nil {
		return
	}
	end.Header.Set("X-Auth-Token", token)
	_, _ = g.exchange(end) // a session that cannot be ended ends by the BMC's own timeout
}
