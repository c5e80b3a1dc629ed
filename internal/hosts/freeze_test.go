package hosts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

// heldFor is a run that is Held because a BMC reported a false Off.
func heldFor(id, node string) remediate.Run {
	return remediate.Run{ID: id, Step: remediate.Held, Reason: reason.FalseOff, Target: remediate.Target{
		Cluster: "c", Node: node, Host: "c/" + node, Devices: "bmc-" + node}}
}

func openFreezes(t *testing.T, runs ...remediate.Run) (*Freezes, state.Store) {
	t.Helper()
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	f := readFreezes(t, s)
	require.NoError(t, f.Complete(t.Context(), s, runs))
	return f, s
}

func readFreezes(t *testing.T, s state.Store) *Freezes {
	t.Helper()
	f := newFreezes(func(string) string { return "" })
	require.NoError(t, f.Load(t.Context(), s))
	return f
}

func noNode(string) bool { return false }

// A freeze is about one host, under each of its names, and about no other host.
func TestFreezeIsAboutOneHost(t *testing.T) {
	f, _ := openFreezes(t, heldFor("r1", "n-1"), remediate.Run{ID: "r2", Step: remediate.Held, Reason: "OperatorOff", Target: remediate.Target{Node: "n-9"}})
	for name, c := range map[string]struct {
		t      remediate.Target
		frozen bool
	}{
		"the same":                              {remediate.Target{Cluster: "c", Node: "n-1"}, true},
		"by its host":                           {remediate.Target{Cluster: "c", Node: "renamed", Host: "c/n-1"}, true},
		"by its BMC":                            {remediate.Target{Cluster: "d", Node: "x", Devices: "pdu 7\nbmc-n-1"}, true},
		"another":                               {remediate.Target{Cluster: "c", Node: "n-2", Host: "c/n-2", Devices: "bmc-n-2"}, false},
		"of that name, elsewhere":               {remediate.Target{Cluster: "d", Node: "n-1", Host: "d/n-1", Devices: "bmc-d"}, false},
		"a run that is Held for another reason": {remediate.Target{Cluster: "c", Node: "n-9"}, false},
	} {
		code, why := f.on(c.t, "")
		assert.Equal(t, c.frozen, why != "", name)
		assert.Equal(t, c.frozen, code == reason.Frozen, name)
	}
}

// A freeze is released by the name that its host has by now, once the Node that had it is gone. A host that it is not about releases
// nothing. // I5
func TestFreezeIsReleasedUnderAnotherName(t *testing.T) {
	frozen := heldFor("r1", "n-1")
	frozen.Target.Host = "c/ns/h-1"
	f, s := openFreezes(t, frozen)
	seen := "n-1"
	release := func(of remediate.Target) []state.Freeze {
		return must.Do(f.release(t.Context(), s, wire.Order{Node: of.Node, Actor: "ada", Reason: "board replaced"}, of, func(node string) bool { return node == seen }))(t)
	}
	renamed := remediate.Target{Cluster: "c", Node: "renamed", BareMetalHost: "ns/h-1"}
	assert.Empty(t, release(renamed), "n-1 is there: it has the host")
	seen = "renamed"
	assert.Empty(t, release(remediate.Target{Cluster: "c", Node: "n-2", BareMetalHost: "ns/h-2"}))
	code, _ := f.on(renamed, "")
	require.Equal(t, reason.Frozen, code)
	assert.Len(t, release(renamed), 1)
	code, _ = f.on(renamed, "")
	assert.Empty(t, code)
}

// A class is frozen when two of its hosts are: a false Off of outlets says nothing about the BMC's
// model, and a host with two freezes is one host. // I5
func TestFreezeOfAClassNeedsTwoHosts(t *testing.T) {
	f, s := openFreezes(t)
	add := func(id, node string, offLevel int, class string) {
		r := heldFor(id, node)
		r.OffLevel = offLevel
		require.NoError(t, f.add(t.Context(), s, r, class))
	}
	frozen := func(class string) bool {
		_, why := f.on(remediate.Target{Cluster: "c", Node: "new"}, class)
		return why != ""
	}
	add("r1", "a", 0, "m 1")
	add("r2", "a", 0, "m 1")
	add("r3", "b", 1, "m 1")
	add("r4", "c", 0, "")
	add("r5", "d", 0, "")
	assert.False(t, frozen("m 1"))
	assert.False(t, frozen(""), "hosts without a known model are no class")
	add("r6", "e", 0, "m 1")
	assert.True(t, frozen("m 1"))
	assert.False(t, frozen("m 2"))

	assert.Equal(t, f.table.All(), readFreezes(t, s).table.All())
	must.Do(f.release(t.Context(), s, wire.Order{Node: "e", Actor: "ada"}, remediate.Target{Cluster: "c", Node: "e"}, noNode))(t)
	assert.False(t, frozen("m 1"))
}

