package localbmc

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneAtATime: the device drops replies when it is shared.
func TestOneAtATime(t *testing.T) {
	dev := &fakeDevice{replies: replies()}
	b := newBMC(dev, "fake")
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 20 {
				_, err := b.ask(t.Context(), getDeviceID, 4)
				require.NoError(t, err)
			}
		})
	}
	g.Wait()
	require.Equal(t, 1, dev.most)
	require.Len(t, dev.asked, 160)
}

// TestHungDevice: the caller's deadline holds although the device knows none, and
// nobody comes in between until the hung command ends.
func TestHungDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &fakeDevice{replies: replies(), block: make(chan struct{})}
		b := newBMC(dev, "fake")
		start := time.Now()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := b.Facts(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.Equal(t, 6*time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Close(ctx), context.DeadlineExceeded)
		require.False(t, dev.isClosed())

		close(dev.block)
		synctest.Wait()
		f, err := b.Facts(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, f.GUID)
		require.NoError(t, b.Close(t.Context()))
		require.True(t, dev.isClosed())
		require.Equal(t, 1, dev.most)
	})
}
