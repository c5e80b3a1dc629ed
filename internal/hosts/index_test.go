package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/law"
)

func at(address string) []place { return placesOf(bmcAt(address)) }

func placesOf(d bmc.Device) []place {
	return places(&bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{d}}}})
}

func bmcAt(address string) bmc.Device {
	ep, err := bmc.ParseEndpoint(address)
	if err != nil {
		panic("the test's own address: " + err.Error())
	}
	return bmc.Device{Driver: bmc.Driver(ep.Protocol), Endpoint: ep}
}

func outlet(n int) bmc.Device {
	d := bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "192.0.2.200"}}
	if n > 0 {
		d.Parameters = map[string]string{"plug": fmt.Sprint(n)}
	}
	return d
}

// The index finds by marks what policy, which has only saved objects, compares one by one. // I9
func TestDevicesThatAreOne(t *testing.T) {
	for name, c := range map[string]struct {
		a, b bmc.Device
		one  bool
	}{
		"two systems of a chassis":         {bmcAt("redfish://192.0.2.1/redfish/v1/Systems/1"), bmcAt("redfish://192.0.2.1/redfish/v1/Systems/2"), false},
		"one system of it":                 {bmcAt("redfish://192.0.2.1/redfish/v1/Systems/1"), bmcAt("redfish+https://192.0.2.1:443/redfish/v1/Systems/1"), true},
		"a system, and nobody says which":  {bmcAt("redfish://192.0.2.1/redfish/v1/Systems/1"), bmcAt("redfish://192.0.2.1"), true},
		"two outlets":                      {outlet(1), outlet(2), false},
		"one outlet":                       {outlet(1), outlet(1), true},
		"an outlet, and nobody says which": {outlet(1), outlet(0), true},
		"two BMCs":                         {bmcAt("ipmi://192.0.2.1"), bmcAt("ipmi://192.0.2.2"), false},
		"a BMC by two protocols":           {bmcAt("ipmi://192.0.2.1"), bmcAt("redfish://192.0.2.1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.one, c.a.Overlaps(&c.b))
			assert.Equal(t, c.one, c.b.Overlaps(&c.a))
			x := newIndex()
			x.put(hostEntry{name: "c/a", devices: placesOf(c.a)})
			x.put(hostEntry{name: "c/b", devices: placesOf(c.b)})
			assert.Equal(t, c.one, sameMachine(x, "c/a") != "", sameMachine(x, "c/a"))
			assert.Equal(t, c.one, sameMachine(x, "c/b") != "")
			assert.False(t, c.one && x.areUnique(), "who has a duplicate is asked about each mark")
			assert.Empty(t, sameMachine(x, "c/a", "c/b"), "two names of one host")
			x.drop("c/b")
			assert.Empty(t, sameMachine(x, "c/a"))
			assert.True(t, x.areUnique())
		})
	}
}

// Whoever may write a BareMetalHost may name another host's Secret and name its own again while that is read: what counts is the one that
// is read, whatever the index has for the host meanwhile. // I10
func TestSecretThatIsReadIsAnothers(t *testing.T) {
	host := func(secret string) *bmc.Host {
		return &bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{Secret: secret}}}}}
	}
	c := &catalog{index: newIndex(), pins: newPins()}
	c.index.put(hostEntry{name: "c/ns/h-1", host: host("ns/own")})
	c.index.put(hostEntry{name: "c/ns/h-2", host: host("ns/another")})
	assert.Empty(t, c.secretShared([]string{"c/ns/h-1"}, []string{"c/ns/own"}))
	assert.Contains(t, c.secretShared([]string{"c/ns/h-1"}, []string{"c/ns/another"}), "c/ns/h-2")
	assert.Empty(t, c.secretShared([]string{"c/ns/h-1", "c/ns/h-2"}, []string{"c/ns/another"}), "two names of one host")
	m := &metalTrust{cluster: "c", catalog: c}
	changed := *host("ns/another")
	changed.Name = "c/ns/gone"
	assert.Contains(t, m.otherSecret(changed, remediate.Target{BareMetalHost: "ns/gone", Secret: "c/ns/own"}), "just gone")
}

