package localbmc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// The fields of Set and Get Watchdog Timer, IPMI 2.0 section 27.6.
const (
	useMask      = 0x07
	useSMSOS     = 0x04 // for the operating system and the software on it
	dontStop     = 0x40 // in Set: a running timer continues
	running      = 0x40 // in Get
	actionMask   = 0x07
	actionNone   = 0x00
	powerDown    = 0x02
	clearSMSOS   = 0x10 // clears the flag that such a timer expired
	tenth        = 100 * time.Millisecond
	mark         = 7    // tenths of a second that only our countdown has
	notArmedCode = 0x80 // Reset Watchdog Timer: no timer is set
)

// ErrTaken means that another program uses the watchdog of the BMC.
var ErrTaken = errors.New("the watchdog of this host's BMC belongs to another program")

// Watchdog is the timer in the BMC that powers this host down unless it is kicked
// in time. It outlives the process; a later process takes it over or stops it.
type Watchdog struct {
	bmc       *BMC
	countdown uint16
}

// Watchdog returns the BMC's watchdog with a timeout of at most 6553 seconds. The
// kernel's driver and its users set whole seconds, so an extra 0.7 s marks our
// timer.
func (b *BMC) Watchdog(timeout time.Duration) *Watchdog {
	return &Watchdog{bmc: b, countdown: uint16(timeout/time.Second)*10 + mark}
}

// timer is the state of the watchdog.
type timer struct {
	running   bool
	use       byte
	action    byte
	countdown uint16
}

func (w *Watchdog) read(ctx context.Context) (timer, error) {
	r, err := w.bmc.ask(ctx, getWatchdog, 8)
	if err != nil {
		return timer{}, err
	}
	return timer{
		running: r[0]&running != 0, use: r[0] & useMask, action: r[1] & actionMask,
		countdown: binary.LittleEndian.Uint16(r[4:]),
	}, nil
}

// isOurs reports whether fenced set the timer, with any timeout.
func (t timer) isOurs() bool {
	return t.use == useSMSOS && t.action == powerDown && t.countdown%10 == mark
}

// Kick restarts the countdown, and arms the timer first if needed. It does not
// touch a timer that another program runs: a kick would hide a hang of that
// program. It is idempotent.
func (w *Watchdog) Kick(ctx context.Context) error {
	t, err := w.read(ctx)
	if err != nil {
		return err
	}
	if t.running && !t.isOurs() {
		return fmt.Errorf("%w: it runs for %s with use %d and action %d", ErrTaken, time.Duration(t.countdown)*tenth, t.use, t.action)
	}
	if !t.running || t.countdown != w.countdown {
		return w.arm(ctx)
	}
	_, err = w.bmc.ask(ctx, resetWatchdog, 0)
	if code, _ := completion(err); code == notArmedCode {
		return w.arm(ctx) // the BMC has restarted
	}
	return err
}

// arm sets the timer, verifies that the BMC stored it unchanged, and only then
// starts it: a timer that looks like another program's would never be kicked
// again.
func (w *Watchdog) arm(ctx context.Context) error {
	if err := w.set(ctx, useSMSOS|dontStop, powerDown); err != nil {
		return err
	}
	t, err := w.read(ctx)
	if err != nil {
		return err
	}
	if !t.isOurs() || t.countdown != w.countdown {
		return errors.Join(
			fmt.Errorf("arm the watchdog of %s: it holds %s with use %d and action %d instead", w.bmc.name,
				time.Duration(t.countdown)*tenth, t.use, t.action),
			w.set(ctx, useSMSOS, actionNone))
	}
	_, err = w.bmc.ask(ctx, resetWatchdog, 0)
	return err
}

// Release stops the timer if fenced armed it, now or before a crash. It does not
// check whether the timer runs, because not every BMC reports that correctly. It
// is idempotent.
func (w *Watchdog) Release(ctx context.Context) error {
	t, err := w.read(ctx)
	if err != nil || !t.isOurs() {
		return err
	}
	return w.set(ctx, useSMSOS, actionNone) // without dontStop this command stops the timer
}

func (w *Watchdog) set(ctx context.Context, use, action byte) error {
	data := binary.LittleEndian.AppendUint16([]byte{use, action, 0, clearSMSOS}, w.countdown)
	_, err := w.bmc.ask(ctx, setWatchdog, 0, data...)
	return err
}

const (
	// releaseTime limits the last command to the BMC; a command in progress may
	// take up to ten seconds.
	releaseTime = 20 * time.Second
	// aliveEvery is how often a daemon that made no decision is checked again, so
	// that a daemon that starts after a crash takes over the timer in time.
	aliveEvery = time.Second
)

// Keeper keeps the watchdog running while this daemon is the active fencer and
// alive.
type Keeper struct {
	Watchdog *Watchdog
	Every    time.Duration // between two kicks; a quarter of the timeout
	// Active reports whether the daemon may fence now. If it hangs, so does the
	// keeper.
	Active func() bool
	// Alive reports whether the daemon has made a decision since the last call.
	Alive func() bool
	// Root is the root of the file system, which shows whether the kernel uses the
	// watchdog.
	Root fs.FS
	// OnChange is called when the state changes, with the error if there is one.
	OnChange func(held bool, err error)

	reported string // the last change, as text
}

// Run keeps the watchdog running until ctx ends and then stops it: a deliberate
// stop of the daemon must not power down this host. A process that hangs or is
// killed cannot stop it, and the watchdog powers the host down.
func (k *Keeper) Run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(k.step(ctx))
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
			defer cancel()
			if err := k.Watchdog.Release(last); err != nil {
				k.report(true, fmt.Errorf("stop the watchdog: %w; this host may be powered down", err))
			}
			return nil
		}
	}
}

// step does one step and returns the time until the next. If the daemon is not
// alive, it does nothing, and the countdown continues.
func (k *Keeper) step(ctx context.Context) time.Duration {
	if !k.Alive() {
		return min(aliveEvery, k.Every)
	}
	once, cancel := context.WithTimeout(ctx, k.Every)
	defer cancel()
	held, err := k.keepWatchdog(once)
	if ctx.Err() != nil {
		return k.Every // ctx has ended; Run handles it
	}
	k.report(held, err)
	if err != nil {
		return k.Every / 3 // there is still time to correct it
	}
	return k.Every
}

// keepWatchdog kicks the watchdog, or releases it if this daemon must not have
// it.
func (k *Keeper) keepWatchdog(ctx context.Context) (held bool, err error) {
	if !k.Active() {
		return false, k.Watchdog.Release(ctx)
	}
	if err := checkKernelDriver(k.Root); err != nil {
		return false, errors.Join(err, k.Watchdog.Release(ctx))
	}
	if err := k.Watchdog.Kick(ctx); err != nil {
		return false, fmt.Errorf("kick the watchdog: %w", err)
	}
	return true, nil
}

// report reports each change once.
func (k *Keeper) report(held bool, err error) {
	text := fmt.Sprint(held, err)
	if text != k.reported {
		k.reported = text
		k.OnChange(held, err)
	}
}

// checkKernelDriver returns an error if the kernel's driver for the BMC's
// watchdog is loaded. It sets the timer when somebody opens /dev/watchdog, and at
// a panic or a reboot.
func checkKernelDriver(root fs.FS) error {
	_, err := fs.Stat(root, "sys/module/ipmi_watchdog")
	switch {
	case err == nil:
		return fmt.Errorf("%w: the kernel's module ipmi_watchdog is loaded", ErrTaken)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("check for the kernel's module ipmi_watchdog: %w", err)
}
