package ipmi

import (
	"bufio"
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// pyghmiProgram is pyghmi's BMC as virtualbmc starts it: without a GUID of its own.
const pyghmiProgram = `
from pyghmi.ipmi import bmc
class Host(bmc.Bmc):
    on = 1
    def get_power_state(self): return self.on
    def power_off(self): self.on = 0
    def power_on(self): self.on = 1
b = Host({"admin": "secret"}, port=0, address="127.0.0.1")
b.port = b.serversocket.getsockname()[1]  # by which it finds its sessions
print(b.port, flush=True)
b.listen()
`

// startPyghmi runs a new BMC until stop is called, and gives its port.
func startPyghmi(t *testing.T) (port int, stop func()) {
	t.Helper()
	const python = "/usr/bin/python3" // the one that Debian's packages are for
	if exec.CommandContext(t.Context(), python, "-c", "import pyghmi.ipmi.bmc").Run() != nil {
		missing(t, "pyghmi is not installed (Debian package python3-pyghmi)")
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := exec.CommandContext(ctx, python, "-c", pyghmiProgram)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	stop = func() { cancel(); _ = p.Wait() } // killed
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		require.NoError(t, err)
	}
	port, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return port, stop
}

// virtualbmc has a new GUID at each start. It can be read and switched, and what it
// reports beside the GUID stays the same.
func TestGUIDThatIsNewAtEachStart(t *testing.T) {
	var guids []string
	for range 2 {
		port, stop := startPyghmi(t)
		d := simulated("127.0.0.1", port)
		d.CipherSuites, d.IgnoreUUID = []int{3}, true
		c := New(d, timing)
		t.Cleanup(c.drop)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.On, r.State)
		assert.Empty(t, r.Identity.Serial, "it has no inventory")
		guids = append(guids, r.Identity.UUID)
		_, err = c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		r, err = c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
		require.NoError(t, c.Close(t.Context()))
		stop()
	}
	assert.NotEqual(t, guids[0], guids[1])
	for _, guid := range guids {
		assert.True(t, bmc.UsableUUID(guid), "nothing in it says that it identifies no host")
	}
}
