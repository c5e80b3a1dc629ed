package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		if cmd.HasSubCommands() || strings.HasPrefix(path, "completion") || path == "help" {
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
			flags.VisitAll(func(f *pflag.Flag) { f.Changed = false })
		}
	}
	walk(root)
	assert.Greater(t, seen, 25)
	assert.Len(t, examples, seen, "an example of what is no verb")
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
	for path := range examples {
		out.Reset()
		root.SetArgs(append(strings.Fields(path), "--help"))
		require.NoError(t, root.Execute())
		for line := range strings.Lines(out.String()) {
			assert.LessOrEqual(t, len(line), maxWidth+1, "%s: %s", path, line)
		}
	}
}
