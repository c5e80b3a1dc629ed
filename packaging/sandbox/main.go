// Command sandbox runs in the place of the daemon, inside the sandbox of its unit.
// It drives every kind of power driver against simulators beside it, and tells of
// each whether it can do its work there; the test outside reads that.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// timing is generous: Python starts slowly on a busy machine.
var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	tell("confined", confined())
	life, end := context.WithCancel(ctx)
	all, err := devices(life)
	tell("simulators", err)
	for _, d := range all {
		tell(d.name, switches(ctx, d))
	}
	tell("a hung agent is ended", hung(ctx))
	end()
	tell("nothing is left behind", alone())
}

func tell(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		return
	}
	fmt.Println("ok", what)
}

// switches takes the host off and on, and has both read.
func switches(ctx context.Context, d device) (err error) {
	p, err := d.open(d.Device, timing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	if err := reads(ctx, p, bmc.On); err != nil {
		return err
	}
	for _, c := range []struct {
		command bmc.Command
		then    bmc.PowerState
	}{{bmc.CommandOff, bmc.Off}, {bmc.CommandOn, bmc.On}} {
		if _, err := p.Send(ctx, c.command); err != nil {
			return err
		}
		if err := reads(ctx, p, c.then); err != nil {
			return err
		}
	}
	return nil
}

func reads(ctx context.Context, p bmc.Power, want bmc.PowerState) error {
	r, err := p.Read(ctx)
	if err == nil && r.State != want {
		err = fmt.Errorf("it reads %v (%s), not %v", r.State, r.Raw, want)
	}
	return err
}

// alone says whether every process that was started has ended: the simulator's
// within a moment.
func alone() (err error) {
	for range 20 {
		if err = company(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// company is an error while this user has another process than this one.
func company() error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range processes {
		info, err := p.Info()
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
			continue // it has ended, or is another user's
		}
		name, err := os.ReadFile("/proc/" + p.Name() + "/comm")
		if err == nil && p.Name() != fmt.Sprint(os.Getpid()) {
			return fmt.Errorf("process %s, %s", p.Name(), name)
		}
	}
	return nil
}
