package page

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func leaf(id, html string) *part { return &part{id: id, html: html} }

func box(id string, parts ...*part) *part {
	return &part{id: id, open: "<" + id + ">", shut: "</" + id + ">", parts: parts}
}

// TestChangesAreSmall: what is sent is the smallest element that changed.
func TestChangesAreSmall(t *testing.T) {
	page := func(a, b string, more ...*part) *part {
		return box("m", leaf("a", a), box("g", append([]*part{leaf("b", b)}, more...)...))
	}
	for name, c := range map[string]struct {
		old, now *part
		want     []string
	}{
		"nothing":        {page("1", "2"), page("1", "2"), nil},
		"a leaf":         {page("1", "2"), page("9", "2"), []string{"a=9"}},
		"a leaf in one":  {page("1", "2"), page("1", "9"), []string{"b=9"}},
		"both":           {page("1", "2"), page("8", "9"), []string{"a=8", "b=9"}},
		"one more":       {page("1", "2"), page("1", "2", leaf("c", "3")), []string{"g=<g>23</g>"}},
		"one less":       {page("1", "2", leaf("c", "3")), page("1", "2"), []string{"g=<g>2</g>"}},
		"another order":  {page("1", "2", leaf("c", "3"), leaf("d", "4")), page("1", "2", leaf("d", "4"), leaf("c", "3")), []string{"g=<g>243</g>"}},
		"all was other":  {leaf("m", "x"), page("1", "2"), []string{"m=<m>1<g>2</g></m>"}},
		"a leaf is more": {box("m", leaf("a", "1")), box("m", box("a", leaf("b", "1"))), []string{"a=<a>1</a>"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.old.follow(nil, 1))
			require.NoError(t, c.now.follow(c.old, 2))
			var got []string
			for _, change := range c.now.since(1, nil) {
				got = append(got, change.ID+"="+change.HTML)
			}
			assert.Equal(t, c.want, got)
			assert.Empty(t, c.now.since(2, nil))
			var whole strings.Builder
			c.now.write(&whole)
			all := c.now.since(0, nil)
			assert.Equal(t, []change{{"m", whole.String()}}, all, "a browser that has nothing is sent all")
		})
	}
}

// TestOnlyAChangedCellIsDrawn: ten thousand cells that are as before cost a comparison each.
func TestOnlyAChangedCellIsDrawn(t *testing.T) {
	drawn := 0
	of := func(model any) *part {
		return &part{id: "n1", model: model, draw: func() (string, error) { drawn++; return "x", nil }}
	}
	first, same, other := of(cell{Node: "a"}), of(cell{Node: "a"}), of(cell{Node: "a", State: "Held"})
	require.NoError(t, first.follow(nil, 1))
	require.NoError(t, same.follow(first, 2))
	assert.Equal(t, 1, drawn)
	assert.Equal(t, "x", same.html)
	require.NoError(t, other.follow(same, 3))
	assert.Equal(t, 2, drawn)
}

// TestIdsAreForgotten: names that come and go take no memory, and an id is never that of two.
func TestIdsAreForgotten(t *testing.T) {
	n := &names{ids: map[string]string{}, used: map[string]string{}}
	a := n.of("n", "prod", "a")
	n.sweep()
	assert.Equal(t, a, n.of("n", "prod", "a"))
	assert.NotEqual(t, a, n.of("n", "prod", "b"))
	assert.NotEqual(t, n.of("n", "x", "y\x00z"), n.of("n", "x\x00y", "z2"))
	n.sweep()
	n.sweep()
	assert.Empty(t, n.ids)
	assert.NotEqual(t, a, n.of("n", "prod", "a"))
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// hostile is text that a name, a message or a label may hold.
const hostile = "<script>alert(1)</script>\" onmouseover='x' javascript:x \u202etxt\x1b[2J\u200b"

// TestFileOfHostileText: a file has no script, fetches nothing, and shows what no reader would see.
func TestFileOfHostileText(t *testing.T) {
	var b strings.Builder
	body := Parse(`<section class="card"><h2 title="{{.}}">{{.}}</h2></section>`)
	require.NoError(t, Write(&b, File{Title: hostile, Made: noon, Foot: hostile}, body, hostile))
	text := b.String()
	assert.NotContains(t, text, "<script")
	assert.NotContains(t, text, "\u202e")
	assert.NotContains(t, text, "\x1b")
	assert.NotContains(t, text, "\u200b")
	assert.NotContains(t, text, `src=`)
	assert.NotContains(t, text, `href="h`)
	assert.Contains(t, text, `\u202etxt\x1b[2J\u200b`)
	assert.Contains(t, text, "default-src 'none'")
	assert.Contains(t, text, "2026-01-02 12:00:00 UTC")
}