// A host that was read a moment ago at another's BMC is not used there, although the index has it at its own again. // I9
func TestHostThatIsUsedLeadsToAnothers(t *testing.T) {
	host := func(address string) *bmc.Host {
		return &bmc.Host{Name: "c/ns/h-1", Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://" + address)}}}}
	}
	c := &catalog{index: newIndex(), pins: newPins()}
	put := func(name string, h *bmc.Host) { c.index.put(hostEntry{name: name, host: h, devices: places(h)}) }
	put("c/ns/h-1", host("192.0.2.1"))
	put("c/ns/h-2", host("192.0.2.2"))
	m := &metalTrust{cluster: "c", catalog: c}
	target := remediate.Target{BareMetalHost: "ns/h-1"}
	assert.Nil(t, m.unknown(*host("192.0.2.1"), target))
	assert.Nil(t, m.unknown(*host("192.0.2.3"), target), "nobody has it")
	refused := m.unknown(*host("192.0.2.2"), target)
	require.NotNil(t, refused)
	assert.Equal(t, reason.DuplicateHost, refused.Reason)
	assert.Contains(t, refused.Message, "c/ns/h-2")
	put("c/ns/h-1", host("192.0.2.2"))
	assert.Contains(t, c.duplicateAt(host("192.0.2.2"), []string{"c/ns/h-1"}), "c/ns/h-2", "the index has it there only since it was asked about its own BMC")
	put("c/ns/h-1", host("192.0.2.1"))
	assert.Empty(t, c.duplicateAt(host("192.0.2.2"), []string{"c/ns/h-1", "c/ns/h-2"}), "two names of one host")
	c.pins.put(state.Pin{Host: "c/ns/h-1", Devices: devicesOf(*host("192.0.2.2")), Choice: choiceOf(*host("192.0.2.2"))})
	assert.Nil(t, m.unknown(*host("192.0.2.2"), target), "it was pinned there, and whoever wrote the other host is unknown")
}

// A BareMetalHost that two clusters see is one host.
func TestObjectSeenTwiceIsNoDuplicate(t *testing.T) {
	x := newIndex()
	x.put(hostEntry{name: "a/ns/h", uid: "u", devices: at("ipmi://192.0.2.1")})
	x.put(hostEntry{name: "b/ns/h", uid: "u", devices: at("ipmi://192.0.2.1")})
	assert.Empty(t, sameMachine(x, "a/ns/h"))
	x.put(hostEntry{name: "b/ns/h", uid: "another", devices: at("ipmi://192.0.2.1")})
	assert.NotEmpty(t, sameMachine(x, "a/ns/h"))
}

// The index holds no lock while it calls back: what counts may depend on the index itself.
func TestIndexHoldsNoLockWhileItCallsBack(t *testing.T) {
	x := newIndex()
	for _, name := range []string{"c/a", "c/b", "c/c"} {
		x.put(hostEntry{name: name, devices: at("ipmi://192.0.2.1")})
	}
	isLast := func(e *hostEntry) bool { return x.get(e.name).name == "c/c" }
	assert.Contains(t, x.other(uniqueMarks, isLast, []string{"c/a"}), "c/c")
	assert.Contains(t, x.other(uniqueMarks, nil, []string{"c/a"}), "c/b")
	assert.True(t, x.anyOf([]string{"c/a", "c/c"}, isLast))
}

// A report is kept as long as the host has the device, also when the inventory changes.
func TestReportStaysWithItsDevice(t *testing.T) {
	const uuid = "4c4c4544-0042-3510-8054-b4c04f4d3132"
	x := newIndex()
	x.put(hostEntry{name: "c/a", devices: at("ipmi://192.0.2.1")})
	x.put(hostEntry{name: "c/b", devices: at("ipmi://192.0.2.2")})
	x.report("c/a", "192.0.2.1", deviceReport{uuid: uuid, class: "m 1"})
	x.report("c/b", "192.0.2.2", deviceReport{uuid: uuid})
	x.report("c/b", "192.0.2.3", deviceReport{uuid: "not a device of this host"})
	assert.NotEmpty(t, sameMachine(x, "c/a"))
	x.put(hostEntry{name: "c/a", devices: at("ipmi://192.0.2.1"), macs: []string{"00:1b:21:00:00:01"}})
	assert.NotEmpty(t, sameMachine(x, "c/a"))
	assert.Equal(t, "m 1", x.get("c/a").class())
	x.report("c/a", "192.0.2.1", deviceReport{}) // nothing was reported this time
	assert.NotEmpty(t, sameMachine(x, "c/a"))
	x.put(hostEntry{name: "c/a", devices: at("ipmi://192.0.2.4")})
	assert.Empty(t, sameMachine(x, "c/a"), "another BMC has reported nothing yet")
	assert.Empty(t, x.get("c/a").class())
}

// sameMachine returns another host with a mark that only one host may have.
func sameMachine(x *index, names ...string) string { return x.other(uniqueMarks, nil, names) }

// After any changes the index finds what a comparison of all pairs finds, and keeps nothing of the
// hosts that are gone.
func TestLawIndex(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		x, macs, uuids := newIndex(), map[string]string{}, map[string]string{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			number := rapid.IntRange(0, 4).Draw(t, "host")
			name, device := fmt.Sprintf("c/%d", number), at(fmt.Sprintf("ipmi://192.0.2.%d", number))
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				x.drop(name)
				delete(macs, name)
				delete(uuids, name)
			case 1:
				macs[name] = fmt.Sprintf("00:1b:21:00:00:%02d", rapid.IntRange(1, 4).Draw(t, "mac"))
				x.put(hostEntry{name: name, macs: []string{macs[name]}, devices: device})
			default:
				uuid := fmt.Sprintf("4c4c4544-0044-4710-8052-cac04f48333%d", rapid.IntRange(0, 3).Draw(t, "uuid"))
				if x.report(name, device[0].key(), deviceReport{uuid: uuid}); macs[name] != "" {
					uuids[name] = uuid
				}
			}
		}
		for kind, has := range map[markKind]map[string]string{markMAC: macs, markUUID: uuids} {
			for a := range has {
				twin := false
				for b := range has {
					twin = twin || a != b && has[a] == has[b]
				}
				assert.Equal(t, twin, x.other(marksOfKind(kind), nil, []string{a}) != "", kind)
				assert.False(t, twin && kind == markUUID && x.areUnique())
			}
		}
		shared := map[markKind]int{}
		for key, list := range x.byMark {
			if len(list) > 1 {
				shared[key.kind]++
			}
		}
		for kind := markKind(1); kind < everyMark; kind <<= 1 {
			assert.Equal(t, shared[kind], x.shared[kind], kind)
		}
		for name := range macs {
			x.drop(name)
		}
		assert.Empty(t, x.byMark)
		assert.Empty(t, x.byName)
	})
}

