package stop

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// maxFileReason is how many bytes of the pause file a message shows.
const maxFileReason = 200

// pauseFile pauses everything while the file exists. It needs neither the API, nor the store,
// nor the socket, so it works when nothing else does. // I23
type pauseFile struct {
	path string // "" if no file is configured

	mu     sync.Mutex
	exists bool
	ended  time.Time // when the file was last found gone; zero if it never went away
}

// look returns why the file pauses everything, or "" if it does not, and when the last such
// pause ended. If the file cannot be looked at, it pauses as well: nobody knows that it does
// not exist.
func (f *pauseFile) look(now time.Time) (why string, ended time.Time) {
	if f.path == "" {
		return "", time.Time{}
	}
	why = f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.exists && why == "" {
		f.ended = now
	}
	f.exists = why != ""
	return why, f.ended
}

func (f *pauseFile) read() string {
	fi, err := os.Lstat(f.path) // a dangling link counts as well
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return "it cannot be seen whether everything is paused: " + err.Error()
	}
	why := "everything is paused by the file " + f.path
	if !fi.Mode().IsRegular() { // opening a pipe could block for ever
		return why
	}
	file, err := os.Open(f.path)
	if err != nil {
		return why
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileReason))
	if err != nil {
		return why
	}
	return why + ": " + cmp.Or(strings.TrimSpace(bmc.Printable(string(text), maxFileReason)), "it gives no reason")
}
