package localbmc

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/ipmi"

	"github.com/fenced/fenced/test/must"
)

// TestOneAtATime: the device drops replies when it is shared.
func TestOneAtATime(t *testing.T) {
	dev := &fakeDevice{replies: replies()}
	b := newBMC(dev, "fake")
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 20 {
				must.Do(b.ask(t.Context(), getDeviceID, 4))(t)
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
		f := must.Do(b.Facts(t.Context()))(t)
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
	busy    map[string]int    // by request: how often it is answered that the BMC is busy, before its reply
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
	if d.busy[string(request)] > 0 {
		d.busy[string(request)]--
		return nil, ipmi.CompletionError(0xc0)
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

const (
	askID   = "\x06\x01"
	askGUID = "\x06\x37"
)

// lanAsk is the request for a LAN parameter.
func lanAsk(channel, param, set byte) string {
	return string([]byte{0x0c, 0x02, channel, param, set, 0})
}

func replies() map[string][]byte {
	v6 := netip.MustParseAddr("2001:db8::7").As16()
	return map[string][]byte{
		askID:            {0x20, 1, 0x89, 0x08, 2},
		askGUID:          []byte("\x4c\x4c\x45\x44\x00\x10\x00\x11\x80\x00\x00\x00\x00\x00\xca\xfe"),
		lanAsk(1, 3, 0):  {0x11, 192, 0, 2, 9},
		lanAsk(1, 5, 0):  {0x11, 0x3c, 0xec, 0xef, 1, 2, 3},
		lanAsk(1, 56, 0): append(append([]byte{0x11, 0, 0x80}, v6[:]...), 64, 0),
		lanAsk(1, 56, 1): append(append([]byte{0x11, 1, 0x00}, v6[:]...), 64, 0), // not enabled
		lanAsk(8, 3, 0):  {0x11, 0, 0, 0, 0},
		lanAsk(8, 5, 0):  {0x11, 0, 0, 0, 0, 0, 0},
	}
}

func TestFacts(t *testing.T) {
	f := must.Do(newBMC(&fakeDevice{replies: replies()}, "fake").Facts(t.Context()))(t)
	require.Equal(t, Facts{
		GUID: "4c4c454400100011800000000000cafe", Firmware: "9.08",
		Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::7")},
		MACs:  []string{"3c:ec:ef:01:02:03"},
	}, f)
}

// TestFactsOfAPoorBMC: one that has neither a GUID nor a LAN is no error.
func TestFactsOfAPoorBMC(t *testing.T) {
	f := must.Do(newBMC(&fakeDevice{replies: map[string][]byte{askID: {0x20, 1, 9, 8, 2}}}, "fake").Facts(t.Context()))(t)
	require.Equal(t, Facts{Firmware: "9.08"}, f)
}

// TestFactsOfABusyBMC: one that is busy for a moment, as after a boot of its host, has a GUID and a LAN
// all the same. // I13
func TestFactsOfABusyBMC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := must.Do(newBMC(&fakeDevice{replies: replies()}, "fake").Facts(t.Context()))(t)
		for request := range replies() {
			dev := &fakeDevice{replies: replies(), busy: map[string]int{request: 2}}
			dev.replies["\x06\x08"] = []byte("0123456789abcdef") // the GUID of the BMC itself, which no LAN session shows
			f, err := newBMC(dev, "fake").Facts(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, f, "busy at %x", request)
		}

		dev := &fakeDevice{replies: replies(), busy: map[string]int{}}
		for request := range replies() {
			dev.busy[request] = 1000
		}
		began := time.Now()
		_, err := newBMC(dev, "fake").Facts(t.Context())
		require.ErrorContains(t, err, "Get Device ID")
		require.Less(t, time.Since(began), time.Second, "it is not waited for")
	})
}

// TestFactsDeviceGUID: a BMC without a System GUID still has its own.
func TestFactsDeviceGUID(t *testing.T) {
	r := replies()
	delete(r, askGUID)
	r["\x06\x08"] = []byte("0123456789abcdef")
	f := must.Do(newBMC(&fakeDevice{replies: r}, "fake").Facts(t.Context()))(t)
	require.Equal(t, "30313233343536373839616263646566", f.GUID)
}

// TestFactsShort: a reply that is too short is an error, never a panic nor a fact,
// and what is right beside it is kept.
func TestFactsShort(t *testing.T) {
	for request, want := range replies() {
		for n := range len(want) {
			r := replies()
			if n == 20 {
				continue // the status after an IPv6 address is not needed
			}
			r[request] = want[:n]
			f, err := newBMC(&fakeDevice{replies: r}, "fake").Facts(t.Context())
			switch request {
			case askID:
				if n < 4 {
					require.Error(t, err)
					require.Equal(t, Facts{}, f)
				}
			case askGUID:
				require.ErrorContains(t, err, "Get System GUID")
				require.Empty(t, f.GUID)
				require.Len(t, f.MACs, 1, "the LAN is asked all the same")
			default:
				require.ErrorContains(t, err, "bytes instead of", "%x with %d bytes", request, n)
				require.NotEmpty(t, f.GUID)
			}
		}
	}
}

// TestFactsOfAnEmptyAnswer: the kernel gave not even a completion code.
func TestFactsOfAnEmptyAnswer(t *testing.T) {
	_, err := newBMC(anyDevice{}, "fake").Facts(t.Context())
	require.ErrorContains(t, err, "the reply has 0 bytes instead of 5")
}

func TestFactsOfADeadBMC(t *testing.T) {
	_, err := newBMC(&fakeDevice{err: errors.New("i/o timeout")}, "/dev/ipmi7").Facts(t.Context())
	require.ErrorContains(t, err, "Get Device ID of /dev/ipmi7: i/o timeout")
}

func TestOpenWithoutDevice(t *testing.T) {
	_, err := Open(4711)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSystemUUID(t *testing.T) {
	root := fstest.MapFS{"sys/class/dmi/id/product_uuid": {Data: []byte("44454c4c-1000-1100-8000-00000000cafe\n")}}
	uuid := must.Do(SystemUUID(root))(t)
	require.Equal(t, "44454c4c-1000-1100-8000-00000000cafe", uuid)
	_, err := SystemUUID(fstest.MapFS{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "open /sys/class/dmi/id/product_uuid", "as people know it")
}

func FuzzFacts(f *testing.F) {
	f.Add([]byte{0, 0x20, 1, 9, 8, 2}, []byte{0, 1, 2, 3, 4})
	f.Add([]byte{}, []byte{0})
	f.Fuzz(func(t *testing.T, id, rest []byte) {
		facts, _ := newBMC(anyDevice{id, rest}, "fake").Facts(context.Background())
		for _, a := range facts.Addrs {
			require.False(t, a.IsUnspecified() || a.IsLoopback())
		}
		require.Contains(t, []int{0, 32}, len(facts.GUID))
	})
}

// anyDevice answers anything.
type anyDevice struct{ id, rest []byte }

func (d anyDevice) RawCmd(r []byte) ([]byte, error) {
	if string(r) == askID {
		return d.id, nil
	}
	return d.rest, nil
}
func (anyDevice) Close() error { return nil }