// unpruned is a store that does not answer deletions.
type unpruned struct {
	state.Store
	asked int
}

func (s *unpruned) Delete(context.Context, state.Kind, string, uint64) error {
	s.asked++
	return context.DeadlineExceeded
}

// A released freeze is deleted with its run; an active one is kept for ever.
func TestReleasedFreezesArePruned(t *testing.T) {
	f, s := openFreezes(t, heldFor("r1", "a"), heldFor("r2", "b"), heldFor("r3", "c"))
	for _, node := range []string{"a", "b"} {
		must.Do(f.release(t.Context(), s, wire.Order{Node: node, Actor: "ada"}, remediate.Target{Cluster: "c", Node: node}, noNode))(t)
	}
	silent := &unpruned{Store: s}
	require.ErrorIs(t, f.Prune(t.Context(), silent, func(string) bool { return false }), context.DeadlineExceeded)
	assert.Equal(t, 1, silent.asked, "a freeze must not wait for more than one")
	assert.Len(t, f.table.All(), 3)
	require.NoError(t, f.Prune(t.Context(), s, func(run string) bool { return run == "r2" }))
	again := readFreezes(t, s)
	assert.Len(t, again.table.All(), 2)
	_, known := again.table.Get("r1")
	assert.False(t, known)
}

// unanswered is a store that does one write without answering it.
type unanswered struct {
	state.Store
	lose bool
}

func (u *unanswered) Put(ctx context.Context, r state.Record) (uint64, error) {
	version, err := u.Store.Put(ctx, r)
	if u.lose && err == nil {
		u.lose = false
		return 0, errors.New("the store did not answer")
	}
	return version, err
}

// If the store makes a freeze, or releases one, and does not answer, the next attempt
// succeeds. // I5, L1
func TestFreezeStoredWithoutAnAnswerCounts(t *testing.T) {
	f, inner := openFreezes(t)
	s, r, o := &unanswered{inner, true}, heldFor("r1", "n-1"), wire.Order{Node: "n-1", Actor: "ada", Reason: "board replaced"}
	require.Error(t, f.add(t.Context(), s, r, ""))
	require.NoError(t, f.add(t.Context(), s, r, ""))
	require.True(t, first(f.table.Get("r1")).Active())
	s.lose = true
	_, err := f.release(t.Context(), s, o, remediate.Target{Cluster: "c", Node: o.Node}, noNode)
	require.Error(t, err)
	released := must.Do(f.release(t.Context(), s, o, remediate.Target{Cluster: "c", Node: o.Node}, noNode))(t)
	require.Len(t, released, 1)
	require.False(t, first(f.table.Get("r1")).Active())
	assert.Equal(t, f.table.All(), readFreezes(t, inner).table.All())
}

func first(f state.Freeze, _ bool) state.Freeze { return f }

const (
	mine   = "4c4c4544-0042-3510-8054-b4c04f4d3132"
	theirs = "4c4c4544-0042-3510-8054-b4c04f4d9999"
	noUUID = "00000000-0000-0000-0000-000000000000"
)

var (
	ownBMC = bmc.Device{Driver: bmc.DriverIPMI}
	feed   = bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc"}
	byLib  = bmc.Device{Driver: bmc.DriverBMCLib, Provider: "gofish"}
)

