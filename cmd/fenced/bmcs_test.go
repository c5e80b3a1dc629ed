package main

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/sweep"
)

// Whatever the sweep knows reaches the socket: no field of the wire type is
// forgotten.
func TestEveryFieldOfABMCIsTold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := sweep.Result{
		Cluster: "prod", Node: "n-1", Host: "prod/n-1", Source: "hosts.d", Level: 1, Device: 1, Address: "ipmi://bmc", Driver: bmc.DriverIPMI,
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
