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
	{reason.Transient, "evaluates the target again; a run waits, and goes on after a pause that grows"},
	{reason.Mended, "evaluates the target again; a run waits, and goes on once a look does not show the cause any more"},
	{reason.Person, "refuses the target; a run is Held"},
	{"", "nothing: it is a verdict, an end that was wanted, or the answer to an order"},
}

// nextOfCode is what fenced does next where that is more than its class says.
var nextOfCode = map[reason.Code]string{
	"AttemptsExhausted": "the run waits for an hour, later up to a day, and begins one more power cycle. If the Node registers before, it goes on at step 5. After an `abort` it is Held",
	"NodeFinalizer":     "the run waits, and goes on at step 3 as soon as the Node is gone",
	"RestoreFailed":     "the run waits, and goes on at step 3 after `power.retryInterval`",
	"PowerForbidden":    "evaluates the target again; a run waits, and goes on once the owner of the host wants it on",
	"Quarantined":       "refuses the host for 24 h, or until a person releases it",
	"OperatorOff":       "the run is Held. If the Node registers again, it goes on at step 5",
	"FoundOff":          "the run is Held. If the Node registers again, it goes on at step 5",
	"ConfirmedOff":      "the run is Held. If the Node registers again, it goes on at step 5",
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
	for code := range nextOfCode {
		assert.Contains(t, codes, string(code))
		assert.NotEmpty(t, reason.ClassOf(code), code)
	}
	var b strings.Builder
	b.WriteString("| Code | Class | What fenced does next |\n|---|---|---|\n")
	var stopNothing []string
	for _, each := range codes {
		code := reason.Code(each)
		class := reason.ClassOf(code)
		next := nextOfCode[code]
		for _, of := range nextOf {
			if next == "" && of.class == class {
				next = of.next
			}
		}
		require.NotEmpty(t, next, each)
		if class == "" {
			stopNothing = append(stopNothing, "`"+each+"`")
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", each, class, next)
	}
	fmt.Fprintf(&b, "| %s | none | %s |\n", strings.Join(stopNothing, ", "), nextOf[len(nextOf)-1].next)
	before, got, after := classTable(t)
	if *update {
		require.NoError(t, os.WriteFile("reasons.md", []byte(before+tableBegins+b.String()+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, b.String(), got, "go test ./docs -update writes it anew")
}

// classTable returns the table of classes in reasons.md, and what is before and after it.
func classTable(t *testing.T) (before, table, after string) {
	t.Helper()
	before, rest, found := strings.Cut(documents(t)["reasons.md"], tableBegins)
	require.True(t, found, "reasons.md has no line %s", tableBegins)
	table, after, found = strings.Cut(rest, tableEnds)
	require.True(t, found, "reasons.md has no line %s", tableEnds)
	return before, table, after
}
