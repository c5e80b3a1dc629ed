package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// lock takes an advisory lock across processes. The kernel releases it when the process ends, so no
// stale lock remains.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	start := time.Now()
	stop := func() {}
	defer func() { stop() }()
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // Close releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintln(progress, "another process is building the programs of the tests, waiting for it")
			stop = heartbeat(progress, "them in another process", start)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for the build in another process: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// heartbeat writes every 15 seconds that a long build is still running.
func heartbeat(progress io.Writer, what string, start time.Time) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				fmt.Fprintf(progress, "  ... building %s, %s so far\n", what, now.Sub(start).Round(time.Second))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