func TestIdentify(t *testing.T) {
	one := func(d bmc.Device) bmc.Host { return bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{d}}}} }
	in := func(mode, uuid string, h bmc.Host) bmc.Host {
		h.IdentityMode, h.PinnedUUID = mode, uuid
		return h
	}
	byHand, matched := state.Pin{SystemUUID: mine, EnrolledBy: "ada"}, state.Pin{SystemUUID: mine}
	voidByHand, void := byHand, matched // the Node was seen on another machine since
	voidByHand.Contradicted, void.Contradicted = "why", "why"
	for name, c := range map[string]struct {
		host bmc.Host
		got  string
		k    expectedIdentity
		want guard.IdentityVerdict
	}{
		"the Node's":                                {in("required", "", one(ownBMC)), mine, expectedIdentity{node: mine}, guard.IdentityMatches},
		"another's":                                 {in("required", "", one(ownBMC)), theirs, expectedIdentity{node: mine}, guard.IdentityDiffers},
		"a placeholder":                             {in("required", "", one(ownBMC)), noUUID, expectedIdentity{node: mine}, guard.IdentityUnproven},
		"no Node, no pin":                           {in("required", "", one(ownBMC)), mine, expectedIdentity{}, guard.IdentityUnproven},
		"no Node, a pin of a healthy day":           {in("required", "", one(ownBMC)), mine, expectedIdentity{pin: matched}, guard.IdentityMatches},
		"no Node, another than pinned":              {in("required", "", one(ownBMC)), theirs, expectedIdentity{pin: matched}, guard.IdentityDiffers},
		"a Node that replaced the pinned one":       {in("required", "", one(ownBMC)), theirs, expectedIdentity{node: theirs, pin: matched}, guard.IdentityMatches},
		"but not one that a person enrolled":        {in("required", "", one(ownBMC)), theirs, expectedIdentity{node: theirs, pin: byHand}, guard.IdentityDiffers},
		"nor one that the administrator wrote":      {in("required", mine, one(ownBMC)), theirs, expectedIdentity{node: theirs}, guard.IdentityDiffers},
		"written, but the Node is another":          {in("required", mine, one(ownBMC)), mine, expectedIdentity{node: theirs}, guard.IdentityDiffers},
		"pinned: nobody enrolled it":                {in("pinned", "", one(ownBMC)), mine, expectedIdentity{node: mine, pin: matched}, guard.IdentityNotEnrolled},
		"pinned: a person enrolled it":              {in("pinned", "", one(ownBMC)), mine, expectedIdentity{node: mine, pin: byHand}, guard.IdentityMatches},
		"pinned: enrolled, but the Node is another": {in("pinned", "", one(ownBMC)), mine, expectedIdentity{node: theirs, pin: byHand}, guard.IdentityDiffers},
		"pinned: written, but the Node is another":  {in("pinned", mine, one(ownBMC)), mine, expectedIdentity{node: theirs}, guard.IdentityDiffers},
		"pinned: the administrator wrote it":        {in("pinned", mine, one(ownBMC)), mine, expectedIdentity{}, guard.IdentityMatches},
		"pinned: another":                           {in("pinned", mine, one(ownBMC)), theirs, expectedIdentity{node: theirs}, guard.IdentityDiffers},
		"off: by itself":                            {in("off", "", one(ownBMC)), mine, expectedIdentity{node: mine}, guard.IdentityUnproven},
		"off: by hand":                              {in("off", "", one(ownBMC)), theirs, expectedIdentity{node: mine, manual: true}, guard.IdentityMatches},
		"an outlet":                                 {in("required", "", one(feed)), "", expectedIdentity{node: mine, pin: byHand}, guard.IdentityMatches},
		"an outlet that nobody enrolled":            {in("required", "", one(feed)), "", expectedIdentity{node: mine, pin: matched}, guard.IdentityNotEnrolled},
		"an outlet whose Node is gone":              {in("required", "", one(feed)), "", expectedIdentity{pin: byHand}, guard.IdentityMatches},
		"an outlet that reports the right UUID":     {in("required", "", one(feed)), mine, expectedIdentity{node: mine}, guard.IdentityNotEnrolled},
		"a library: enrolled, and reports it":       {in("required", "", one(byLib)), mine, expectedIdentity{node: mine, pin: byHand}, guard.IdentityMatches},
		"a library: enrolled, and a placeholder":    {in("required", "", one(byLib)), noUUID, expectedIdentity{node: mine, pin: byHand}, guard.IdentityMatches},
		"a library: enrolled, and another":          {in("required", "", one(byLib)), theirs, expectedIdentity{node: mine, pin: byHand}, guard.IdentityDiffers},
		"a library: another, and the Node is gone":  {in("required", "", one(byLib)), theirs, expectedIdentity{pin: byHand}, guard.IdentityDiffers},
		"a library: another than the Node, pinned":  {in("pinned", mine, one(byLib)), mine, expectedIdentity{node: theirs}, guard.IdentityDiffers},
		"a library: another than the written":       {in("required", mine, one(byLib)), theirs, expectedIdentity{}, guard.IdentityDiffers},
		"no Node, a void pin":                       {in("required", "", one(ownBMC)), mine, expectedIdentity{pin: void}, guard.IdentityUnproven},
		"no Node, a void enrolment":                 {in("required", "", one(ownBMC)), mine, expectedIdentity{pin: voidByHand}, guard.IdentityUnproven},
		"no Node, a void one, and another":          {in("required", "", one(ownBMC)), theirs, expectedIdentity{pin: voidByHand}, guard.IdentityDiffers},
		"no Node, a void pin and a written UUID":    {in("required", mine, one(ownBMC)), mine, expectedIdentity{pin: void}, guard.IdentityUnproven},
		"pinned: a void pin and a written UUID":     {in("pinned", mine, one(ownBMC)), mine, expectedIdentity{pin: void}, guard.IdentityUnproven},
		"a Node, and a void pin":                    {in("required", "", one(ownBMC)), mine, expectedIdentity{node: mine, pin: void}, guard.IdentityMatches},
		"pinned: a void enrolment":                  {in("pinned", "", one(ownBMC)), mine, expectedIdentity{node: theirs, pin: voidByHand}, guard.IdentityNotEnrolled},
		"an outlet, a void enrolment":               {in("required", "", one(feed)), "", expectedIdentity{node: mine, pin: voidByHand}, guard.IdentityNotEnrolled},
		"an outlet, a void one, the Node is gone":   {in("required", "", one(feed)), "", expectedIdentity{pin: voidByHand}, guard.IdentityNotEnrolled},
		"an outlet with a uuid, not enrolled":       {in("required", mine, one(feed)), "", expectedIdentity{node: mine}, guard.IdentityNotEnrolled},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, identify(c.host, 0, bmc.Reading{Identity: bmc.Identity{UUID: c.got}}, c.k))
		})
	}
}