// A removed cluster takes its hosts from the index, whoever listed them, and no host of another
// cluster, whatever that is called. // I9
func TestHostsOfARemovedClusterLeaveTheIndex(t *testing.T) {
	x := newIndex()
	for _, name := range []string{"lab/n-1", "lab/machine/ns/m-1", "lab/ns/h", "lab-2/n-1", "prod/n-1", "prod/lab/h"} {
		x.put(hostEntry{name: name, devices: at("ipmi://192.0.2.1")})
	}
	x.dropIf(inCluster("lab"))
	require.Equal(t, []string{"lab-2/n-1", "prod/lab/h", "prod/n-1"}, slices.Sorted(maps.Keys(x.byName)))
	for key, list := range x.byMark {
		require.Len(t, list, 3, key)
	}
}

// A series of contradictions does not go on when a cluster comes back: nobody looked in between. // I8
func TestContradictionsOfARemovedClusterEnd(t *testing.T) {
	o := &outletContradictions{first: map[string]contradiction{}}
	first := contradiction{lease: "1"}
	o.add("lab/n-1\nd", first)
	o.add("prod/n-1\nd", first)
	o.dropCluster("lab")
	later := contradiction{lease: "2"}
	require.Equal(t, later, o.add("lab/n-1\nd", later))
	require.Equal(t, first, o.add("prod/n-1\nd", later))
}

// A contradiction counts at once, and stays while the store does not have it: whatever is read from
// the store or written by somebody else meanwhile. Only newer evidence ends it. // I8
func TestContradictionOutlivesWhatIsStored(t *testing.T) {
	p := newPins()
	pin := state.Pin{Host: "c/n", Version: 1, SystemUUID: mine}
	void := func() bool { got, _, _ := p.get("c/n"); return got.Contradicted != "" }
	next := func() state.Pin { pin.Version++; return pin }
	p.put(pin)
	p.contradict("c/n", mine, "why")
	assert.False(t, void(), "the same machine")
	p.contradict("c/other", theirs, "why")
	assert.Empty(t, p.unsavedOf("c"), "nothing is pinned there")

	p.contradict("c/n", theirs, "why")
	assert.True(t, void())
	p.put(pin)
	assert.True(t, void(), "the pins are read again")
	p.put(next())
	assert.True(t, void(), "somebody else wrote the pin of the same machine")
	assert.Len(t, p.unsavedOf("c"), 1)
	assert.Empty(t, p.unsavedOf("other"))

	saved := p.unsavedOf("c")[0]
	saved.Version = next().Version
	p.put(saved)
	assert.True(t, void())
	assert.Empty(t, p.unsavedOf("c"), "it is stored")
	p.supersede(next())
	assert.False(t, void(), "it was pinned again")

	p.contradict("c/n", theirs, "why")
	p.supersede(next())
	assert.False(t, void(), "before the store had the contradiction")
	p.contradict("c/n", theirs, "why")
	pin.SystemUUID = theirs
	p.put(next())
	assert.False(t, void(), "it is about the other machine")
	assert.Empty(t, p.unsavedOf("c"))
}

