package power

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// agent is a fence agent with its parameters on standard input, as Pacemaker
// gives them. Its off reads until the host is off, so that is the first read.
type agent struct {
	path       string
	parameters string
}

// The statuses by which a fence agent ends.
const (
	agentOK  = 0 // done, or the host is on
	agentOff = 2 // asked for the status: the host is off
)

func newAgent(j job) (tool, error) {
	name, defaults := strings.CutSuffix(j.Tool, " (defaults)")
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	p := fmt.Sprintf("ip=%s\nipport=%d\nusername=%s\npassword=%s\n", j.Host, j.Port, user, password)
	switch {
	case j.System != "":
		// It knows no CA file; its users do this.
		p += "ssl_insecure=1\nsystems_uri=" + j.System + "\n"
	case defaults:
		p += "lanplus=1\ncipher=3\n"
	default:
		p += "lanplus=1\ncipher=3\npower_wait=0\n"
	}
	return &agent{path: path, parameters: p}, nil
}

// find looks also where Debian keeps fence agents.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

func (a *agent) warm(context.Context) error { return nil } // it keeps nothing

func (a *agent) status(ctx context.Context) error { return a.run(ctx, "status", agentOK) }

func (a *agent) off(ctx context.Context) error { return a.run(ctx, "off", agentOK) }

func (a *agent) confirm(ctx context.Context) error { return a.run(ctx, "status", agentOff) }

func (a *agent) run(ctx context.Context, action string, want int) error {
	cmd := exec.CommandContext(ctx, a.path)
	cmd.Stdin = strings.NewReader("action=" + action + "\n" + a.parameters)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("run %s: %w", a.path, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("%s %s ended with %d, not %d: %s", a.path, action, got, want, bytes.TrimSpace(said))
	}
	return nil
}
