//go:build failpoint

package failpoint

import (
	"os"
	"path/filepath"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/policy"
)

// Files of the directory that make a deciding loop hang.
const (
	// hangLoop makes the deciding loop of a cluster hang for good when it next takes in changes.
	hangLoop = "hang"
	// hungLoop is what the loop that hangs makes of that file, so that the next daemon does not hang.
	hungLoop = "hung"
)

// hangingWatch is where a deciding loop can hang while all other goroutines live: nobody else asks for the changes.
type hangingWatch struct{ admit.Watch }

func (w hangingWatch) Changes() []policy.Change {
	dir := os.Getenv("FENCED_FAILPOINTS")
	if os.Rename(filepath.Join(dir, hangLoop), filepath.Join(dir, hungLoop)) == nil {
		select {}
	}
	return w.Watch.Changes()
}
