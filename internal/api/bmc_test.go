package api

import (
	"testing"
	"time"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBMCsOnTheWire(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &fake{bmcs: wire.BMCs{BMCs: []wire.BMC{
		{Cluster: "prod", Node: "n-1", Host: "prod/n-1", Source: "hosts.d/a.yaml:3", Level: 1, Device: "ipmi://192.0.2.1:623", Driver: "ipmi",
			Assurance: "strict", State: "ok", Dependable: true, Power: "On", PowerRaw: "01", Identity: "match", UUID: "4c4c", Serial: "S1",
			LatencySeconds: 0.25, LatencyP95Seconds: 0.5, Checked: at, LastGood: at, Next: at, Manufacturer: "Dell", Model: "R650", Firmware: "7.0",
			MACs: []string{"00:25:90:00:00:02"}, RestorePolicy: "previous", CertificateUntil: at, PowerEvents: []wire.PowerEvent{{At: at, Text: "power off"}},
			Findings: []wire.BMCFinding{{Code: "RestorePolicy", Message: "it starts by itself"}}, Audited: at, Refused: []wire.BMCFinding{{Code: "Frozen", Message: "it lied"}}},
		{Cluster: "prod", Node: "n-2", State: "failed", Reason: "InvalidHost", Problem: "no such scheme", Power: "Unknown", AuditProblem: "no session"},
	}}}
	c := New(serve(t, d, Roles{}))
	rep, err := c.BMCs(t.Context(), "prod")
	require.NoError(t, err)
	assert.Equal(t, "prod", d.filter.Cluster)
	assert.JSONEq(t, `{"apiVersion":"v1","bmcs":[
	  {"cluster":"prod","node":"n-1","host":"prod/n-1","source":"hosts.d/a.yaml:3","level":1,"device":"ipmi://192.0.2.1:623","driver":"ipmi",
	   "assurance":"strict","state":"ok","dependable":true,"power":"On","powerRaw":"01","identity":"match","uuid":"4c4c","serial":"S1",
	   "latencySeconds":0.25,"latencyP95Seconds":0.5,"checked":"2026-01-01T00:00:00Z","lastGood":"2026-01-01T00:00:00Z","next":"2026-01-01T00:00:00Z",
	   "failures":0,"manufacturer":"Dell","model":"R650","firmware":"7.0","macs":["00:25:90:00:00:02"],"restorePolicy":"previous",
	   "certificateUntil":"2026-01-01T00:00:00Z","powerEvents":[{"at":"2026-01-01T00:00:00Z","text":"power off"}],
	   "findings":[{"code":"RestorePolicy","message":"it starts by itself"}],"audited":"2026-01-01T00:00:00Z",
	   "refused":[{"code":"Frozen","message":"it lied"}]},
	  {"cluster":"prod","node":"n-2","level":0,"state":"failed","dependable":false,"reason":"InvalidHost","problem":"no such scheme",
	   "power":"Unknown","identity":"","failures":0,"findings":[],"auditProblem":"no session"}]}`, string(rep.Body))
	assert.Equal(t, 2, rep.Value.Undependable(), "a refused host, and an unusable one")
	assert.Equal(t, 2, rep.Value.Weak(), "a finding, and a device that could not be looked at")
	assert.Zero(t, wire.BMCs{BMCs: []wire.BMC{{Dependable: true, Refused: []wire.BMCFinding{{Code: "OwnHost"}}}}}.Undependable())
	assert.Zero(t, wire.BMCs{BMCs: []wire.BMC{{Dependable: true}}}.Weak())
}

func TestLooksCarryRouteAndPeer(t *testing.T) {
	d := &fake{}
	c := New(serve(t, d, Roles{}))
	rep, err := c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1.example", Reason: "new cable"})
	require.NoError(t, err)
	assert.Equal(t, `{"apiVersion":"v1","bmcs":[]}`+"\n", string(rep.Body))
	_, err = c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.AuditBMC, Node: "n-2"})
	require.NoError(t, err)
	_, err = c.Do(t.Context(), wire.Order{Verb: wire.EnrollBMC, Node: "n-2", Reason: "new board", DryRun: true})
	require.NoError(t, err)
	require.Len(t, d.orders, 3)
	for i, want := range []wire.Order{
		{Verb: wire.TestBMC, Cluster: "prod", Node: "n-1.example", Reason: "new cable"},
		{Verb: wire.AuditBMC, Node: "n-2"},
		{Verb: wire.EnrollBMC, Node: "n-2", Reason: "new board", DryRun: true, Role: wire.Admin},
	} {
		assert.NotEmpty(t, d.orders[i].Actor)
		d.orders[i].Actor = ""
		assert.Equal(t, want, d.orders[i])
	}
}

// The status counts the devices as the list does.
func TestBMCsAreCounted(t *testing.T) {
	list := wire.BMCs{BMCs: []wire.BMC{
		{Host: "prod/n-1", State: "ok", Dependable: true},
		{Host: "prod/n-2", State: "failed", Dependable: true, Problem: "once"},
		{Host: "prod/n-3", State: "failed"},
		{Host: "prod/n-4", State: "unchecked", Dependable: true, Refused: []wire.BMCFinding{{Code: "NotEnrolled"}}},
		{Host: "prod/n-5", State: "unchecked", Dependable: true},
		{State: "failed", Reason: "InvalidHost", Problem: "no such scheme"},
		{State: "unchecked", Reason: "NotSynced", Problem: "a cluster that is not seen yet"},
	}}
	assert.Equal(t, wire.BMCCount{Total: 6, NotDependable: 3, NotChecked: 1}, list.Count())
	assert.Equal(t, 4, list.Undependable(), "and the cluster that is not seen")
}
