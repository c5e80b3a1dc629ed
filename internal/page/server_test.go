package page

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/must"
)

const testHost = "127.0.0.1:4711"

// pageOf is a server of a daemon, without a port: requests are passed to it.
func pageOf(t testing.TB, d *daemon, cluster string) (s *server, token string) {
	t.Helper()
	socket := socketOf(t)
	d.serve(t, socket)
	return newServer(newHub(api.New(socket), cluster, func(error) {}), testHost, t.Context().Done())
}

// get asks as the browser does that has the cookie; edit changes that.
func get(s *server, path string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://"+testHost+path, http.NoBody)
	r.AddCookie(&http.Cookie{Name: s.cookie, Value: s.value})
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestWhoMayRead: the page answers only the browser that has its cookie, under its address, from its own pages.
func TestWhoMayRead(t *testing.T) {
	s, _ := pageOf(t, scene(noon), "")
	cookie := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Cookie")
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
	}
	method := func(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for name, c := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"its own":                      {nil, http.StatusOK},
		"HEAD":                         {method(http.MethodHead), http.StatusOK},
		"typed into the browser":       {header("Sec-Fetch-Site", "none"), http.StatusOK},
		"its own origin":               {header("Origin", "http://"+testHost), http.StatusOK},
		"a browser of before fetch":    {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, http.StatusOK},
		"no cookie":                    {func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"an empty cookie":              {cookie(s.cookie, ""), http.StatusForbidden},
		"another cookie":               {cookie(s.cookie, random()), http.StatusForbidden},
		"the cookie of another ui":     {cookie("fencectl-4712", s.value), http.StatusForbidden},
		"the name of the host":         {host("localhost:4711"), http.StatusForbidden},
		"a name that was rebound":      {host("attacker.example:4711"), http.StatusForbidden},
		"another port":                 {host("127.0.0.1:80"), http.StatusForbidden},
		"no port":                      {host("127.0.0.1"), http.StatusForbidden},
		"no host":                      {host(""), http.StatusForbidden},
		"a page of another site":       {header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"a page on another port":       {header("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"the origin of another port":   {header("Origin", "http://127.0.0.1:4712"), http.StatusForbidden},
		"no origin, as of a sandbox":   {header("Origin", "null"), http.StatusForbidden},
		"the origin with another name": {header("Origin", "https://"+testHost), http.StatusForbidden},
		"POST":                         {method(http.MethodPost), http.StatusMethodNotAllowed},
		"PUT":                          {method(http.MethodPut), http.StatusMethodNotAllowed},
		"DELETE":                       {method(http.MethodDelete), http.StatusMethodNotAllowed},
		"OPTIONS":                      {method(http.MethodOptions), http.StatusMethodNotAllowed},
		"CONNECT":                      {method(http.MethodConnect), http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{s.path, s.path + "node?node=worker-3", s.path + "run?id=mi42k0z3-4f9a1c", s.path + "style.css", s.path + "page.js"} {
				w := get(s, path, c.edit)
				assert.Equal(t, c.want, w.Code, path)
				if c.want != http.StatusOK {
					assert.NotContains(t, w.Body.String(), "worker")
				}
				for name, value := range headers {
					assert.Equal(t, value, w.Header().Get(name))
				}
				assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
				assert.Empty(t, w.Header().Get("Set-Cookie"))
			}
		})
	}
}

// TestNothingElseIsServed: with the cookie too, there are only the pages, and names have the syntax of names.
func TestNothingElseIsServed(t *testing.T) {
	s, _ := pageOf(t, scene(noon), "")
	for path, want := range map[string]int{
		"/": 404, s.path + "..%2f": 404, s.path + "assets/style.css": 404, s.path + "templates/run.html": 404, s.path + "server.go": 404, s.path + "node": 404,
		s.path + "node?node=a/../b": 404, s.path + "node?node=%3Cscript%3E": 404, s.path + "node?machine=worker-1": 404, s.path + "run": 404, s.path + "run?id=..": 404,
		s.path + "node?node=worker-1&cluster=a%20b": 404, s.path + "node?node=nobody": 404, s.path + "run?id=unknown-000000": 404, s.path + "icon.svg": 200,
	} {
		w := get(s, path, nil)
		assert.Equal(t, want, w.Code, path)
		assert.NotContains(t, w.Body.String(), "<script>", path)
	}
}

// TestTokenWorksOnce: it gives a cookie for a path that only this browser knows, once; no other request uses it up.
func TestTokenWorksOnce(t *testing.T) {
	s, token := pageOf(t, scene(noon), "")
	ask := func(edit func(*http.Request), token string) *httptest.ResponseRecorder {
		return get(s, "/?token="+token, func(r *http.Request) {
			r.Header.Del("Cookie")
			r.Header.Set("Sec-Fetch-Site", "none")
			if edit != nil {
				edit(r)
			}
		})
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"a guess":        ask(nil, random()),
		"nothing":        ask(nil, ""),
		"another page":   ask(header("Sec-Fetch-Site", "cross-site"), token),
		"another port":   ask(header("Sec-Fetch-Site", "same-site"), token),
		"another origin": ask(header("Origin", "http://attacker.example"), token),
		"another name":   ask(func(r *http.Request) { r.Host = "attacker.example" }, token),
		"HEAD":           ask(func(r *http.Request) { r.Method = http.MethodHead }, token),
		"POST":           ask(func(r *http.Request) { r.Method = http.MethodPost }, token),
	} {
		assert.GreaterOrEqual(t, w.Code, 403, name)
		assert.Empty(t, w.Header().Get("Set-Cookie"), name)
	}
	w := ask(nil, token)
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, s.path, w.Header().Get("Location"), "the token is not in the address any more")
	set := must.Do(http.ParseSetCookie(w.Header().Get("Set-Cookie")))(t)
	assert.True(t, set.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, set.SameSite)
	assert.Equal(t, "fencectl-4711", set.Name)
	assert.Equal(t, s.path, set.Path)
	assert.Zero(t, set.MaxAge)
	assert.GreaterOrEqual(t, len(set.Value), 43, "256 bits")
	assert.GreaterOrEqual(t, len(set.Path), 34, "128 bits: a server on another port is not sent the cookie")
	assert.Empty(t, set.Domain)
	assert.Equal(t, http.StatusOK, get(s, s.path, func(r *http.Request) {
		r.Header.Del("Cookie")
		r.AddCookie(&http.Cookie{Name: set.Name, Value: set.Value})
	}).Code)
	w = ask(nil, token)
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Empty(t, w.Header().Get("Set-Cookie"))
}

// TestTwoPagesShareNothing: tokens, cookies and paths are new each time.
func TestTwoPagesShareNothing(t *testing.T) {
	a, tokenA := newServer(nil, testHost, nil)
	b, tokenB := newServer(nil, testHost, nil)
	assert.NotEqual(t, tokenA, tokenB)
	assert.NotEqual(t, a.value, b.value)
	assert.NotEqual(t, a.path, b.path)
}

// TestStreamsAreBounded: the next one is refused, and one that ends gives its place back.
func TestStreamsAreBounded(t *testing.T) {
	s, _ := pageOf(t, scene(noon), "")
	s.streams.Store(maxStreams)
	assert.Equal(t, http.StatusServiceUnavailable, get(s, s.path+"live/", nil).Code)
	assert.EqualValues(t, maxStreams, s.streams.Load())
	assert.Equal(t, http.StatusMethodNotAllowed, get(s, s.path+"live/", func(r *http.Request) { r.Method = http.MethodHead }).Code, "a stream without a body never ends")
}

// TestViewsAreBounded: whoever opens page after page does not fill the memory.
func TestViewsAreBounded(t *testing.T) {
	s, _ := pageOf(t, scene(noon), "")
	for i := range maxViews {
		s.hub.views[place{kind: "node", name: strings.Repeat("x", i+1)}] = &view{readers: 1, used: noon.Add(time.Duration(i) * time.Second)}
	}
	w := get(s, s.path, nil)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), errTooManyPages.Error())
	for _, left := range []string{"xxxx", "xx"} {
		s.hub.views[place{kind: "node", name: left}].readers = 0
	}
	assert.Equal(t, http.StatusOK, get(s, s.path, nil).Code)
	assert.Len(t, s.hub.views, maxViews)
	assert.NotContains(t, s.hub.views, place{kind: "node", name: "xx"}, "the one that nobody looks at for the longest time")
}

