package docs_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

// nextOf is what fenced does next, for each class.
var nextOf = []struct {
	class reason.Class
	next  string
}{
	{reason.Transient, "time may heal it. fenced evaluates a target again by itself; a run waits, and goes on after a pause that grows"},
	{reason.Mended, "a change that fenced can see ends it: of an object, an entry, a Secret, a right, or an order like `resume`. fenced then evaluates the target again; a run waits, and goes on once a look does not show the cause any more"},
	{reason.Person, "a person must find out what is true. fenced refuses the target until then; a run is Held"},
	{"", "nothing: it is a verdict, an end that was wanted, or the answer to an order"},
}

// TestEveryReasonHasAClass holds the table of reasons.md to the code. Its last row lists
// the codes that stop nothing: a new code must be put into a class, or looked at here. // L5
func TestEveryReasonHasAClass(t *testing.T) {
	codes := reasonConstants(t)
	for _, kind := range literals(t, "../internal/bmc/error.go") {
		codes = append(codes, "BMC"+kind)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	var b strings.Builder
	b.WriteString("| Class | What fenced does next | Codes |\n|---|---|---|\n")
	for _, each := range nextOf {
		var in []string
		for _, code := range codes {
			if reason.ClassOf(reason.Code(code)) == each.class {
				in = append(in, "`"+code+"`")
			}
		}
		require.NotEmpty(t, in, each.class)
		name := "none"
		if each.class != "" {
			name = "**" + string(each.class) + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, each.next, strings.Join(in, ", "))
	}
	before, rest, found := strings.Cut(documents(t)["reasons.md"], tableBegins)
	require.True(t, found, "reasons.md has no line %s", tableBegins)
	got, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "reasons.md has no line %s", tableEnds)
	if *update {
		require.NoError(t, os.WriteFile("reasons.md", []byte(before+tableBegins+b.String()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), got, "go test ./docs -update writes it anew")
}
