package hosts

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/law"
)

// Each device of a host has its own line in the pin.
func TestReportsOfSeveralDevices(t *testing.T) {
	first := &report{System: "/redfish/v1/Systems/1", Serial: "SRV1234", MACs: []string{"b8:ca:3a:00:00:01"}}
	h := bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{ownBMC}}, {Devices: []bmc.Device{feed, ownBMC}}, {Devices: []bmc.Device{ownBMC}}}}
	p := state.Pin{Reported: encodeReports([]EnrolledDevice{{report: first}, {}, {report: &report{}}, {}})}
	assert.Equal(t, first, recordedReport(p, h, 0, 0))
	assert.Nil(t, recordedReport(p, h, 1, 0))
	assert.Equal(t, &report{}, recordedReport(p, h, 1, 1), "it reported nothing, which is not the same")
	assert.Nil(t, recordedReport(p, h, 2, 0))

	assert.Empty(t, encodeReports([]EnrolledDevice{{}, {}}), "as before there were such devices")
	assert.Nil(t, recordedReport(state.Pin{}, h, 0, 0))
	assert.Nil(t, recordedReport(state.Pin{Reported: `{}`}, h, 2, 0), "a record of fewer devices")
	bad := recordedReport(state.Pin{Reported: "{broken"}, h, 0, 0)
	assert.Equal(t, guard.IdentityDiffers, bad.identify(bmc.Identity{}), "what cannot be read matches nothing")
}

func TestReportIsBounded(t *testing.T) {
	var macs []string
	for i := range 100 {
		macs = append(macs, fmt.Sprintf("b8:ca:3a:00:00:%02x", i))
	}
	r := newReport(bmc.Identity{Serial: "To be filled by O.E.M."}, macs)
	assert.Len(t, r.MACs, maxReportedMACs)
	assert.Empty(t, r.Serial, "a placeholder tells no machine from another")
}

// A device that does not identify its host is the right one only if a person has said
// so about this machine, and never if it reports anything else than then. // I8
func TestLawUnidentified(t *testing.T) {
	uuids := rapid.SampledFrom([]string{mine, theirs, noUUID, ""})
	serials := rapid.SampledFrom([]string{"SRV1234", "SRV9999", "N/A", ""})
	systems := rapid.SampledFrom([]string{"/redfish/v1/Systems/1", "/redfish/v1/Systems/2", ""})
	law.Check(t, func(t *rapid.T) {
		d := bmc.Device{Driver: rapid.SampledFrom([]bmc.Driver{bmc.DriverIPMI, bmc.DriverRedfish}).Draw(t, "driver"),
			IgnoreUUID: rapid.Bool().Draw(t, "ignore"), Enrolled: true}
		h := bmc.Host{IdentityMode: rapid.SampledFrom([]string{"required", "pinned", "off"}).Draw(t, "mode"), Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}
		then := newReport(bmc.Identity{Serial: serials.Draw(t, "then"), System: systems.Draw(t, "at")}, nil)
		k := expectedIdentity{node: uuids.Draw(t, "node"), pin: state.Pin{SystemUUID: uuids.Draw(t, "pin"), EnrolledBy: rapid.SampledFrom([]string{"", "ada"}).Draw(t, "by")}}
		if rapid.Bool().Draw(t, "recorded") {
			k.pin.Reported = encodeReports([]EnrolledDevice{{report: then}})
		}
		got := bmc.Identity{UUID: uuids.Draw(t, "got"), Serial: serials.Draw(t, "serial"), System: systems.Draw(t, "system")}
		verdict := identify(h, 0, bmc.Reading{Identity: got}, k)
		if d.IgnoreUUID {
			got.UUID = ""
		}
		if verdict != guard.IdentityMatches {
			return
		}
		assert.NotEmpty(t, k.pin.EnrolledBy)
		assert.False(t, contradicts(k.node, k.pin.SystemUUID))
		assert.False(t, contradicts(got.UUID, k.node))
		if !bmc.UsableUUID(got.UUID) {
			assert.NotEmpty(t, k.pin.Reported)
			assert.Empty(t, then.change(got, nil))
		}
	})
}
