package sweep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// looked is a device that was looked at and has no weakness; spoil adds one.
func looked(spoil func(e *entry, d *bmc.Device)) *entry {
	d := bmc.Device{Driver: bmc.DriverRedfish, Username: "fence", Password: bmc.NewSecret("a long random one"),
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "bmc", Port: 443}}
	e := &entry{place: -1, last: lastPoll{At: noon, Identity: guard.IdentityMatches}}
	spoil(e, &d)
	e.subject = hosts.Subject{Cluster: "prod", Node: "n-1", Host: bmc.Host{Name: "prod/n-1", Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}}
	return e
}

func TestWeaknesses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(e *entry, d *bmc.Device)
		want  []bmc.FindingCode
	}{
		"none":               {spoil: func(*entry, *bmc.Device) {}},
		"a vendor's default": {func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("calvin") }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"the user's name":    {func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("FENCE") }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"no password":        {func(_ *entry, d *bmc.Device) { d.Password = bmc.Secret{} }, []bmc.FindingCode{bmc.FindingDefaultPassword}},
		"an unread password": {func(_ *entry, d *bmc.Device) { d.Password, d.Unusable = bmc.Secret{}, assert.AnError }, nil},
		"lower assurance":    {func(_ *entry, d *bmc.Device) { d.Driver = bmc.DriverBMCLib }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"a BMC's agent":      {func(_ *entry, d *bmc.Device) { d.Driver, d.Agent = bmc.DriverFenceAgent, "fence_ilo4_ssh" }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"no UUID, enrolled":  {func(_ *entry, d *bmc.Device) { d.Enrolled = true }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"a UUID to ignore":   {func(_ *entry, d *bmc.Device) { d.IgnoreUUID = true }, []bmc.FindingCode{bmc.FindingLowerAssurance}},
		"an outlet":          {func(_ *entry, d *bmc.Device) { d.Driver, d.Agent = bmc.DriverFenceAgent, "fence_apc_snmp" }, nil},
		"not enrolled": {func(e *entry, d *bmc.Device) {
			d.Driver, d.Password, e.last.Identity = bmc.DriverFenceAgent, bmc.Secret{}, guard.IdentityUnproven
		}, []bmc.FindingCode{bmc.FindingNotEnrolled}},
		"nobody vouched": {func(e *entry, d *bmc.Device) {
			d.Driver, e.last.Identity = bmc.DriverFenceAgent, guard.IdentityNotEnrolled
		}, []bmc.FindingCode{bmc.FindingNotEnrolled}},
		"another machine": {func(e *entry, _ *bmc.Device) { e.last.Identity = guard.IdentityDiffers }, []bmc.FindingCode{bmc.FindingIdentity}},
		"no identity":     {func(e *entry, _ *bmc.Device) { e.last.Identity = guard.IdentityUnproven }, []bmc.FindingCode{bmc.FindingIdentity}},
		"no answer":       {func(e *entry, _ *bmc.Device) { e.last.Identity, e.last.Err = "", assert.AnError }, nil},
		"plain http":      {func(_ *entry, d *bmc.Device) { d.Endpoint.Plain = true }, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"not verified":    {func(_ *entry, d *bmc.Device) { d.TLS.InsecureSkipVerify = true }, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"pinned":          {func(_ *entry, d *bmc.Device) { d.TLS = bmc.TLS{InsecureSkipVerify: true, PinSHA256: "x"} }, nil},
		"the clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = noon.Add(-6*time.Minute), noon
		}, []bmc.FindingCode{bmc.FindingClock}},
		"no clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = time.Unix(0, 0), noon
		}, []bmc.FindingCode{bmc.FindingClock}},
		"an agent that verifies nothing": {func(_ *entry, d *bmc.Device) {
			d.Driver, d.Agent, d.Parameters = bmc.DriverFenceAgent, "fence_vmware_rest", map[string]string{"ssl_insecure": "1"}
		}, []bmc.FindingCode{bmc.FindingCertificateTrust}},
		"a fair clock": {func(e *entry, _ *bmc.Device) {
			e.description.Clock, e.description.ClockAt = noon.Add(5*time.Minute), noon
		}, nil},
		"restores power":  {func(e *entry, _ *bmc.Device) { e.description.RestorePolicy = "previous" }, []bmc.FindingCode{bmc.FindingRestorePolicy}},
		"stays off":       {func(e *entry, _ *bmc.Device) { e.description.RestorePolicy = "always-off" }, nil},
		"ends in 29 days": {func(e *entry, _ *bmc.Device) { e.description.CertificateUntil = noon.Add(29 * 24 * time.Hour) }, []bmc.FindingCode{bmc.FindingCertificateExpired}},
		"ends in 31 days": {func(e *entry, _ *bmc.Device) { e.description.CertificateUntil = noon.Add(31 * 24 * time.Hour) }, nil},
		"audited": {func(e *entry, d *bmc.Device) {
			d.TLS.InsecureSkipVerify = true
			e.findings = []bmc.Finding{{Code: bmc.FindingCipherZero}, {Code: bmc.FindingCertificateTrust}}
		}, []bmc.FindingCode{bmc.FindingCipherZero, bmc.FindingCertificateTrust}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bmc.FindingCode
			for _, f := range looked(tc.spoil).weaknesses(noon) {
				got = append(got, f.Code)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestNoFindingOrResultHoldsAPassword(t *testing.T) { // I25
	for password := range defaultPasswords {
		e := looked(func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret(password) })
		r := e.result(noon)
		require.Equal(t, bmc.FindingDefaultPassword, r.Findings[0].Code)
		for _, word := range strings.Fields(fmt.Sprint(r.Findings)) {
			if len(password) > 5 && password != "password" { // some are English words
				assert.NotEqual(t, password, strings.Trim(word, ":,"))
			}
		}
	}
	e := looked(func(_ *entry, d *bmc.Device) { d.Password = bmc.NewSecret("hunter2hunter2") })
	shown := e.result(noon)
	assert.NotContains(t, fmt.Sprintf("%+v %#v", shown, shown), "hunter2hunter2")
}
