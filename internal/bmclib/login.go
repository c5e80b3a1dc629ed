package bmclib

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// loginTimeout is how long to wait for the answer to a login after ctx ended, to
// end the session that it may have started.
const loginTimeout = 10 * time.Second

// isLogin reports whether req starts a Redfish session.
func isLogin(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(strings.TrimSuffix(req.URL.Path, "/"), "/Sessions")
}

// login sends req beyond the end of ctx: a session that nobody ends would use one
// of the BMC's few sessions.
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

// forget ends the session that resp started.
func (g *guard) forget(ctx context.Context, req *http.Request, resp *http.Response) {
	defer g.transport.CloseIdleConnections()
	session, err := req.URL.Parse(resp.Header.Get("Location"))
	token := resp.Header.Get("X-Auth-Token")
	if err != nil || token == "" || g.checkURL(session) != nil {
		return
	}
	end, err := http.NewRequestWithContext(ctx, http.MethodDelete, session.String(), nil)
	if err != nil {
		return
	}
	end.Header.Set("X-Auth-Token", token)
	_, _ = g.exchange(end) // otherwise the BMC's own timeout ends the session
}
