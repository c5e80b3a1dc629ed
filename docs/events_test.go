package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/report"
)

// TestEventTable holds the table of kubernetes-events.md to the code.
func TestEventTable(t *testing.T) {
	const page = "kubernetes-events.md"
	var b strings.Builder
	b.WriteString("| Reason | Type | On | When | Whose name |\n|---|---|---|---|---|\n")
	for _, r := range report.Table() {
		typ := "Normal"
		if r.Warning {
			typ = "Warning"
		}
		var on []string
		for _, s := range r.On {
			on = append(on, string(s))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Reason, typ, strings.Join(on, ", "), r.Means, r.Like)
	}
	before, rest, found := strings.Cut(documents(t)[page], tableBegins)
	require.True(t, found, "%s has no line %s", page, tableBegins)
	got, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "%s has no line %s", page, tableEnds)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+tableBegins+b.String()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), got, "go test ./docs -update writes it anew")
}
