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

// maxFileReason bounds what is shown of the pause file.
const maxFileReason = 200

// pauseFile pauses everything while it exists. It needs neither the API, nor the
// store, nor the socket: the last means that works when nothing else does. // I23
type pauseFile struct {
	path string // empty: none is looked for

	mu    sync.Mutex
	there bool
	ended time.Time // when it was last found gone; zero = it never went
}

// look says why the file pauses everything, "" when it does not, and when the last
// such pause ended. What cannot be looked at pauses, too: nobody knows that it may
// be ignored.
func (f *pauseFile) look(now time.Time) (why string, ended time.Time) {
	if f.path == "" {
		return "", time.Time{}
	}
	why = f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.there && why == "" {
		f.ended = now
	}
	f.there = why != ""
	return why, f.ended
}

func (f *pauseFile) read() string {
	fi, err := os.Lstat(f.path) // a link to nothing is there, too
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return "it cannot be seen whether everything is paused: " + err.Error()
	}
	why := "everything is paused by the file " + f.path
	if !fi.Mode().IsRegular() { // to open a pipe could take for ever
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
