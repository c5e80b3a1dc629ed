package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// withoutToken requires that nobody gets anything without the token, and that the token works once: a wrong one does not use it up.
// It uses another fencectl ui than the tests after it.
func withoutToken(t *testing.T, u ui) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(address string) int {
		r := must.Do(client.Get(address))(t)
		defer r.Body.Close()
		return r.StatusCode
	}
	for _, path := range []string{"", "live/", "run?id=a", "node?node=" + hungNode, "page.js", "style.css", "icon.svg", "favicon.ico", "?token=", "?token=" + strings.Repeat("A", 43)} {
		assert.Equal(t, http.StatusForbidden, get("http://"+u.host+"/"+path), path)
	}
}

// attacks is the script of a page of somebody else. It knows the address of the page, and even the path that it gave to its own
// browser. What it can read, or what reacts as if it were let in, is loot.
const attacks = `(async () => {
	const loot = [];
	const within = (what, attempt) => Promise.race([attempt(), new Promise((_, no) => setTimeout(no, 5000))])
		.then((got) => { if (got) loot.push(what + ": " + String(got).slice(0, 100)); }, () => {});
	const loads = (name, set) => () => new Promise((yes, no) => {
		const e = document.createElement(name);
		e.onload = () => yes("loaded");
		e.onerror = no;
		set(e);
		document.body.append(e);
	});
	const all = [];
	for (const page of %s) {
		all.push(
			within("fetch", async () => { const r = await fetch(page, {credentials: "include"}); return r.ok && await r.text(); }),
			within("fetch blindly", async () => { await fetch(page, {credentials: "include", mode: "no-cors"}); return ""; }),
			within("post", async () => { const r = await fetch(page, {method: "POST", credentials: "include", body: "a=b"}); return r.ok && r.status; }),
			within("events", () => new Promise((yes, no) => { const s = new EventSource(page, {withCredentials: true}); s.onopen = () => { s.close(); yes("open"); }; s.onerror = () => { s.close(); no(); }; })),
			within("image", loads("img", (e) => (e.src = page))),
			within("style", loads("link", (e) => { e.rel = "stylesheet"; e.href = page; })),
			within("script", loads("script", (e) => (e.src = page))),
			within("frame", async () => {
				const e = document.createElement("iframe");
				e.src = page;
				document.body.append(e);
				await new Promise((yes) => (e.onload = yes));
				try { return e.contentDocument.body.textContent.includes("Nodes") && "read"; } catch { return ""; }
			}),
			within("form", async () => {
				const frame = document.createElement("iframe"), form = document.createElement("form");
				frame.name = "f" + Math.random();
				form.method = "post"; form.action = page; form.target = frame.name;
				document.body.append(frame, form);
				const loaded = new Promise((yes) => (frame.onload = yes));
				form.submit();
				await loaded;
				return "";
			}),
		);
	}
	await Promise.all(all);
	return loot;
})()`

// attack has a page at an address attack the one at another, and returns what it got: what its script read, and what was answered
// as to somebody who may ask.
func attack(t *testing.T, b chrome, from, target, home string) (got []string) {
	t.Helper()
	tab := b.open(t)
	defer tab.close()
	tab.do(t, chromedp.Navigate(from))
	path := must.Do(url.Parse(home))(t).Path
	var pages []string
	for _, p := range []string{"/", "/?token=guess", path, path + "live/", path + "page.js", path + "style.css", path + "icon.svg", path + "run?id=a", path + "node?node=" + hungNode} {
		pages = append(pages, target+p)
	}
	got = eval[[]string](t, tab, fmt.Sprintf(attacks, jsonOf(t, pages)))
	tab.mu.Lock()
	defer tab.mu.Unlock()
	asked := 0
	for _, a := range tab.answers {
		if !strings.HasPrefix(a.url, target) {
			continue
		}
		asked++
		if !slices.Contains([]int64{http.StatusForbidden, http.StatusMethodNotAllowed}, a.status) {
			got = append(got, fmt.Sprintf("status %d from %s", a.status, a.url))
		}
	}
	require.NotZero(t, asked, "the attack did not come to the page")
	return got
}

// attacked requires that pages of others in the same browser get nothing: of another port of this machine, to which the browser
// sends every cookie for 127.0.0.1; of another site; and of a name that leads to the page itself (DNS rebinding).
func attacked(t *testing.T, b chrome, u ui, home string) {
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>win</title><link rel=icon href=data:,><body>"))
	}))
	defer evil.Close()
	_, evilPort, _ := net.SplitHostPort(strings.TrimPrefix(evil.URL, "http://"))
	_, port, _ := net.SplitHostPort(u.host)
	rebound := "http://" + rebindName + ":" + port
	page := "http://" + u.host
	assert.Empty(t, attack(t, b, evil.URL, page, home), "from another port")
	assert.Empty(t, attack(t, b, "http://"+attackerName+":"+evilPort, page, home), "from another site")
	assert.Empty(t, attack(t, b, rebound+"/", rebound, home), "by DNS rebinding")

	// The test must notice a page that is not guarded as well.
	cookie := cookieOf(t, b, home)
	for name, m := range map[string]mutant{
		"it does not look who asks":       {page: page, strip: []string{"Origin", "Sec-Fetch-Site"}},
		"it lets in without a cookie":     {page: page, strip: []string{"Origin", "Sec-Fetch-Site"}, cookie: cookie},
		"it lets in under any other name": {page: page, strip: []string{"Origin", "Sec-Fetch-Site"}, cookie: cookie, anyName: true},
	} {
		t.Run(name, func(t *testing.T) {
			weak := httptest.NewServer(m)
			defer func() {
				weak.CloseClientConnections() // streams of events
				weak.Close()
			}()
			if _, weakPort, _ := net.SplitHostPort(strings.TrimPrefix(weak.URL, "http://")); m.anyName {
				target := "http://" + rebindName + ":" + weakPort
				assert.NotEmpty(t, attack(t, b, target+must.Do(url.Parse(home))(t).Path, target, home))
				return
			}
			assert.NotEmpty(t, attack(t, b, evil.URL, weak.URL, home))
		})
	}
	tab := b.open(t)
	tab.do(t, chromedp.Navigate(home))
	assert.True(t, eval[bool](t, tab, `document.body.textContent.includes("`+hungNode+`")`), "whoever has the cookie still reads the page")
}

// mutant is the page behind a proxy that takes a guard away.
type mutant struct {
	page    string
	strip   []string // headers by which the page sees who asks
	cookie  *http.Cookie
	anyName bool
}

func (m mutant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, err := url.Parse(m.page)
	if err != nil || !m.anyName && strings.HasPrefix(r.Host, rebindName) {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(page) // with the Host of the page
		for _, name := range m.strip {
			p.Out.Header.Del(name)
		}
		if m.cookie != nil {
			p.Out.Header.Set("Cookie", m.cookie.Name+"="+m.cookie.Value)
		}
	}}
	proxy.ServeHTTP(w, r)
}
