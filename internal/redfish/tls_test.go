package redfish_test

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

func TestWhatIsTrusted(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	other := start(t, redfishsim.Options{})
	raw, err := hex.DecodeString(sim.SPKI())
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		tls     bmc.TLS
		trusted bool
	}{
		"its CA":                   {bmc.TLS{CA: sim.CAFile()}, true},
		"the system's pool":        {bmc.TLS{}, false},
		"another CA":               {bmc.TLS{CA: other.CAFile()}, false},
		"its pin":                  {bmc.TLS{PinSHA256: sim.SPKI()}, true},
		"its pin in base64":        {bmc.TLS{PinSHA256: base64.StdEncoding.EncodeToString(raw)}, true},
		"its pin in capitals":      {bmc.TLS{PinSHA256: strings.ToUpper(sim.SPKI())}, true},
		"another pin":              {bmc.TLS{PinSHA256: other.SPKI()}, false},
		"its CA, another pin":      {bmc.TLS{CA: sim.CAFile(), PinSHA256: other.SPKI()}, false},
		"its pin, another CA":      {bmc.TLS{CA: other.CAFile(), PinSHA256: sim.SPKI()}, false},
		"anything":                 {bmc.TLS{InsecureSkipVerify: true}, true},
		"anything but another pin": {bmc.TLS{InsecureSkipVerify: true, PinSHA256: other.SPKI()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, sim)
			h.TLS = tc.tls
			sim.ResetRequests()
			_, err := open(t, h, timing).Read(t.Context())
			if tc.trusted {
				require.NoError(t, err)
				return
			}
			bmctest.Failed(t, err, bmc.KindTLS)
			assert.Empty(t, sim.Requests(), "nothing is said to a stranger")
		})
	}
}

func TestNewRefusesWhatItCannotTrustBy(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("no certificate"), 0o600))
	for name, conf := range map[string]bmc.TLS{
		"missing CA file": {CA: filepath.Join(t.TempDir(), "absent.pem")},
		"CA without PEM":  {CA: notPEM},
		"short pin":       {PinSHA256: "abcd"},
		"pin of no kind":  {PinSHA256: strings.Repeat("z", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, sim)
			h.TLS = conf
			_, err := redfish.New(h, timing)
			bmctest.Failed(t, err, bmc.KindTLS)
		})
	}
}
