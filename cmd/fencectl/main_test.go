package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // also where the host knows no zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWrongWordsAreNotSent: what fenced would refuse is wrong usage, told with what to
// do, without asking it: nothing listens on this socket.
func TestWrongWordsAreNotSent(t *testing.T) {
	for line, want := range map[string]string{
		"hold Worker_3 --reason x":                  `"Worker_3" is not the name of a Node or a run`,
		"fence n-1\u202e --reason x --yes":          `"n-1\u202e" is not the name of a Node or a run`,
		"explain a/b/c":                             "is not the name of a Machine",
		"abort NS/m --reason x":                     "is not the name of a Machine",
		"bmc audit N":                               "is not the name of a Node",
		"hold n-1 --reason a\u009bb":                "cannot be seen: U+009B",
		"pause --reason a\u2067b":                   "cannot be seen: U+2067",
		"pause --reason a\nb":                       "control characters",
		"arm --reason " + strings.Repeat("x", 1001): "longer than 1000 bytes",
		"abort Run --reason x":                      "is not the name of a Node or a run",
		"retry  --reason x":                         `"" is not the name of a Node or a run`,
		"bmc test a/b":                              "is not the name of a Node",
		"timeline N?":                               "is not the name of a Node or a run",
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
	assert.Equal(t, exitOK, run(t.Context(), []string{"--socket", socket, "timeline", "worker-3.example.com"}, nil, &out, &errs), errs.String())
	assert.Equal(t, "no run of worker-3.example.com\n", out.String())
}

// Each verb's help has two examples at least, and each of them is a command line of that verb.
func TestEveryVerbHasTwoExamples(t *testing.T) {
	root := newRoot(&cli{in: os.Stdin, out: &bytes.Buffer{}, errs: &bytes.Buffer{}})
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			walk(verb)
		}
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		if cmd.HasSubCommands() || strings.HasPrefix(path, "completion") || path == "help" || cmd.Hidden {
			return
		}
		seen++
		lines := strings.Split(cmd.Example, "\n")
		assert.GreaterOrEqual(t, len(lines), 2, path)
		for _, line := range lines {
			words := splitLine(t, line)
			require.Equal(t, "fencectl", words[0], line)
			found, rest, err := root.Find(words[1:])
			require.NoError(t, err, line)
			assert.Equal(t, cmd, found, line)
			found.InheritedFlags() // makes the common flags those of the verb, too
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.AddFlagSet(found.Flags())
			flags.AddFlagSet(found.InheritedFlags())
			require.NoError(t, flags.Parse(rest), line)
			assert.NoError(t, found.Args(found, flags.Args()), line)
			if flags.Lookup("reason") != nil {
				assert.True(t, flags.Changed("reason"), "%s: an order needs a reason", line)
			}
			flags.Visit(func(f *pflag.Flag) {
				_ = f.Value.Set(f.DefValue) // a duration has no text for none
				f.Changed = false
			})
		}
	}
	walk(root)
	assert.Greater(t, seen, 25)
	for path := range examples {
		cmd, _, err := root.Find(strings.Fields(path))
		require.NoError(t, err, path)
		assert.Equal(t, "fencectl "+path, cmd.CommandPath(), "an example of what is no verb")
	}
}

// TestEveryVerbHasAHeading: a verb without one stands below "Additional Commands", where nobody looks for it.
func TestEveryVerbHasAHeading(t *testing.T) {
	root := newRoot(&cli{})
	for _, verb := range root.Commands() {
		if !verb.Hidden && !slices.Contains([]string{"help", "completion", "dial-stdio"}, verb.Name()) {
			assert.NotEmpty(t, verb.GroupID, verb.Name())
		}
	}
}

// splitLine splits a command line as a shell does, which has double quotes only.
func splitLine(t *testing.T, line string) (words []string) {
	t.Helper()
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// No help is wider than the tables. What stands above a question fits on 80 columns.
func TestHelpIsNoWiderThanTables(t *testing.T) {
	var out bytes.Buffer
	root := newRoot(&cli{in: os.Stdin, out: &out, errs: &out})
	root.SetOut(&out)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			walk(verb)
		}
		out.Reset()
		root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "--help"))
		require.NoError(t, root.Execute())
		for line := range strings.Lines(out.String()) {
			assert.LessOrEqual(t, len(line), maxWidth+1, "%s: %s", cmd.CommandPath(), line)
		}
	}
	walk(root)
}

func TestParseDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "0": 0, "0d": 0, "-1h": -time.Hour, "10d30s": 240*time.Hour + 30*time.Second,
	} {
		d, err := parseDays(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "d", "2", "2dd", "-2d", "1.5d", "2d-1h", "99999999999d", "soon", "2 d"} {
		_, err := parseDays(text)
		assert.Error(t, err, text)
	}
}

// A time of the day is the next one, by the clock here; what is over is refused.
// A time of the day that there is twice in the night when summer ends, or not at all when it begins, ends no hold early.
func TestUntilWhenTheClockChanges(t *testing.T) {
	for _, c := range []struct {
		zone       string
		from, want string
		text       string
	}{
		{"America/New_York", "2026-03-08T00:00:00-05:00", "2026-03-08T03:30:00-04:00", "02:30"},
		{"America/Havana", "2026-03-07T22:00:00-05:00", "2026-03-08T01:30:00-04:00", "00:30"},
		{"Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T03:30:00+02:00", "02:30"},
		{"America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-01T01:30:00-05:00", "01:30"},
		{"Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+01:00", "02:30"},
		{"Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T03:30:00+01:00", "03:30"},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		require.NoError(t, err)
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		from = from.In(zone)
		length, err := parseUntil(c.text, from)
		require.NoError(t, err)
		assert.Equal(t, c.want, from.Add(length).Format(time.RFC3339), "%+v", c)
	}
}

func TestUntil(t *testing.T) {
	now := time.Date(2026, 1, 31, 17, 30, 0, 0, time.FixedZone("here", 3600))
	for text, want := range map[string]time.Duration{
		"18:00": 30 * time.Minute, "17:30": 24 * time.Hour, "09:15": 15*time.Hour + 45*time.Minute,
		"2026-01-31T18:00:00Z": 90 * time.Minute, "2026-02-01T17:30:00+01:00": 24 * time.Hour,
	} {
		got, err := parseUntil(text, now)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "2h", "25:00", "2026-01-31", "2026-01-31T16:30:00Z"} {
		_, err := parseUntil(text, now)
		assert.Error(t, err, text)
	}
}
