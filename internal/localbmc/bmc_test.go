package localbmc

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/ipmi"
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

// fakeDevice is a BMC behind a kernel device: replies by request, and a watchdog
// that powers its host down.
type fakeDevice struct {
	mu      sync.Mutex
	replies map[string][]byte // by request; what is missing is refused
	err     error             // for everything
	block   chan struct{}     // a command waits until it is closed
	under   int               // commands under way
	most    int               // of them at once
	asked   []string
	closed  bool

	use, action byte
	initial     uint16
	rounds      bool // keeps whole seconds only
	timer       *time.Timer
	down        time.Time // when the host was powered down
}

func (d *fakeDevice) RawCmd(request []byte) ([]byte, error) {
	d.mu.Lock()
	d.under++
	d.most = max(d.most, d.under)
	block := d.block
	d.mu.Unlock()
	if block != nil {
		<-block
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under--
	d.asked = append(d.asked, string(request))
	if d.err != nil {
		return nil, d.err
	}
	if request[0] == 0x06 && request[1] >= 0x22 && request[1] <= 0x25 {
		return d.watchdog(request[1], request[2:])
	}
	if r, ok := d.replies[string(request)]; ok {
		return append([]byte{0}, r...), nil
	}
	return nil, ipmi.CompletionError(0xcc)
}

func (d *fakeDevice) Close() error {
	d.do(func() { d.closed = true })
	return nil
}

func (d *fakeDevice) watchdog(code byte, data []byte) ([]byte, error) {
	switch code {
	case 0x22:
		if d.initial == 0 {
			return nil, ipmi.CompletionError(0x80)
		}
		d.start()
	case 0x24:
		d.use, d.action, d.initial = data[0]&useMask, data[1], binary.LittleEndian.Uint16(data[4:])
		if d.rounds {
			d.initial -= d.initial % 10
		}
		if running := d.stop(); running && data[0]&dontStop != 0 {
			d.start()
		}
	case 0x25:
		use := d.use
		if d.timer != nil {
			use |= running
		}
		reply := binary.LittleEndian.AppendUint16([]byte{0, use, d.action, 0, 0}, d.initial)
		return append(reply, 0, 0), nil
	}
	return []byte{0}, nil
}

func (d *fakeDevice) stop() bool {
	was := d.timer
	d.timer = nil
	return was != nil && was.Stop()
}

func (d *fakeDevice) start() {
	d.stop()
	d.timer = time.AfterFunc(time.Duration(d.initial)*tenth, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.timer = nil
		if d.action == powerDown {
			d.down = time.Now()
		}
	})
}

// do looks at the device, or changes it, while nothing is asked.
func (d *fakeDevice) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// runs says whether the countdown runs, and with which action.
func (d *fakeDevice) runs() (on bool, action byte) {
	d.do(func() { on, action = d.timer != nil, d.action })
	return on, action
}

// requests are those that it was sent.
func (d *fakeDevice) requests() (all []string) {
	d.do(func() { all = slices.Clone(d.asked) })
	return all
}

func (d *fakeDevice) isClosed() (closed bool) {
	d.do(func() { closed = d.closed })
	return closed
}

func (d *fakeDevice) downAt() (at time.Time) {
	d.do(func() { at = d.down })
	return at
}
