package scene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
)

// Screen is what a person saw of a fencectl on a terminal of 80x24.
type Screen struct {
	// Asked is everything up to the question, without colours; "" if nothing was asked.
	Asked string
	// All is everything, without colours. A line that was drawn again is there as often.
	All  string
	Exit int
}

// terminalCodes are what a terminal does not show: colours and movements of the cursor.
var terminalCodes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// Terminal runs the built fencectl on a terminal of 80x24, and types a line when it asks for one
// with question.
func (s *Scene) Terminal(ctx context.Context, question, line string, args ...string) (Screen, error) {
	cmd := exec.CommandContext(ctx, s.opts.Programs.Fencectl, append([]string{"--socket", s.Socket()}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		return Screen{}, fmt.Errorf("run fencectl %s on a terminal: %w", strings.Join(args, " "), err)
	}
	defer tty.Close()
	screen := record(tty)
	out := Screen{Asked: screen.await(question)}
	if out.Asked != "" {
		if _, err := tty.WriteString(line + "\n"); err != nil {
			return out, fmt.Errorf("type at fencectl: %w", err)
		}
	}
	<-screen.ended
	err = cmd.Wait()
	out.All, out.Exit = screen.text(), cmd.ProcessState.ExitCode()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		return out, fmt.Errorf("run fencectl %s: %w\n%s", strings.Join(args, " "), err, out.All)
	}
	return out, nil
}

// recorder keeps what a terminal was sent.
type recorder struct {
	ended chan struct{} // closed when nobody has the other end open any more

	mu   sync.Mutex
	sent bytes.Buffer
}

// record reads a terminal until its end.
func record(tty io.Reader) *recorder {
	r := &recorder{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			r.mu.Lock()
			r.sent.Write(buf[:n])
			r.mu.Unlock()
			if err != nil { // EIO is the end
				return
			}
		}
	}()
	return r
}

// await returns what stands on the terminal as soon as text does, or "" if that never comes.
func (r *recorder) await(text string) string {
	for {
		ended := false
		select {
		case <-r.ended:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
		if shown := r.text(); strings.Contains(shown, text) {
			return shown
		}
		if ended {
			return ""
		}
	}
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return terminalCodes.ReplaceAllString(strings.ReplaceAll(r.sent.String(), "\r", ""), "")
}
