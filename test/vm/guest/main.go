// Command guest is the first process of a virtual machine that has a BMC inside. It
// uses internal/localbmc as the daemon does and writes what it saw to the console;
// the test outside reads that, and sees whether the machine is powered down.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/localbmc"
)

// timeout is short for a watchdog, and long for a machine that is emulated. The kernel passes a
// longer one on, for a machine that others keep busy.
var timeout = 6 * time.Second

func main() {
	console, err := boot()
	if text := os.Getenv("FENCED_TIMEOUT"); err == nil && text != "" {
		timeout, err = time.ParseDuration(text)
	}
	if err == nil {
		err = live(console)
	}
	fmt.Fprintln(console, "guest: error:", err)
	time.Sleep(time.Second) // for the console
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// boot makes a small system: the kernel's file systems and the drivers of the BMC.
func boot() (io.Writer, error) {
	for dir, kind := range map[string]string{"/dev": "devtmpfs", "/proc": "proc", "/sys": "sysfs"} {
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			return os.Stdout, fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	console, err := os.OpenFile("/dev/ttyS0", os.O_WRONLY, 0)
	if err != nil {
		return os.Stdout, err
	}
	for _, m := range [][2]string{{"ipmi_msghandler"}, {"ipmi_devintf"}, {"ipmi_si", "type=kcs ports=0xca2"}} {
		if err := load(m[0], m[1]); err != nil {
			return console, err
		}
	}
	for range 100 {
		if _, err = os.Stat("/dev/ipmi0"); err == nil {
			return console, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return console, err
}

func load(module, parameters string) error {
	f, err := os.Open("/" + module + ".ko")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil {
		return fmt.Errorf("load %s: %w", module, err)
	}
	return nil
}

// live does what a daemon's life may hold, and ends only in an error.
func live(console io.Writer) error {
	b, err := localbmc.Open(0)
	if err != nil {
		return err
	}
	if err := facts(console, b); err != nil {
		return err
	}
	for _, act := range []func(io.Writer, *localbmc.BMC) error{others, crash, hold, hang} {
		if err := act(console, b); err != nil {
			return err
		}
	}
	return errors.New("still on")
}

func facts(console io.Writer, b *localbmc.BMC) error {
	f, err := b.Facts(context.Background())
	if err != nil {
		return err
	}
	uuid, err := localbmc.SystemUUID(os.DirFS("/"))
	fmt.Fprintf(console, "guest: facts guid=%s uuid=%s addrs=%d\n", f.GUID, uuid, len(f.Addrs))
	return err
}

// others lets the kernel's driver have the watchdog, which then is not ours.
func others(console io.Writer, b *localbmc.BMC) error {
	if err := load("ipmi_watchdog", "timeout=60"); err != nil {
		return err
	}
	f, err := os.OpenFile("/dev/watchdog", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("k"); err != nil { // starts the timer; the open does not
		return err
	}
	w := b.Watchdog(timeout)
	err = w.Kick(context.Background())
	if !errors.Is(err, localbmc.ErrTaken) {
		return fmt.Errorf("the kernel's timer was kicked: %v", err)
	}
	if err := w.Release(context.Background()); err != nil {
		return err
	}
	if err := w.Kick(context.Background()); !errors.Is(err, localbmc.ErrTaken) {
		return fmt.Errorf("the kernel's timer was stopped: %v", err)
	}
	told := make(chan error, 1)
	k := keeper(b, func() bool { return true }, func(_ bool, err error) { told <- err })
	stop := run(k)
	fmt.Fprintln(console, "guest: others:", <-told)
	if err := stop(); err != nil {
		return err
	}
	if _, err := f.WriteString("V"); err != nil { // stops the timer at the close
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return unix.DeleteModule("ipmi_watchdog", syscall.O_NONBLOCK)
}

// crash leaves a timer behind, which the next daemon finds and stops.
func crash(console io.Writer, b *localbmc.BMC) error {
	if err := b.Watchdog(timeout).Kick(context.Background()); err != nil {
		return err
	}
	if err := b.Watchdog(time.Hour).Release(context.Background()); err != nil {
		return err
	}
	time.Sleep(timeout + time.Second)
	fmt.Fprintln(console, "guest: stopped what a crash left")
	return nil
}

// hold decides for longer than the timeout, and stops on purpose.
func hold(console io.Writer, b *localbmc.BMC) error {
	stop := run(keeper(b, func() bool { return true }, tellTo(console)))
	time.Sleep(2 * timeout)
	fmt.Fprintln(console, "guest: held")
	if err := stop(); err != nil {
		return err
	}
	time.Sleep(timeout + time.Second)
	fmt.Fprintln(console, "guest: stopped")
	return nil
}

// hang decides once and never again.
func hang(console io.Writer, b *localbmc.BMC) error {
	var asked atomic.Int64
	stop := run(keeper(b, func() bool { return asked.Add(1) == 1 }, tellTo(console)))
	time.Sleep(timeout / 2)
	fmt.Fprintln(console, "guest: hung for half the timeout")
	time.Sleep(2 * timeout)
	return stop()
}

func keeper(b *localbmc.BMC, alive func() bool, tell func(bool, error)) *localbmc.Keeper {
	return &localbmc.Keeper{
		Watchdog: b.Watchdog(timeout), Every: timeout / 4, Active: func() bool { return true },
		Alive: alive, Root: os.DirFS("/"), OnChange: tell,
	}
}

func tellTo(console io.Writer) func(bool, error) {
	return func(held bool, err error) { fmt.Fprintln(console, "guest: watchdog", held, err) }
}

// run runs a keeper until the function it gives is called.
func run(k *localbmc.Keeper) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}
