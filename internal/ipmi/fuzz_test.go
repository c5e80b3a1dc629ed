package ipmi

import (
	"crypto/aes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// seeds adds every recorded datagram to the corpus.
func seeds(f *testing.F, add func(datagram []byte)) {
	f.Helper()
	for _, r := range recorded {
		for _, d := range readSession(f, filepath.Join("testdata", r.file)) {
			add(d.Data)
		}
	}
}

// FuzzDecode feeds everything that reads a datagram from the network: framing,
// the three handshake answers, and the reply to a command. Nothing may panic,
// and nothing may be taken for authentic that does not seal to the same bytes.
func FuzzDecode(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Add(testSealer(f, suites[0]).seal(1, 1, [aes.BlockSize]byte{}, offReply(1)))
	f.Add(testSealer(f, suites[1]).seal(1, 1, [aes.BlockSize]byte{}, offReply(1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePacket(b)
		if err != nil {
			return
		}
		for _, s := range suites {
			x := &exchange{suite: s, user: "admin", key: []byte("secret"), consoleID: p.sessionID}
			if a, err := parseAnswer(p.payload); err == nil {
				x.isOurs(a)
				for _, take := range []func([]byte) error{x.acceptOpen, x.acceptRAKP2,
					func(b []byte) error { return x.checkRAKP4(b, make([]byte, 20)) }} {
					_ = take(a.rest) // only panics are looked for
				}
			}
			seal := testSealer(t, s)
			message, n, err := seal.open(b, p.sessionID)
			if err != nil {
				continue
			}
			again := seal.seal(p.sessionID, n, [aes.BlockSize]byte(p.payload), message)
			require.Equal(t, b[rmcpLen:], again[rmcpLen:])
		}
	})
}

// FuzzReply feeds what a BMC that knows the keys may answer.
func FuzzReply(f *testing.F) {
	f.Add(offReply(1), byte(1))
	f.Add([]byte{}, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, rqSeq byte) {
		r, err := chassisStatus.decodeReply(b, rqSeq)
		if err != nil {
			return
		}
		state, raw, _ := readStatus(r.data)
		require.LessOrEqual(t, len(raw), 64)
		require.Equal(t, len(r.data) >= 3, state != 0)
	})
}

// FuzzDescribe feeds what a BMC may tell about itself: it stays bounded and
// printable.
func FuzzDescribe(f *testing.F) {
	f.Add(inventory(nil, nil, nil, area(productFields, latin("A"), latin("B"), latin("C"), latin("D"), latin("E"))))
	f.Add(make([]byte, 18))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d bmc.Description
		readDeviceID(b, &d)
		d.Serial = fru{giving(b, fruChunk)}.serial()
		d.Clock = readSELTime(b)
		asked := 0
		d.PowerEvents = powerEvents(selCount(b), func(request) (reply, bool) {
			asked++
			return reply{data: b}, len(b) > 0
		})
		require.LessOrEqual(t, asked, selSearched)
		require.LessOrEqual(t, len(d.PowerEvents), selTold)
		for _, text := range []string{d.Manufacturer, d.Model, d.Firmware, d.Serial} {
			require.LessOrEqual(t, len(text), 126) // 63 bytes of packed text
			for _, c := range text {
				require.True(t, c >= ' ' && c <= '~', "%q", text)
			}
		}
	})
}
