package rig

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
)

// boot is one run of a kubelet, from power on to power loss, with the state that it has in memory.
type boot struct {
	client kubernetes.Interface
	opts   KubeletOptions
	bootID string
	lease  *coordinationv1.Lease // as last written; nil if it must be read
	cancel context.CancelFunc
	done   chan struct{}
}

func startBoot(ctx context.Context, client kubernetes.Interface, o KubeletOptions) *boot {
	ctx, cancel := context.WithCancel(ctx)
	b := &boot{client: client, opts: o, bootID: newUUID(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.run(ctx)
	}()
	return b
}

// stop ends the kubelet at once, and cuts off a request in flight, as a power loss does.
func (b *boot) stop() {
	b.cancel()
	<-b.done
}

func (b *boot) run(ctx context.Context) {
	if !sleep(ctx, b.opts.BootDelay) {
		return
	}
	for b.register(ctx) != nil {
		if !sleep(ctx, 500*time.Millisecond) {
			return
		}
	}
	// From here on the kubelet never registers again, whatever happens to its Node.
	var renewed time.Time
	for {
		// After an error the next round tries again: a kubelet survives any API outage.
		if time.Since(renewed) >= b.opts.RenewEvery && b.renewLease(ctx) == nil {
			renewed = time.Now()
		}
		_ = b.reportReady(ctx)
		if !sleep(ctx, b.opts.LeaseEvery) {
			return
		}
	}
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// machineID is stored on the host's disk, so it is the same after each boot.
func machineID(o KubeletOptions) string {
	id := [16]byte{}
	copy(id[:], o.NodeName)
	return hex.EncodeToString(id[:])
}
