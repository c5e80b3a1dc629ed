package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// TestPage looks at each view of a page over a cluster in which something of each kind is wrong, then watches a fence, and then
// attacks the page from another one in the same browser.
func TestPage(t *testing.T) {
	source := axe(t)
	b := startChrome(t)
	s := setStage(t, 2)
	u := startUI(t, s.Socket())
	t.Run("no token", func(t *testing.T) { withoutToken(t, u) })
	tab := b.open(t)
	tab.do(t, chromedp.Navigate(u.address))
	home := eval[string](t, tab, "location.href")
	assert.NotContains(t, home, "token", "it does not stay in the address")

	held := s.nodes(t)[heldNode].Run
	for _, v := range []struct{ name, path string }{
		{"overview", ""}, {"node", "node?cluster=scene&node=" + blockedNode}, {"node with a run", "node?cluster=scene&node=" + heldNode},
		{"node without a BMC that answers", "node?cluster=scene&node=" + muteNode}, {"run", "run?id=" + held},
	} {
		t.Run(v.name, func(t *testing.T) {
			tab.do(t, chromedp.Navigate(home+v.path))
			for i, width := range []int64{400, 1280, 2560} {
				for j, scheme := range []string{"light", "dark"} {
					if !dice.Soak() && (i+j)%2 == 1 { // colours come from the scheme and the layout from the width: CI has each of both, a soak each pair
						continue
					}
					tab.size(t, width, scheme)
					accessible(t, tab, source, fmt.Sprintf("%d %s", width, scheme))
				}
			}
			reachable(t, tab)
		})
	}
	t.Run("fence", func(t *testing.T) { watchFence(t, s, tab, home) })
	assert.Empty(t, tab.complaints(), "in the console")
	assert.Empty(t, tab.elsewhere(u.host), "requests to elsewhere")
	t.Run("attacker", func(t *testing.T) { attacked(t, b, u, home) })
}

// violation is a rule of axe-core that elements break.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// accessible requires that axe-core finds nothing, and that nobody has to scroll sideways.
func accessible(t *testing.T, b *tab, source, what string) {
	t.Helper()
	if !eval[bool](t, b, "typeof axe === 'object'") {
		eval[*bool](t, b, source+"; null")
	}
	text := eval[string](t, b, "axe.run(document, {resultTypes: ['violations'], preload: false}).then((r) => JSON.stringify(r.violations))")
	var found []violation
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	for _, v := range found {
		t.Errorf("%s: %s (%s): %s", what, v.ID, v.Impact, v.Help)
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			t.Logf("    %s\n    %s", n.HTML, n.FailureSummary)
		}
	}
	wide := eval[[]int](t, b, "[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
	assert.LessOrEqual(t, wide[0], wide[1], "%s: the page is wider than the window", what)
}

