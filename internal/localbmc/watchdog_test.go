package localbmc

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

const timeout = 60 * time.Second

// keeping is a keeper with a host around it.
type keeping struct {
	*Keeper
	dev           *fakeDevice
	alive, active atomic.Bool
	stop          func()

	mu    sync.Mutex
	words []string
}

func (k *keeping) told() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.words)
}

// keep runs a keeper in the bubble of the test.
func keep(t *testing.T, dev *fakeDevice, root fs.FS) *keeping {
	k := &keeping{dev: dev}
	k.alive.Store(true)
	k.active.Store(true)
	k.Keeper = &Keeper{
		Watchdog: newBMC(dev, "fake").Watchdog(timeout), Every: timeout / 4, Root: root,
		Alive: k.alive.Load, Active: k.active.Load,
		OnChange: func(held bool, err error) {
			word := "released"
			switch {
			case err != nil:
				word = err.Error()
			case held:
				word = "held"
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.words = append(k.words, word)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	k.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	synctest.Wait()
	return k
}

// TestKeepHolds: a daemon that decides keeps its host on, and a stop on purpose
// leaves no timer behind.
func TestKeepHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		time.Sleep(time.Hour)
		on, action := k.dev.runs()
		require.True(t, on)
		require.EqualValues(t, powerDown, action)
		k.stop()
		on, action = k.dev.runs()
		require.False(t, on)
		require.EqualValues(t, actionNone, action)
		time.Sleep(time.Hour)
		require.Zero(t, k.dev.downAt())
		require.Equal(t, []string{"held"}, k.told())
	})
}

// TestKeepHung: a daemon that no longer decides takes its host down, not before
// three quarters of the timeout and not after it.
func TestKeepHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		time.Sleep(100 * time.Second)
		k.alive.Store(false)
		hung := time.Now()
		time.Sleep(time.Hour)
		require.NotZero(t, k.dev.downAt())
		after := k.dev.downAt().Sub(hung)
		require.GreaterOrEqual(t, after, timeout*3/4)
		require.LessOrEqual(t, after, timeout+time.Second)
		k.stop()
	})
}

// TestKeepPausesBriefly: a daemon that decides again in time loses nothing.
func TestKeepPausesBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		for range 20 {
			k.alive.Store(false)
			time.Sleep(timeout * 2 / 3)
			k.alive.Store(true)
			time.Sleep(timeout)
		}
		require.Zero(t, k.dev.downAt())
		k.stop()
	})
}

// TestKeepInactive: only the daemon that may fence is watched.
func TestKeepInactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		k.active.Store(false)
		time.Sleep(timeout)
		on, _ := k.dev.runs()
		require.False(t, on)
		k.alive.Store(false)
		time.Sleep(time.Hour)
		require.Zero(t, k.dev.downAt())
		require.Equal(t, []string{"held", "released"}, k.told())
		k.stop()
	})
}

// TestKeepAfterCrash: the next daemon takes over the timer of a killed one, and one
// with another timeout does so, too.
func TestKeepAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &fakeDevice{}
		require.NoError(t, newBMC(dev, "fake").Watchdog(45*time.Second).Kick(t.Context()))
		time.Sleep(40 * time.Second)
		k := keep(t, dev, fstest.MapFS{})
		time.Sleep(time.Hour)
		require.Zero(t, dev.downAt())
		dev.do(func() { require.EqualValues(t, 607, dev.initial) })
		k.stop()
		on, _ := dev.runs()
		require.False(t, on)
	})
}

// TestKeepOthers: the timer of the kernel's driver, systemd or sbd is left alone,
// neither kicked nor stopped.
func TestKeepOthers(t *testing.T) {
	for name, other := range map[string]*fakeDevice{
		"a reset":        {use: useSMSOS, action: 1, initial: 3000},
		"whole seconds":  {use: useSMSOS, action: powerDown, initial: 3000},
		"the firmware's": {use: 2, action: powerDown, initial: 3007},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other.start()
				k := keep(t, other, fstest.MapFS{})
				time.Sleep(time.Minute)
				k.stop()
				on, action := other.runs()
				require.True(t, on)
				require.Equal(t, other.action, action)
				require.Len(t, k.told(), 1, "said once")
				require.Contains(t, k.told()[0], ErrTaken.Error())
				for _, request := range other.requests() {
					require.Equal(t, "\x06\x25", request, "only read")
				}
				other.stop()
			})
		})
	}
}

// TestKeepTakenOver: another program took the timer while we held it.
func TestKeepTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		time.Sleep(time.Minute)
		k.dev.do(func() { k.dev.action, k.dev.initial = 1, 600 })
		time.Sleep(timeout / 2)
		k.stop()
		require.Len(t, k.told(), 2)
		require.Contains(t, k.told()[1], ErrTaken.Error())
	})
}

// TestKeepKernelDriver: the kernel's driver would set the timer as it likes.
func TestKeepKernelDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{"sys/module/ipmi_watchdog": {Mode: fs.ModeDir}})
		time.Sleep(time.Minute)
		k.stop()
		on, _ := k.dev.runs()
		require.False(t, on)
		require.Equal(t, []string{ErrTaken.Error() + ": the kernel's module ipmi_watchdog is loaded"}, k.told())
	})
}

// TestKeepRoundingBMC: one that keeps whole seconds only would make our timer look
// like another's, so it is never started there.
func TestKeepRoundingBMC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{rounds: true}, fstest.MapFS{})
		time.Sleep(time.Hour)
		k.stop()
		require.Zero(t, k.dev.downAt())
		require.Len(t, k.told(), 1)
		require.Contains(t, k.told()[0], "instead")
		require.NotContains(t, k.dev.requests(), "\x06\x22", "started")
	})
}

// TestKeepRestartedBMC: a BMC that forgot the timer gets it again.
func TestKeepRestartedBMC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		k.dev.do(func() {
			k.dev.stop()
			k.dev.use, k.dev.action, k.dev.initial = 0, 0, 0
		})
		time.Sleep(timeout / 2)
		on, _ := k.dev.runs()
		require.True(t, on)
		k.stop()
	})
}

// TestKeepErrors: a BMC that does not answer is reported once, and once more when
// it is back.
func TestKeepErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		k.dev.do(func() { k.dev.err = errors.New("i/o timeout") })
		time.Sleep(40 * time.Second)
		k.dev.do(func() { k.dev.err = nil })
		time.Sleep(time.Hour)
		require.Zero(t, k.dev.downAt())
		require.Equal(t, []string{"held", "kick the watchdog: Get Watchdog Timer of fake: i/o timeout", "held"}, k.told())
		k.stop()
	})
}

// TestKeepStopsBehindAHungCommand: the stop waits for a command that hangs.
func TestKeepStopsBehindAHungCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, &fakeDevice{}, fstest.MapFS{})
		block := make(chan struct{})
		k.dev.do(func() { k.dev.block = block })
		time.Sleep(timeout / 4)
		go func() {
			time.Sleep(10 * time.Second)
			k.dev.do(func() { k.dev.block = nil })
			close(block)
		}()
		k.stop()
		on, _ := k.dev.runs()
		require.False(t, on)
	})
}
