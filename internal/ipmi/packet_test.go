package ipmi

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

func testSealer(t require.TestingT, s suite) sealer {
	return must.Do(newSealer(s, bytes.Repeat([]byte{7}, 20), bytes.Repeat([]byte{9}, 20)))(t)
}

// TestSealedOpens: what is sealed opens to the same, and no other byte string of
// the same length does.
func TestSealedOpens(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		seal := testSealer(t, rapid.SampledFrom(suites).Draw(t, "suite"))
		message := rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "message")
		sessionID, sequence := rapid.Uint32().Draw(t, "id"), rapid.Uint32().Draw(t, "sequence")
		datagram := seal.seal(sessionID, sequence, [aes.BlockSize]byte{1, 2, 3}, message)

		got, n, err := seal.open(datagram, sessionID)
		require.NoError(t, err)
		assert.Equal(t, sequence, n)
		assert.True(t, bytes.Equal(message, got))

		_, _, err = seal.open(datagram, sessionID+1)
		assert.Error(t, err, "another session's")
		// The RMCP header's reserved and sequence bytes alone mean nothing.
		at := rapid.IntRange(rmcpLen, len(datagram)-1).Draw(t, "at")
		datagram[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		_, _, err = seal.open(datagram, sessionID)
		assert.Error(t, err, "altered at %d", at)
	})
}

// TestAuthenticButMalformed are datagrams that only the BMC itself can make.
func TestAuthenticButMalformed(t *testing.T) {
	for _, s := range suites {
		seal := testSealer(t, s)
		finish := func(flags byte, payload []byte, tail ...byte) []byte {
			b := appendHeader(nil, flags, 1, 1, len(payload))
			b = append(append(b, payload...), tail...)
			return append(b, seal.code(b)...)
		}
		const both = payloadIPMI | flagEncrypted | flagAuthenticated
		block := func(last byte) []byte { // encrypts 15 zeros and last
			b := make([]byte, 2*aes.BlockSize)
			plain := append(make([]byte, aes.BlockSize-1), last)
			seal.block.Encrypt(b[aes.BlockSize:], plain) // the vector is zero
			return b
		}
		_, _, err := seal.open(finish(both, block(0), 0xff, 0xff, 2, 7), 1)
		require.NoError(t, err, "the well-formed one")
		for name, b := range map[string][]byte{
			"not encrypted":       finish(payloadIPMI|flagAuthenticated, block(0), 0xff, 0xff, 2, 7),
			"serial over LAN":     finish(0x01|flagEncrypted|flagAuthenticated, block(0), 0xff, 0xff, 2, 7),
			"pad length too long": finish(both, block(0), 0xff, 0xff, 3, 7),
			"another next header": finish(both, block(0), 0xff, 0xff, 2, 6),
			"no trailer":          finish(both, block(0)),
			"no payload":          finish(both, nil, 0xff, 0xff, 2, 7),
			"vector only":         finish(both, block(0)[:16], 0xff, 0xff, 2, 7),
			"half a block":        finish(both, block(0)[:24], 0xff, 0xff, 2, 7),
			"padding of zeros":    finish(both, block(3), 0xff, 0xff, 2, 7),
			"padding over all":    finish(both, block(16), 0xff, 0xff, 2, 7),
		} {
			_, _, err := seal.open(b, 1)
			assert.Error(t, err, name)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		name  string
		given []uint32
		fresh []bool
	}{
		{"in order", []uint32{1, 2, 3}, []bool{true, true, true}},
		{"zero is outside sessions", []uint32{0, 1, 0}, []bool{false, true, false}},
		{"twice", []uint32{1, 1, 2, 1, 2}, []bool{true, false, true, false, false}},
		{"late", []uint32{1, 5, 3, 3, 4, 2}, []bool{true, true, true, false, true, true}},
		{"15 behind", []uint32{20, 5, 4, 5}, []bool{true, true, false, false}},
		{"15 ahead", []uint32{1, 16, 32, 31}, []bool{true, true, false, true}},
		{"any start", []uint32{0x80000000, 0x80000001, 1}, []bool{true, true, false}},
	} {
		var w window
		for i, n := range c.given {
			assert.Equal(t, c.fresh[i], w.accept(n), "%s: %d at %d", c.name, n, i)
		}
	}
}

func TestReplyToAnotherQuestion(t *testing.T) {
	good := offReply(5)
	must.Do(chassisStatus.decodeReply(good, 5))(t)
	_, err := chassisStatus.decodeReply(good, 6)
	assert.Error(t, err, "another sequence number")
	for at, what := range map[int]string{1: "another network function", 5: "another command"} {
		other := append([]byte(nil), good...)
		other[at] += 4
		other[2], other[len(other)-1] = checksum(other[:2]), checksum(other[3:len(other)-1])
		_, err = chassisStatus.decodeReply(other, 5)
		assert.Error(t, err, what)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		_, err := chassisStatus.decodeReply(bad, 5)
		assert.Error(t, err, "altered at %d", i)
	}
	_, err = chassisStatus.decodeReply(good[:7], 5)
	assert.Error(t, err, "cut short")
	// The request itself, mirrored by somebody, is not its own reply.
	_, err = chassisStatus.decodeReply(chassisStatus.encode(5), 5)
	assert.Error(t, err)
}

var record = flag.Bool("record", false, "record testdata/*.session anew with ipmitool")

// recorded are sessions of ipmitool with two BMCs, neither of which is ours:
// what they agree on is right. The account is admin, the password secret.
var recorded = []struct {
	file  string
	suite int
	start func(*testing.T) ipmisim.BMC
}{
	{"suite3.session", 3, func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{}) }},
	{"suite17.session", 17, func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{}) }},
}