// reachable requires that the Tab key comes to all that can be used, and that one sees where it is.
func reachable(t *testing.T, b *tab) {
	t.Helper()
	b.size(t, 1280, "light")
	wanted := eval[[]string](t, b, `(() => {
		window.tag = (e) => e.outerHTML.slice(0, 120);
		window.places = [...document.querySelectorAll("a[href], button, summary, input, select, textarea, [tabindex]")]
			.filter((e) => e.tabIndex >= 0 && e.getClientRects().length && getComputedStyle(e).visibility === "visible" && !e.closest("[inert]"));
		document.activeElement.blur();
		window.scrollTo(0, 0);
		return places.map(tag);
	})()`)
	require.NotEmpty(t, wanted)
	var reached []string
	for range len(wanted) + 2 {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		at := eval[[]string](t, b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e);
			if (!e.matches(":focus-visible")) return [];
			const seen = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== "none";
			return [String(places.indexOf(e)), seen ? "seen" : "unseen", tag(e)];
		})()`)
		if len(at) == 0 {
			continue // it left the document
		}
		assert.Equal(t, "seen", at[1], "one does not see that the focus is on %s", at[2])
		if at[0] != "-1" {
			reached = append(reached, at[0])
		}
	}
	for i, html := range wanted {
		assert.True(t, slices.Contains(reached, fmt.Sprint(i)), "the Tab key does not come to %s", html)
	}
}

// observe keeps, for each thing that the page says of a Node, when the document said it first, and when that was on the screen: two
// frames later. Times are milliseconds since 1970.
const observe = `(() => {
	const node = %q;
	window.said = [];
	const known = new Set();
	const now = () => performance.timeOrigin + performance.now();
	const look = () => {
		const at = now();
		const says = [];
		for (const run of document.querySelectorAll("#s-runs article")) {
			if (!run.textContent.includes(node)) continue;
			for (const open of run.querySelectorAll("progress")) says.push("step " + open.getAttribute("aria-label").split(" ")[3]);
			const reads = [...run.querySelectorAll(".reads span")].filter((e) => e.textContent.startsWith("read ")).length;
			if (reads) says.push("reads of Off " + reads);
		}
		for (const row of document.querySelectorAll("#s-recent tr")) {
			if (row.textContent.includes(node) && row.textContent.includes("Done")) says.push("step Done");
		}
		for (const what of says) {
			if (known.has(what)) continue;
			known.add(what);
			const one = {what: what, document: at, screen: 0};
			window.said.push(one);
			requestAnimationFrame(() => requestAnimationFrame(() => (one.screen = now())));
		}
	};
	new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
	look();
	return null;
})()`

// said is one thing that the page says.
type said struct {
	What             string
	Document, Screen float64
}

// watchFence hangs a Node and watches the page until its run is done. It prints how long after the daemon's event each step was in
// the page; no time is required, because a machine that is busy is no defect.
func watchFence(t *testing.T, s stage, b *tab, home string) {
	b.size(t, 1280, "light")
	b.do(t, chromedp.Navigate(home))
	eval[*bool](t, b, fmt.Sprintf(observe, hungNode))
	since := time.Now()
	s.Worker(hungNode).Kubelet.Hang()
	steps, run := stepsOf(t, s, hungNode, since)
	b.wait(t, `window.said.some((one) => one.what === "step Done" && one.screen)`)

	var list []said
	require.NoError(t, json.Unmarshal([]byte(eval[string](t, b, "JSON.stringify(window.said)")), &list))
	at := map[string]said{}
	for _, one := range list {
		at[one.What] = one
	}
	for _, must := range []string{"step PowerOff", "reads of Off 1", "reads of Off 2", "step Done"} { // the others may be over before the page is drawn anew
		assert.Contains(t, at, must)
	}
	for _, e := range steps {
		one, seen := at["step "+e.Step]
		if !seen {
			t.Logf("%-12s was over before the page was drawn anew", e.Step)
			continue
		}
		after := func(ms float64) time.Duration {
			return time.UnixMicro(int64(ms * 1000)).Sub(e.At).Round(time.Millisecond)
		}
		t.Logf("%-12s in the document %v after the event, on the screen %v after it", e.Step, after(one.Document), after(one.Screen))
	}

	b.do(t, chromedp.Navigate(home+"run?id="+run))
	assert.Len(t, eval[[]string](t, b, `[...document.querySelectorAll(".reads span")].map((e) => e.textContent).filter((text) => text.startsWith("read "))`), 2,
		"the reads stay with the run")
	assert.True(t, eval[bool](t, b, `document.body.textContent.includes("Done")`))
}

// stepsOf follows the daemon's events of a Node until its run is done, and returns the steps and the run.
func stepsOf(t *testing.T, s stage, node string, since time.Time) (steps []wire.Event, run string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for e, err := range api.New(s.Socket()).Events(ctx, 0) {
		require.NoError(t, err)
		if e.Node != node || e.At.Before(since) || !slices.Contains([]string{"Started", "Step"}, e.Type) {
			continue
		}
		steps, run = append(steps, e), e.Run
		switch e.Step {
		case "Done":
			return steps, run
		case "Held", "Aborted", "Waiting":
			require.Fail(t, "the run did not end as Done", "%+v", e)
		}
	}
	require.Fail(t, "the run did not end")
	return nil, ""
}

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
