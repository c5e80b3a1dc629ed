package ipmi

import (
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

	"github.com/fenced/fenced/test/ipmisim"
)

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
	chosen, err := chooseSuites([]int{suiteID})
	require.NoError(t, err)
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
			a, err := parseAnswer(p.payload)
			require.NoError(t, err)
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
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var all []ipmisim.Datagram
	for line := range strings.Lines(string(text)) {
		direction, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		if direction != "<" && direction != ">" {
			continue
		}
		data, err := hex.DecodeString(digits)
		require.NoError(t, err)
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
