package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/api"
)

// TestWrongWordsAreNotSent: what fenced would refuse is wrong usage, told with what to
// do, without asking it: nothing listens on this socket.
func TestWrongWordsAreNotSent(t *testing.T) {
	for line, want := range map[string]string{
		"hold Worker_3 --reason x":                  `"Worker_3" is not the name of a Node`,
		"fence n-1\u202e --reason x --yes":          `"n-1\u202e" is not the name of a Node`,
		"explain a/b":                               "is not the name of a Node",
		"bmc audit N":                               "is not the name of a Node",
		"hold n-1 --reason a\u009bb":                "cannot be seen: U+009B",
		"pause --reason a\u2067b":                   "cannot be seen: U+2067",
		"pause --reason a\nb":                       "control characters",
		"arm --reason " + strings.Repeat("x", 1001): "longer than 1000 bytes",
		"abort Run --reason x":                      "is not the name of a run",
		"retry  --reason x":                         `"" is not the name of a run`,
		"timeline N?":                               "is not the name of a Node",
		"status --cluster a\nb":                     `"a\nb" is not the name of a cluster`,
	} {
		t.Run(line, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append([]string{"--socket", t.TempDir() + "/none"}, strings.Split(line, " ")...)
			assert.Equal(t, exitUsage, run(t.Context(), args, nil, &out, &errs))
			assert.Contains(t, errs.String(), want)
			assert.Contains(t, errs.String(), "\nhint: ")
		})
	}
}

// TestTimelineOfANodeThatIsNamedLikeARun asks for both, and a name that no run has is a
// node's at once.
func TestTimelineOfANodeThatIsNamedLikeARun(t *testing.T) {
	socket := hostileDaemon(t, false)
	for _, name := range []string{"n-1", "r-1"} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitOK, run(t.Context(), []string{"--socket", socket, "timeline", name}, nil, &out, &errs), errs.String())
		assert.Contains(t, out.String(), "run r-1: ")
	}
	var out, errs bytes.Buffer
	assert.NoError(t, api.CheckRun("n-1"))
	assert.Error(t, api.CheckRun("worker-3.example.com"))
	assert.Equal(t, exitOK, run(t.Context(), []string{"--socket", socket, "timeline", "worker-3.example.com"}, nil, &out, &errs), errs.String())
	assert.Equal(t, "no run of worker-3.example.com\n", out.String())
}
