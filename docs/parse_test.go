package docs_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inPlace are words that people replace, each with what can stand there.
var inPlace = strings.NewReplacer(
	"NAMESPACE/NAME", "openshift-machine-api/worker-3", "NODE", "worker-3", "RUN", "mi42k0z1-4f9a1c", "RECORD", "mi42k0z1-4f9a1c", "FILE", "state.ndjson", "CLUSTER", "prod", "SEQ:HASH", "4711:5a0c5ef7d4f1f2c3b0a19283746556473829100abcdef0123456789abcdef012",
)

// asks are the orders that ask a person for a name.
var asks = regexp.MustCompile(`^(fence|arm|confirm-off|bmc enroll) `)

// wrongUsage is the exit status of a command line that the program does not understand.
const wrongUsage = 64

// TestDocumentedCommandsAreUnderstood runs each line of fencectl that stands in a block of a document,
// without a daemon: whatever else is missing, it is no wrong usage.
func TestDocumentedCommandsAreUnderstood(t *testing.T) {
	fencectlVerbs(t)
	program, err := fencectl()
	require.NoError(t, err)
	seen := map[string]bool{}
	for file, text := range documents(t) {
		for _, line := range blockLines(text) {
			for _, m := range regexp.MustCompile(`(?:^|[;&|]) *(?:sudo )?fencectl ([^#;&|>]*)`).FindAllStringSubmatch(line, -1) {
				command := inPlace.Replace(strings.TrimSpace(m[1]))
				if asks.MatchString(command) && !strings.Contains(command, "--dry-run") && !strings.Contains(command, "--yes") {
					command += " --yes" // there is no terminal to ask at
				}
				if seen[command] || strings.Contains(command, "...") && !strings.Contains(command, "--reason ...") {
					continue // a hash that is cut, or a list
				}
				seen[command] = true
				assert.NotEqual(t, wrongUsage, status(t, program, words(strings.ReplaceAll(command, "--reason ...", "--reason x"))), "%s: fencectl %s", file, command)
			}
		}
	}
	require.Greater(t, len(seen), 25, "the commands were not found")
	require.Equal(t, wrongUsage, status(t, program, []string{"hold"}), "wrong usage is noticed")
}

// blockLines are the lines of all blocks of code of a document.
func blockLines(text string) (lines []string) {
	for _, block := range fencedBlock.FindAllString(text, -1) {
		lines = append(lines, strings.Split(block, "\n")...)
	}
	for _, line := range listBlock.FindAllString(fencedBlock.ReplaceAllString(text, ""), -1) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// words splits a command line as a shell does, which has both kinds of quotes.
func words(line string) (all []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}

// status runs fencectl where there is nothing: no daemon, no other program, no file.
func status(t *testing.T, program string, args []string) int {
	t.Helper()
	cmd := exec.Command(program, append([]string{"--socket", "none"}, args...)...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=" + t.TempDir(), "HOME=" + os.TempDir()}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	require.NoError(t, err, "fencectl %v", args)
	return 0
}
