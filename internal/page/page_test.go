package page

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
