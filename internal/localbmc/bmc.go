// Package localbmc talks to the BMC of the host it runs on, through the kernel's
// IPMI device: who that BMC is, so that its host is never fenced from here, and
// its watchdog. It never switches power.
package localbmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/u-root/u-root/pkg/ipmi"
)

// device is the kernel's /dev/ipmiN. RawCmd takes network function, command and
// data, blocks for up to ten seconds, and gives the reply from the completion
// code on, which is zero.
type device interface {
	RawCmd(request []byte) ([]byte, error)
	Close() error
}

// BMC is the one of this host. It may be used by several goroutines; its device
// may not, because it drops replies that another goroutine waits for, so one
// command is under way at a time.
type BMC struct {
	dev  device
	name string
	turn chan struct{} // holds a token while a command is under way
}

// Open opens /dev/ipmiN. On a host without it, errors.Is(err, fs.ErrNotExist).
func Open(n int) (*BMC, error) {
	dev, err := ipmi.Open(n)
	if err != nil {
		return nil, fmt.Errorf("open this host's BMC: %w", err)
	}
	return newBMC(dev, fmt.Sprintf("/dev/ipmi%d", n)), nil
}

func newBMC(dev device, name string) *BMC {
	return &BMC{dev: dev, name: name, turn: make(chan struct{}, 1)}
}

// Close closes the device when the command under way has ended, or leaves it open
// when ctx ends first: its file descriptor must not be given to another file while
// a command still uses it.
func (b *BMC) Close(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}: // kept: nothing may follow
		return b.dev.Close()
	case <-ctx.Done():
		return fmt.Errorf("close %s: %w", b.name, ctx.Err())
	}
}

// command is a network function and a command in it.
type command struct {
	netfn, code byte
	what        string
}

var (
	getDeviceID    = command{0x06, 0x01, "Get Device ID"}
	getDeviceGUID  = command{0x06, 0x08, "Get Device GUID"}
	resetWatchdog  = command{0x06, 0x22, "Reset Watchdog Timer"}
	setWatchdog    = command{0x06, 0x24, "Set Watchdog Timer"}
	getWatchdog    = command{0x06, 0x25, "Get Watchdog Timer"}
	getSystemGUID  = command{0x06, 0x37, "Get System GUID"}
	getLANSettings = command{0x0c, 0x02, "Get LAN Configuration Parameters"}
)

type answer struct {
	reply []byte
	err   error
}

// ask sends a command and gives what follows the completion code, at least want
// bytes. When ctx ends first the command goes on alone, holding the turn.
func (b *BMC) ask(ctx context.Context, c command, want int, data ...byte) ([]byte, error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s of %s: the command before has no answer: %w", c.what, b.name, ctx.Err())
	}
	done := make(chan answer, 1)
	go func() {
		reply, err := b.dev.RawCmd(append([]byte{c.netfn, c.code}, data...))
		<-b.turn
		done <- answer{reply, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return nil, fmt.Errorf("%s of %s: %w", c.what, b.name, a.err)
		}
		if len(a.reply) < 1+want {
			return nil, fmt.Errorf("%s of %s: %d bytes where %d were expected", c.what, b.name, len(a.reply), 1+want)
		}
		return a.reply[1:], nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s of %s: %w", c.what, b.name, ctx.Err())
	}
}

// completion gives the code with which the BMC itself refused a command; ok is
// false for every other error.
func completion(err error) (code byte, ok bool) {
	e, ok := errors.AsType[ipmi.CompletionError](err)
	return byte(e), ok
}
