package redfish_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

func TestAudit(t *testing.T) {
	const day = 24 * time.Hour
	expired, trust := bmc.FindingCertificateExpired, bmc.FindingCertificateTrust
	for name, tc := range map[string]struct {
		left time.Duration
		tls  func(*redfishsim.Server) bmc.TLS
		want []bmc.FindingCode
	}{
		"good":                  {90 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, nil},
		"ends soon":             {29 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, []bmc.FindingCode{expired}},
		"expired, so refused":   {-day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, []bmc.FindingCode{expired}},
		"expired and pinned":    {-day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{PinSHA256: s.SPKI()} }, []bmc.FindingCode{expired}},
		"pinned":                {90 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{PinSHA256: s.SPKI()} }, nil},
		"not verified":          {90 * day, func(*redfishsim.Server) bmc.TLS { return bmc.TLS{InsecureSkipVerify: true} }, []bmc.FindingCode{trust}},
		"not verified, expired": {-day, func(*redfishsim.Server) bmc.TLS { return bmc.TLS{InsecureSkipVerify: true} }, []bmc.FindingCode{trust, expired}},
		"not verified, pinned": {90 * day, func(s *redfishsim.Server) bmc.TLS {
			return bmc.TLS{InsecureSkipVerify: true, PinSHA256: s.SPKI()}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{CertificateUntil: time.Now().Add(tc.left)})
			d := hostOf(t, sim)
			d.TLS = tc.tls(sim)
			findings, err := open(t, d, timing).Audit(t.Context())
			require.NoError(t, err)
			var codes []bmc.FindingCode
			for _, f := range findings {
				codes = append(codes, f.Code)
				assert.NotEmpty(t, f.Message)
			}
			assert.Equal(t, tc.want, codes)
			for _, r := range sim.Requests() {
				assert.Equal(t, "none", r.Auth, "no password is shown for this")
			}
			assert.LessOrEqual(t, len(sim.Requests()), 1)
		})
	}
}

func TestAuditOfPlainHTTPAsksNothing(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.Endpoint.Plain = true
	findings, err := open(t, d, timing).Audit(t.Context())
	require.NoError(t, err)
	require.Len(t, findings, 1)
	assert.Equal(t, bmc.FindingCertificateTrust, findings[0].Code)
	assert.Zero(t, sim.Connections())
}

func TestAuditOfAStrangerOrNobodyFails(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.TLS = bmc.TLS{}
	_, err := open(t, d, timing).Audit(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)

	d.Endpoint.Host, d.Endpoint.Port = closedPort(t)
	_, err = open(t, d, timing).Audit(t.Context())
	bmctest.Failed(t, err, bmc.KindRefused)
}

// A BMC that is busy has shown its certificate all the same.
func TestAuditOfABusyBMC(t *testing.T) {
	sim := start(t, redfishsim.Options{CertificateUntil: time.Now().Add(time.Hour)})
	sim.Faults(func(f *redfishsim.Faults) { f.Busy, f.RetryAfter = 1000, "3600" })
	tm := timing
	tm.ReadTimeout = 10 * time.Second // for so long it is asked again
	var findings []bmc.Finding
	pace.Until(t, "an audit in time", func() (ok bool) {
		var err error
		findings, err = open(t, hostOf(t, sim), tm).Audit(t.Context())
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	assert.Len(t, findings, 1)
}
