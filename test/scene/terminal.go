package scene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	screen, ended := &recorder{}, make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			screen.add(buf[:n])
			if err != nil { // EIO: nobody has the other end open any more
				return
			}
		}
	}()
	var out Screen
	for asking := true; asking; {
		if text := screen.text(); strings.Contains(text, question) {
			out.Asked, asking = text, false
			if _, err := tty.WriteString(line + "\n"); err != nil {
				return out, fmt.Errorf("type at fencectl: %w", err)
			}
		}
		select {
		case <-ended: // perhaps without a question
			asking = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	<-ended
	err = cmd.Wait()
	out.All, out.Exit = screen.text(), cmd.ProcessState.ExitCode()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		return out, fmt.Errorf("run fencectl %s: %w\n%s", strings.Join(args, " "), err, out.All)
	}
	return out, nil
}

// recorder keeps what a terminal was sent.
type recorder struct {
	mu   sync.Mutex
	sent bytes.Buffer
}

func (r *recorder) add(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent.Write(text)
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return terminalCodes.ReplaceAllString(strings.ReplaceAll(r.sent.String(), "\r", ""), "")
}