func TestRecordedSessions(t *testing.T) {
	for _, r := range recorded {
		t.Run(r.file, func(t *testing.T) {
			path := filepath.Join("testdata", r.file)
			if *record {
				recordSession(t, path, r.suite, r.start(t))
			}
			replay(t, r.suite, readSession(t, path))
		})
	}
}

// replay derives everything anew from the recorded random numbers: each code
// and each datagram has to come out the same to the byte.
func replay(t *testing.T, suiteID int, datagrams []ipmisim.Datagram) {
	chosen := must.Do(chooseSuites([]int{suiteID}))(t)
	x := &exchange{suite: chosen[0], user: "admin", key: []byte("secret")}
	var seal sealer
	var sik []byte
	commands, replies := 0, 0
	for _, d := range datagrams {
		p, err := parsePacket(d.Data)
		if err != nil {
			continue // what ipmitool asks in IPMI 1.5 framing, before the session
		}
		switch d.Payload() {
		case ipmisim.PayloadOpenRequest:
			x.consoleID = binary.LittleEndian.Uint32(p.payload[4:])
			ours := x.openRequest(p.payload[0])
			assert.Equal(t, ours[4:], p.payload[4:], "all but tag and privilege")
		case ipmisim.PayloadRAKP1:
			copy(x.consoleRnd[:], p.payload[8:])
			x.role = p.payload[24]
			assert.Equal(t, x.rakp1(p.payload[0]), p.payload)
		case ipmisim.PayloadRAKP3:
			assert.Equal(t, x.rakp3(p.payload[0]), p.payload)
			var k1, k2 []byte
			sik, k1, k2 = x.keys()
			seal, err = newSealer(x.suite, k1, k2)
			require.NoError(t, err)
		case ipmisim.PayloadOpenResponse, ipmisim.PayloadRAKP2, ipmisim.PayloadRAKP4:
			a := must.Do(parseAnswer(p.payload))(t)
			require.True(t, x.isOurs(a))
			take := map[int]func([]byte) error{
				ipmisim.PayloadOpenResponse: x.acceptOpen,
				ipmisim.PayloadRAKP2:        x.acceptRAKP2,
				ipmisim.PayloadRAKP4:        func(b []byte) error { return x.checkRAKP4(b, sik) },
			}[d.Payload()]
			require.NoError(t, take(a.rest))
		case ipmisim.PayloadIPMI:
			receiver := x.bmcID
			if d.FromBMC {
				receiver = x.consoleID
				replies++
			} else {
				commands++
			}
			message, n, err := seal.open(d.Data, receiver)
			require.NoError(t, err)
			iv := [aes.BlockSize]byte(p.payload)
			assert.Equal(t, d.Data, seal.seal(receiver, n, iv, message))
		}
	}
	assert.Positive(t, commands)
	assert.Equal(t, commands, replies)
}

func readSession(t testing.TB, path string) []ipmisim.Datagram {
	text := must.Do(os.ReadFile(path))(t)
	var all []ipmisim.Datagram
	for line := range strings.Lines(string(text)) {
		direction, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		if direction != "<" && direction != ">" {
			continue
		}
		data := must.Do(hex.DecodeString(digits))(t)
		all = append(all, ipmisim.Datagram{FromBMC: direction == "<", Data: data})
	}
	return all
}

func recordSession(t *testing.T, path string, suiteID int, b ipmisim.BMC) {
	relay := relayTo(t, b)
	host, port, err := net.SplitHostPort(relay.Addr())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "ipmitool", "-I", "lanplus", "-C", strconv.Itoa(suiteID), "-L", "OPERATOR",
		"-H", host, "-p", port, "-U", "admin", "-E", "chassis", "power", "off")
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD=secret")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	text := fmt.Sprintf("# ipmitool -C %d -L OPERATOR chassis power off; go test -run TestRecordedSessions -record\n", suiteID)
	for _, d := range relay.Seen() {
		direction := ">"
		if d.FromBMC {
			direction = "<"
		}
		text += fmt.Sprintf("%s %x\n", direction, d.Data)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

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
