package localbmc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const (
	// releaseTime bounds the last command to the BMC; one that is still under way
	// takes up to ten seconds.
	releaseTime = 20 * time.Second
	// aliveEvery is how often a daemon that did not decide is asked again, so that one
	// that starts after a crash is in time to take the timer over.
	aliveEvery = time.Second
)

// Keeper holds the watchdog while this daemon is the active fencer and alive.
type Keeper struct {
	Watchdog *Watchdog
	Every    time.Duration // between two kicks; a quarter of the timeout
	// Active says whether the daemon may fence now. When it hangs, so does the keeper.
	Active func() bool
	// Alive says whether the daemon decided since it was asked before.
	Alive func() bool
	// Root is the root of the file system, where the kernel's own use of the
	// watchdog shows.
	Root fs.FS
	// Tell is called when the state changes, with what stands in the way.
	Tell func(held bool, err error)

	told string
}

// Run holds the watchdog until ctx ends and then stops it: a stop on purpose must
// not end this host. A process that hangs or is killed does neither, and that ends
// it.
func (k *Keeper) Run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(k.look(ctx))
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
			defer cancel()
			if err := k.Watchdog.Release(last); err != nil {
				k.tell(true, fmt.Errorf("stop the watchdog: %w; this host may be powered down", err))
			}
			return nil
		}
	}
}

// look does what the moment asks for, and says when to look again. Not alive means
// that nothing is done, and the countdown runs on.
func (k *Keeper) look(ctx context.Context) time.Duration {
	if !k.Alive() {
		return min(aliveEvery, k.Every)
	}
	once, cancel := context.WithTimeout(ctx, k.Every)
	defer cancel()
	held, err := k.hold(once)
	if ctx.Err() != nil {
		return k.Every // stopped in the middle, which Run deals with
	}
	k.tell(held, err)
	if err != nil {
		return k.Every / 3 // there is still time to mend it
	}
	return k.Every
}

// hold kicks the watchdog, or lets it go when it is not for us to have it.
func (k *Keeper) hold(ctx context.Context) (held bool, err error) {
	if !k.Active() {
		return false, k.Watchdog.Release(ctx)
	}
	if err := kernelUses(k.Root); err != nil {
		return false, errors.Join(err, k.Watchdog.Release(ctx))
	}
	if err := k.Watchdog.Kick(ctx); err != nil {
		return false, fmt.Errorf("kick the watchdog: %w", err)
	}
	return true, nil
}

// tell reports a change once.
func (k *Keeper) tell(held bool, err error) {
	word := fmt.Sprint(held, err)
	if word != k.told {
		k.told = word
		k.Tell(held, err)
	}
}

// kernelUses says whether the kernel's driver for the BMC's watchdog is there. It
// sets the timer when somebody opens /dev/watchdog, and at a panic or a reboot.
func kernelUses(root fs.FS) error {
	_, err := fs.Stat(root, "sys/module/ipmi_watchdog")
	switch {
	case err == nil:
		return fmt.Errorf("%w: the kernel's module ipmi_watchdog is loaded", ErrTaken)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("look for the kernel's module ipmi_watchdog: %w", err)
}
