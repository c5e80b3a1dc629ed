package localbmc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

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

	told string
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
	word := fmt.Sprint(held, err)
	if word != k.told {
		k.told = word
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
