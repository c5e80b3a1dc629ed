package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/rig"
)

// TestDocumentedKubectlIsUnderstood gives each command of kubectl or oc that stands in a document to kubectl, which reads
// its flags before it asks nobody but its own help; and each file that one applies is in the package.
func TestDocumentedKubectlIsUnderstood(t *testing.T) {
	dir, err := rig.Kubectl(t.Context(), os.Stderr)
	require.NoError(t, err)
	understands := func(command string) error {
		_, err := exec.Command(filepath.Join(dir, "kubectl"), append(words(command), "--help")...).Output()
		return err
	}
	seen := map[string]bool{}
	for file, text := range documents(t) {
		lines := blockLines(text)
		for _, m := range regexp.MustCompile("`((?:kubectl|oc) [^`]+)`").FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		for _, line := range lines {
			for _, m := range regexp.MustCompile(`(?:^|[;&|]) *(?:sudo )?(?:kubectl|oc) ([^#;&|>]*)`).FindAllStringSubmatch(line, -1) {
				command := strings.TrimSpace(m[1])
				if seen[command] || strings.HasPrefix(command, "adm ") { // of oc alone
					continue
				}
				seen[command] = true
				assert.NoError(t, understands(command), "%s: kubectl %s", file, command)
				for _, example := range regexp.MustCompile(`/usr/share/doc/fenced/examples/(\S+)`).FindAllStringSubmatch(command, -1) {
					_, err := os.Stat(filepath.Join("../configs", example[1]))
					assert.NoError(t, err, "%s: kubectl %s", file, command)
				}
			}
		}
	}
	require.Greater(t, len(seen), 20, "the commands were not found")
	require.Error(t, understands("annotate node NODE --nothing"), "a wrong flag is noticed")
	require.Error(t, understands("annotat node NODE"), "a wrong verb is noticed")
}
