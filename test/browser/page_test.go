package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			for _, width := range []int64{400, 1280, 2560} {
				for _, scheme := range []string{"light", "dark"} {
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
