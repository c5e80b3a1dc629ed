// Package localbmc talks to the BMC of the host it runs on, through the kernel's
// IPMI device: to read the identity of that BMC, so that its host is never fenced
// from here (facts.go), and to use its watchdog (watchdog.go). It never switches power.
package localbmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/u-root/u-root/pkg/ipmi"
)

// device is the kernel's /dev/ipmiN. RawCmd takes network function, command and
// data, blocks for up to ten seconds, and returns the reply from the completion
// code on, which is zero.
type device interface {
	RawCmd(request []byte) ([]byte, error)
	Close() error
}

// BMC is the BMC of this host. It may be used by several goroutines. Its device
// may not, because it drops replies that another goroutine waits for; so there is
// one command at a time.
type BMC struct {
	dev  device
	name string
	slot chan struct{} // holds a token during a command
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
	return &BMC{dev: dev, name: name, slot: make(chan struct{}, 1)}
}

// Close closes the device after the command in progress. If ctx ends first, the
// device stays open: its file descriptor must not be reused while a command still
// uses it.
func (b *BMC) Close(ctx context.Context) error {
	select {
	case b.slot <- struct{}{}: // never returned: no command may follow
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

// ask sends a command and returns what follows the completion code, at least want
// bytes. If ctx ends first, the command continues in the background and keeps the
// slot.
func (b *BMC) ask(ctx context.Context, c command, want int, data ...byte) ([]byte, error) {
	select {
	case b.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s of %s: the previous command has no answer yet: %w", c.what, b.name, ctx.Err())
	}
	done := make(chan answer, 1)
	go func() {
		reply, err := b.dev.RawCmd(append([]byte{c.netfn, c.code}, data...))
		<-b.slot
		done <- answer{reply, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return nil, fmt.Errorf("%s of %s: %w", c.what, b.name, a.err)
		}
		if len(a.reply) < 1+want {
			return nil, fmt.Errorf("%s of %s: the reply has %d bytes instead of %d", c.what, b.name, len(a.reply), 1+want)
		}
		return a.reply[1:], nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s of %s: %w", c.what, b.name, ctx.Err())
	}
}

// completion returns the completion code with which the BMC refused a command; ok
// is false for every other error.
func completion(err error) (code byte, ok bool) {
	e, ok := errors.AsType[ipmi.CompletionError](err)
	return byte(e), ok
}
