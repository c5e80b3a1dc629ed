package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// maxFact bounds a file with a fact about the host, in bytes.
const maxFact = 64 << 10

// unit is what systemd runs.
const unit = "fenced.service"

// versions adds who runs here.
func (c *collector) versions(ctx context.Context) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "fencectl: %s (%s, %s/%s)\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	c.fact(ctx, &text, "fenced", func(ctx context.Context) ([]byte, error) { return output(ctx, c.Daemon, "--version") })
	c.fact(ctx, &text, "kernel", func(context.Context) ([]byte, error) { return readFact("/proc/sys/kernel/osrelease") })
	c.fact(ctx, &text, "systemd", func(ctx context.Context) ([]byte, error) { return output(ctx, "systemctl", "--version") })
	c.fact(ctx, &text, "release", func(context.Context) ([]byte, error) {
		text, err := readFact("/etc/os-release")
		for line := range bytes.Lines(text) {
			if name, ok := bytes.CutPrefix(line, []byte("PRETTY_NAME=")); ok {
				return name, nil
			}
		}
		return text, err
	})
	c.add("versions.txt", text.Bytes(), "")
}

// fact writes the first line of what is read.
func (c *collector) fact(ctx context.Context, text *bytes.Buffer, what string, read func(context.Context) ([]byte, error)) {
	found, err := within(ctx, read)
	if err != nil {
		c.missing("versions.txt, "+what, err)
		return
	}
	line, _, _ := strings.Cut(string(found), "\n")
	fmt.Fprintf(text, "%s: %s\n", what, line)
}

// unitAndJournal adds what systemd says about the unit, and its newest lines. The environment of the
// unit is none of it.
func (c *collector) unitAndJournal(ctx context.Context) {
	text, err := within(ctx, func(ctx context.Context) ([]byte, error) {
		return output(ctx, "systemctl", "show", unit, "fenced.socket", "--no-pager", "--property="+
			"Id,LoadState,ActiveState,SubState,Result,UnitFileState,ExecMainStatus,ExecMainStartTimestamp,NRestarts,StatusText,MemoryCurrent,FragmentPath,DropInPaths")
	})
	c.addOr("unit.txt", text, err)
	text, err = within(ctx, func(ctx context.Context) ([]byte, error) {
		return output(ctx, "journalctl", "-u", unit, "-n", fmt.Sprint(journalLines), "-o", "short-iso", "--utc", "--no-pager", "-q")
	})
	if err == nil && len(text) == 0 {
		err = errors.New("journalctl shows no line of " + unit + ": it logged nothing here, or only root and the group systemd-journal may read it")
	}
	c.addOr("journal.txt", text, err)
}

func readFact(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFact))
}

// output is what a program prints. Its last bytes are kept: the newest lines of a journal.
func output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=")
	cmd.WaitDelay = time.Second // for a child that keeps the pipe
	var out, errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if said := oneLine(string(errs.last())); said != "" {
			return nil, fmt.Errorf("run %s: %w: %s", program, err, said)
		}
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	return out.last(), nil
}

// tail keeps the last maxPart bytes that are written to it, or some more.
type tail struct{ bytes.Buffer }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	if t.Len() > 2*maxPart {
		t.Next(t.Len() - maxPart)
	}
	return len(p), nil
}

// last are at most maxPart bytes that begin with a line.
func (t *tail) last() []byte {
	if t.Len() <= maxPart {
		return t.Bytes()
	}
	t.Next(t.Len() - maxPart)
	_, rest, _ := bytes.Cut(t.Bytes(), []byte("\n"))
	return rest
}
