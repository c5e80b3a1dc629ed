// Package quickstart reads the pages of docs/quickstart for the tests that type their commands.
package quickstart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fenced/fenced/test/rig"
)

var (
	// block is what stands below the comment "test: run".
	block = regexp.MustCompile(`<!-- test: run -->\n\n((?: {4,}\S.*\n)+)`)
	// line is a command in a step of a page, with the comment or without it.
	line = regexp.MustCompile(`(?m)^ {7}\S`)
)

// Commands are the lines that a page has a person type. It is an error if a step of the page has a command
// that no comment has the tests run; what comes below the steps, under a heading, is for other days.
func Commands(page string) ([]string, error) {
	root, err := rig.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/quickstart", page+".md"))
	if err != nil {
		return nil, fmt.Errorf("read a quick start: %w", err)
	}
	var found []string
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		for command := range strings.Lines(m[1]) {
			found = append(found, strings.TrimSpace(command))
		}
	}
	steps, _, _ := strings.Cut(string(text), "\n## ")
	if all := len(line.FindAllString(steps, -1)); all == 0 || all != len(found) {
		return nil, fmt.Errorf("the steps of %s have %d commands, and %d have the comment by which a test runs them", page, all, len(found))
	}
	return found, nil
}
