package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmclib"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/fenceagent"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/internal/sweep"
)

// Each driver that hosts.d knows leads to its own code; one that it does not
// know is refused and never taken for another.
func TestOpener(t *testing.T) {
	open := opener(time.Second)
	at := func(address string) bmc.Endpoint {
		e, err := bmc.ParseEndpoint(address)
		require.NoError(t, err)
		return e
	}
	for _, c := range []struct {
		device bmc.Device
		want   bmc.Power
	}{
		{bmc.Device{Driver: bmc.DriverIPMI, Endpoint: at("ipmi://127.0.0.1")}, &ipmi.Client{}},
		{bmc.Device{Driver: bmc.DriverRedfish, Endpoint: at("redfish://127.0.0.1")}, &redfish.Client{}},
		{bmc.Device{Driver: bmc.DriverBMCLib, Endpoint: at("redfish://127.0.0.1"), Provider: "gofish"}, &bmclib.Client{}},
	} {
		p, err := open(c.device)
		require.NoError(t, err, c.device.Driver)
		require.IsType(t, c.want, p)
		require.NoError(t, p.Close(t.Context()))
	}

	// Whether it is installed or not, it is asked for as a fence agent.
	p, err := open(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_no_such_agent"})
	require.ErrorContains(t, err, "the fence agent fence_no_such_agent is not installed")
	require.Nil(t, p)
	if _, err := os.Stat("/usr/sbin/fence_ipmilan"); err == nil {
		p, err := open(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_ipmilan"})
		require.NoError(t, err)
		require.IsType(t, &fenceagent.Client{}, p)
	}

	for _, driver := range []bmc.Driver{"", "auto", "ilo"} {
		_, err := open(bmc.Device{Driver: driver, Endpoint: at("ipmi://127.0.0.1")})
		require.Equal(t, bmc.KindUnsupported, bmc.KindOf(err), driver)
	}
}

func TestHosts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte("s3cret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long"), []byte("a-password-of-28-bytes-is-it"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(`hosts:
- {node: b, cluster: prod, bmc: {address: 192.0.2.1, username: u, passwordFile: pw}}
- node: a
  cluster: prod
  levels:
  - devices: [{address: 192.0.2.2, username: u, passwordFile: long}]
  - devices: [{driver: fence-agent, agent: fence_apc, address: pdu, parameters: {plug: 1}, passwordFile: pw, username: u}]
- {node: a, cluster: lab, bmc: {address: 192.0.2.3, username: u, passwordFile: gone}}
`), 0o600))
	c := config.Default()
	c.Hosts, c.Clusters = dir, []config.Cluster{{Name: "prod"}, {Name: "lab"}}
	entries, err := config.LoadHosts(c)
	require.NoError(t, err)
	var h hosts.Inventory = newInventory(entries)

	require.Equal(t, []string{"a", "b"}, h.List("prod"))
	require.Equal(t, []string{"a"}, h.List("lab"))
	require.Empty(t, h.List("other"))

	_, found, err := h.Find(t.Context(), "other", "a")
	require.NoError(t, err)
	require.False(t, found)

	host, found, err := h.Find(t.Context(), "prod", "a")
	require.NoError(t, err)
	require.True(t, found)
	refusal, ok := errors.AsType[*reason.Refusal](host.Levels[0].Devices[0].Unusable)
	require.True(t, ok, "what the engine can say why")
	require.Equal(t, reason.SecretMissing, refusal.Reason)
	require.Contains(t, refusal.Message, "it has 28 bytes, and IPMI 2.0 takes 20")
	second := host.Levels[1].Devices[0]
	require.NoError(t, second.Unusable, "one device that cannot be used leaves the others")
	require.Equal(t, "s3cret", second.Password.Reveal())

	host, _, err = h.Find(t.Context(), "lab", "a")
	require.NoError(t, err)
	require.ErrorContains(t, host.Levels[0].Devices[0].Unusable, "no such file")
}

// TestEveryDriverIsOpened: what an entry of hosts.d may name, the daemon can open.
func TestEveryDriverIsOpened(t *testing.T) {
	for _, d := range bmc.Drivers() {
		require.NotNil(t, drivers[d.Name], d.Name)
	}
	require.Len(t, drivers, len(bmc.Drivers()))
}

// Whatever the sweep knows reaches the socket: no field of the wire type is
// forgotten.
func TestEveryFieldOfABMCIsTold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := sweep.Result{
		Cluster: "prod", Node: "n-1", Machine: "ns/m-1", Host: "prod/n-1", Source: "hosts.d", Level: 1, Device: 1, Address: "ipmi://bmc", Driver: bmc.DriverIPMI,
		Assurance: bmc.AssuranceStrict, State: sweep.StateOK, Dependable: true, Reason: "BMCBusy", Problem: "busy", Power: bmc.On, Raw: "01",
		Identity: guard.IdentityMatches, UUID: "4c4c", Serial: "S1", Latency: time.Second, LatencyP95: 2 * time.Second, Checked: at, LastGood: at,
		Next: at, Failures: 1, Audited: at, AuditProblem: "no session", DescribeProblem: "slow",
		Description: bmc.Description{Manufacturer: "Dell", Model: "R650", Firmware: "7", MACs: []string{"m"}, RestorePolicy: "previous",
			CertificateUntil: at, PowerEvents: []bmc.PowerEvent{{At: at, Text: "off"}}},
		Findings: []bmc.Finding{{Code: bmc.FindingClock, Message: "late"}},
		Refused:  []reason.Refusal{{Reason: reason.Frozen, Message: "it lied"}},
	}
	b := wireBMC(&r)
	v := reflect.ValueOf(b)
	for i := range v.NumField() {
		assert.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	assert.Equal(t, 2, b.Level, "people count from 1")
	assert.Equal(t, "Frozen", b.Refused[0].Code)

	unusable := wireBMC(&sweep.Result{Cluster: "prod", Node: "n-2", State: sweep.StateFailed, Reason: reason.InvalidHost, Problem: "no scheme"})
	assert.Zero(t, unusable.Level)
	text, err := json.Marshal(unusable)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "0001-01-01", "a time that is not known is left out")
}

// A person sees what the confirmation stands on.
func TestEnrolledText(t *testing.T) {
	d := hosts.EnrolledDevice{Device: "ipmi://192.0.2.1:623", Driver: bmc.DriverIPMI, Power: bmc.On, UUID: "4c4c4544", Assurance: bmc.AssuranceStrict}
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance strict) reads On and says it is 4c4c4544", enrolledText(d))
	d.UUID, d.Assurance = "", bmc.AssuranceLower
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance lower) reads On and reports no identity: your confirmation replaces it", enrolledText(d))
	d.System, d.Serial, d.MACs = "/redfish/v1/Systems/system", "SRV1234", []string{"b8:ca:3a:00:00:01", "b8:ca:3a:00:00:02"}
	assert.Equal(t, "level 1: ipmi://192.0.2.1:623 (ipmi, assurance lower) reads On and reports no identity: your confirmation replaces it, "+
		"system /redfish/v1/Systems/system, serial SRV1234, MAC addresses b8:ca:3a:00:00:01 b8:ca:3a:00:00:02. The enrolment ends if one of these changes", enrolledText(d))
}