// TestServe: the real thing on a real port, from the address to the end.
func TestServe(t *testing.T) {
	socket := socketOf(t)
	scene(noon).serve(t, socket)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, api.New(socket), "", func(a string) error { address <- a; return nil })
	}()
	at := <-address
	assert.Regexp(t, `^http://127\.0\.0\.1:[0-9]+/\?token=[A-Za-z0-9_-]{43}$`, at)
	var base string
	browser := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error { base = r.URL.String(); return http.ErrUseLastResponse }}
	resp := must.Do(browser.Get(at))(t)
	must.Do(0, resp.Body.Close())(t)
	request := must.Do(http.NewRequestWithContext(ctx, http.MethodGet, base, http.NoBody))(t)
	request.AddCookie(resp.Cookies()[0])
	resp = must.Do(browser.Do(request))(t)
	body := must.Do(io.ReadAll(resp.Body))(t)
	must.Do(0, resp.Body.Close())(t)
	assert.Contains(t, string(body), "worker-24")
	cancel()
	assert.NoError(t, <-ended)
	_, err := browser.Get(at)
	assert.Error(t, err, "it ends with the command")
}

// TestNoDaemonNoPage: without the daemon there is nothing to show, and no port.
func TestNoDaemonNoPage(t *testing.T) {
	err := Serve(t.Context(), api.New(socketOf(t)), "", func(string) error { t.Error("it started"); return nil })
	assert.ErrorIs(t, err, api.ErrUnreachable)
}
