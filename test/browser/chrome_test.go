package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// patience is for what happens at once on a machine that is not busy.
const patience = 3 * time.Minute

// The names that lead to this machine in the browser: of an attacker's server, and the one that he points at the page later.
const (
	attackerName = "attacker.test"
	rebindName   = "rebind.test"
)

// need skips a test without a peer, which make deps installs; where CI=true the test fails.
func need(t testing.TB, there bool, what string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("CI") == "true":
		t.Fatalf("there is no %s; make deps installs it", what)
	default:
		t.Skipf("there is no %s; make deps installs it", what)
	}
}

// axe is the source of axe-core.
func axe(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(must.Do(os.UserCacheDir())(t), "fenced-test", "axe-core-*", "axe.min.js"))
	need(t, len(found) == 1, "axe-core in the cache of the tests")
	return string(must.Do(os.ReadFile(found[0]))(t))
}

// chrome is a Chromium with a profile of its own. No name leads it off this machine.
type chrome struct{ ctx context.Context }

func startChrome(t testing.TB) chrome {
	t.Helper()
	program, err := exec.LookPath("chromium")
	need(t, err == nil, "chromium")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP "+attackerName+" 127.0.0.1, MAP "+rebindName+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(patience))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx), "start Chromium")
	return chrome{ctx}
}

// tab is one tab, with all that it asked for and complained about.
type tab struct {
	ctx   context.Context
	close context.CancelFunc

	mu        sync.Mutex
	requests  []string // addresses
	answers   []answer // to requests that were answered
	complains []string // errors and warnings in its console
}

type answer struct {
	url    string
	status int64
}

func (c chrome) open(t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	b := &tab{ctx: ctx, close: cancel}
	require.NoError(t, chromedp.Listen(ctx, b.note))
	return b
}

// note takes in an event of the tab.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventResponseReceived:
		b.answers = append(b.answers, answer{e.Response.URL, e.Response.Status})
	case *runtime.EventExceptionThrown:
		b.complains = append(b.complains, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.complains = append(b.complains, fmt.Sprintf("console.%s: %s", e.Type, e.Args[0].Value))
	case *log.EventEntryAdded:
		b.complains = append(b.complains, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	}
}

// do carries out steps, within patience.
func (b *tab) do(t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, steps...))
}

// eval gives the value of an expression, of a promise when that is kept.
func eval[T any](t testing.TB, b *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return must.Do(chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(t)
}

// wait waits until an expression is true.
func (b *tab) wait(t testing.TB, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoError(t, err, expression)
}

// size makes the tab that many pixels wide, light or dark.
func (b *tab) size(t testing.TB, width int64, scheme string) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// elsewhere lists the requests that went to another place than this one.
func (b *tab) elsewhere(host string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Host != host && u.Scheme != "about" {
			list = append(list, r)
		}
	}
	return list
}

// complaints lists what the tab complained about, but for what contains one of these texts.
func (b *tab) complaints(but ...string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.complains), func(text string) bool {
		return slices.ContainsFunc(but, func(expected string) bool { return strings.Contains(text, expected) })
	})
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	return string(must.Do(json.Marshal(v))(t))
}

// cookieOf is the cookie that the browser has for an address. No script can read it.
func cookieOf(t testing.TB, c chrome, address string) *http.Cookie {
	t.Helper()
	tab := c.open(t)
	defer tab.close()
	tab.do(t, chromedp.Navigate(address))
	assert.Empty(t, eval[string](t, tab, "document.cookie"))
	var cookie *http.Cookie
	tab.do(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		found, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{URLs: []string{address}})
		if err == nil && len(found.Cookies) == 1 {
			cookie = &http.Cookie{Name: found.Cookies[0].Name, Value: found.Cookies[0].Value}
		}
		return err
	}))
	require.NotNil(t, cookie)
	return cookie
}