// TestLawIdentify: the verdict on a level is the worst verdict on its devices.
func TestLawIdentify(t *testing.T) {
	uuid := rapid.SampledFrom([]string{mine, theirs, noUUID, ""})
	law.Check(t, func(t *rapid.T) {
		h := bmc.Host{IdentityMode: rapid.SampledFrom([]string{"required", "pinned", "off"}).Draw(t, "mode"), Levels: []bmc.Level{{}}}
		k := expectedIdentity{node: uuid.Draw(t, "node"), manual: rapid.Bool().Draw(t, "manual"), pin: state.Pin{SystemUUID: uuid.Draw(t, "pin"), EnrolledBy: rapid.SampledFrom([]string{"", "ada"}).Draw(t, "by")}}
		var r bmc.Reading
		all := guard.IdentityMatches
		for range rapid.IntRange(2, 3).Draw(t, "devices") {
			d := rapid.SampledFrom([]bmc.Device{ownBMC, feed, byLib}).Draw(t, "device")
			got := bmc.Identity{UUID: uuid.Draw(t, "got")}
			h.Levels[0].Devices, r.Parts = append(h.Levels[0].Devices, d), append(r.Parts, bmc.Reading{Identity: got})
			one := identifyDevice(h, d, got, k)
			if contradicts(got.UUID, k.node) && h.IdentityMode == "required" {
				assert.Equal(t, guard.IdentityDiffers, one, "whoever enrolled it")
			}
			all = worse(all, one)
		}
		got := identify(h, 0, r, k)
		assert.Equal(t, all, got)
		assert.NotEqual(t, guard.IdentityMatches, identify(h, 0, bmc.Reading{Identity: r.Parts[0].Identity}, k), "one reading for several devices")
		assert.NotEqual(t, guard.IdentityMatches, identify(h, 1, r, k), "no such level")
		if got == guard.IdentityMatches {
			for i, d := range h.Levels[0].Devices {
				assert.Equal(t, guard.IdentityMatches, identifyDevice(h, d, r.Parts[i].Identity, k))
			}
		}
	})
}

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