// A message that is shown beside its reason code does not repeat the code.
func TestSentence(t *testing.T) {
	lost := &reason.Refusal{Reason: reason.SecretMissing, Message: "Secret ns/s does not exist"}
	h := bmc.Host{Source: "BareMetalHost ns/h", Levels: []bmc.Level{{Devices: []bmc.Device{{Secret: "ns/s"}}}}}
	h = withSecrets(t.Context(), h, func(context.Context, string) (string, bmc.Secret, error) { return "", bmc.Secret{}, lost })
	err := h.Levels[0].Devices[0].Unusable
	assert.EqualError(t, err, "SecretMissing: BareMetalHost ns/h: Secret ns/s does not exist")
	assert.Equal(t, "BareMetalHost ns/h: Secret ns/s does not exist", reason.Sentence(err))
	assert.Equal(t, "x", reason.Sentence(errors.New("x")))
	assert.Equal(t, "level 2: Secret ns/s does not exist", reason.Sentence(fmt.Errorf("level 2: %w", lost)))
	assert.Equal(t, "Secret ns/s does not exist\nx", reason.Sentence(errors.Join(lost, errors.New("x"))))
}

// Whoever writes BareMetalHosts fills no memory with names of BMCs and of Secrets that come and go. What the inventory names stays known: this
// host's own BMC may have a name. // I13
func TestNamesThatComeAndGoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20_000
		ctx := t.Context()
		own := netip.MustParseAddr("192.0.2.1")
		o := &ownHost{Own: Own{BMCAddrs: []netip.Addr{own}, Lookup: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{own}, nil }},
			catalog: &catalog{index: newIndex(), pins: newPins()}, resolved: map[string]resolvedName{}}
		stays := &bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://bmc.example.com")}}}}
		o.catalog.index.put(hostEntry{name: "c/n", host: stays, devices: places(stays)})
		o.resolve(ctx, bmcAt("ipmi://bmc.example.com"))
		secrets := &secretCache{source: noSecrets{}, byKey: map[string]cachedCredentials{}}
		for i := range many {
			o.resolve(ctx, bmcAt(fmt.Sprintf("ipmi://bmc-%d.example.com", i)))
			_, _, _ = secrets.recent(ctx, fmt.Sprintf("ns/s-%d", i))
			time.Sleep(time.Second)
		}
		require.Less(t, len(o.resolved), many/2)
		require.Less(t, len(secrets.byKey), many/2)
		require.NotEmpty(t, o.isEntry("c/n"))
	})
}

// A lookup that fails takes nothing away from one that has ended meanwhile: a run and a health check look up the same name. // I13
func TestLookupThatFailsLateForgetsNoAddress(t *testing.T) {
	own, d := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, bmcAt("ipmi://bmc.example.com")
	o := &ownHost{catalog: &catalog{index: newIndex(), pins: newPins()}, resolved: map[string]resolvedName{}, room: 1}
	first := true
	o.Own = Own{BMCAddrs: own, Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
		if !first {
			return own, nil
		}
		first = false
		o.resolve(ctx, d)
		return nil, errors.New("the server does not answer")
	}}
	o.resolve(t.Context(), d)
	require.Equal(t, own, o.resolved["bmc.example.com"].addrs)
}

// Nodes that claim to be this host are counted for good, and whoever makes Nodes may make any number: only so many are believed. // I13
func TestNodesThatClaimToBeTheOwnHostAreBounded(t *testing.T) {
	o := &ownHost{Own: Own{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	node := func(i int) *policy.Node {
		return &policy.Node{Addresses: []string{"192.0.2.1"}, SystemUUID: fmt.Sprintf("4c4c4544-0000-4000-8000-%012d", i)}
	}
	for i := range 3 * maxOwnNodes {
		o.note(fmt.Sprint("c/n-", i), node(i))
	}
	require.Len(t, o.nodes, maxOwnNodes)
	require.True(t, o.hasSeen(node(0).SystemUUID), "the first ones stay")
	o.note("c/n-0", node(7_000_000))
	require.True(t, o.hasSeen(node(7_000_000).SystemUUID), "one that is known may say something else")
}

type noSecrets struct{}

func (noSecrets) Credentials(context.Context, string, string) (string, bmc.Secret, error) {
	return "", bmc.Secret{}, errors.New("there is none")
}
