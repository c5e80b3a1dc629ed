package power

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// ipmitool runs the command once for each step, as scripts do.
type ipmitool struct{ job }

func (t ipmitool) warm(context.Context) error { return nil } // it keeps nothing

func (t ipmitool) status(ctx context.Context) error {
	return t.power(ctx, "status", "Chassis Power is on")
}

func (t ipmitool) off(ctx context.Context) error {
	if err := t.power(ctx, "off", "Chassis Power Control: Down/Off"); err != nil {
		return err
	}
	return t.confirm(ctx)
}

func (t ipmitool) confirm(ctx context.Context) error {
	return t.power(ctx, "status", "Chassis Power is off")
}

func (t ipmitool) power(ctx context.Context, word, want string) error {
	cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", "3", "-H", t.Host, "-p", strconv.Itoa(t.Port),
		"-U", user, "-E", "chassis", "power", word)
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD="+password)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ipmitool %s: %w: %s", word, err, bytes.TrimSpace(said))
	}
	if string(bytes.TrimSpace(said)) != want {
		return fmt.Errorf("ipmitool %s: %q, not %q", word, said, want)
	}
	return nil
}
