package hosts

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// content is a content of hosts.d: entries by what they are about. After each answer asked is called.
type content struct {
	entries map[string]*bmc.Host
	unread  string
	asked   func()
}

func (c content) List(string) (of []string) {
	defer c.asked()
	for name := range c.entries {
		of = append(of, name)
	}
	return of
}

func (c content) Protected(_, of string) bool {
	defer c.asked()
	return c.entries[of] != nil && c.entries[of].Protected
}

func (c content) Refused(string, string) string { defer c.asked(); return "" }
func (c content) Unread() string                { defer c.asked(); return c.unread }
func (c content) Bare(_, of string) *bmc.Host   { defer c.asked(); return c.entries[of] }

func (c content) Find(_ context.Context, _, of string) (h bmc.Host, found bool, err error) {
	defer c.asked()
	if e := c.entries[of]; e != nil {
		return *e, true, nil
	}
	return h, false, nil
}

// oneHost is a view in which each BareMetalHost has the same address, and nothing else exists.
type oneHost struct{ View }

func (oneHost) Node(string) *policy.Node                   { return nil }
func (oneHost) MachineOf(remediate.Target) *policy.Machine { return nil }
func (oneHost) Wake()                                      {}

func (oneHost) BareMetalHost(namespace, name string) *policy.Host {
	return &policy.Host{Namespace: namespace, Name: name, Address: "ipmi://192.0.2.66"}
}

// A question is asked of one content of hosts.d, also if a reload replaces it between two parts of the question. Before the reload the
// entry of a host could not be read, or had another name; after it, it is there. At no time may the host be taken for one without
// an entry, or without protection. // I10, I13, I18
func TestQuestionIsAskedOfOneContentOfHostsD(t *testing.T) {
	target := remediate.Target{Cluster: "c", Node: "n", Namespace: "ns", Machine: "m", BareMetalHost: "ns/h"}
	entry := func(of string) map[string]*bmc.Host {
		h := &bmc.Host{Name: bmc.EntryName("c", of), Protected: true, Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://192.0.2.1")}}}}
		return map[string]*bmc.Host{of: h}
	}
	for name, c := range map[string]struct {
		before, after content
	}{
		"it could not be read":        {content{unread: "rack.yaml"}, content{entries: entry("n")}},
		"it was that of its Machine":  {content{entries: entry("ns/m")}, content{entries: entry("n")}},
		"it was that of its Node":     {content{entries: entry("n")}, content{entries: entry("ns/m")}},
		"it can be read no more":      {content{entries: entry("n")}, content{unread: "rack.yaml"}},
		"it could not be read so far": {content{unread: "rack.yaml"}, content{entries: entry("ns/m")}},
	} {
		t.Run(name, func(t *testing.T) {
			for reloadAfter := range 8 { // answers of hosts.d
				cluster := func() *Cluster {
					before, after, answers := c.before, c.after, 0
					h := &Hosts{own: &ownHost{}, catalog: &catalog{index: newIndex(), pins: newPins()}}
					h.own.catalog = h.catalog
					after.asked = func() {}
					before.asked = func() {
						if answers++; answers > reloadAfter {
							h.listed.Store(new(Inventory(after)))
						}
					}
					h.listed.Store(new(Inventory(before)))
					return h.NewCluster(ClusterOptions{Name: "c", View: oneHost{}})
				}
				h, err := cluster().Entry(t.Context(), target)
				if r, refused := reason.AsRefusal(err); refused {
					assert.Equal(t, reason.InvalidHost, r.Reason)
				} else {
					require.NoError(t, err)
					assert.Equal(t, "ipmi://192.0.2.1:623", h.Address(), "not that of the BareMetalHost, after %d answers", reloadAfter)
				}
				_, why := cluster().OffLimits(remediate.Run{Target: target})
				assert.Contains(t, why, "protected", "after %d answers", reloadAfter)
				if c.before.unread == "" && c.after.unread == "" {
					assert.True(t, cluster().Protected(target))
				}
			}
		})
	}
}

// A person enrolls no BareMetalHost at another's BMC, at which it was read a moment ago, although the index has it at its own again. Where no
// device tells whose it is, nothing else would show that. // I8, I9
func TestHostThatIsEnrolledLeadsToAnothers(t *testing.T) {
	host := func(name, address string) bmc.Host {
		return bmc.Host{Name: "c/ns/" + name, Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://" + address)}}}}
	}
	hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}}
	for name, address := range map[string]string{"h-1": "192.0.2.1", "h-2": "192.0.2.2"} {
		h := host(name, address)
		hosts.catalog.index.put(hostEntry{name: h.Name, host: &h, devices: places(&h)})
	}
	c := hosts.NewCluster(ClusterOptions{Name: "c", View: oneHost{}})
	at := func(address string) Subject {
		return Subject{Cluster: "c", Node: "n", BareMetalHost: "ns/h-1", SystemUUID: mine, Host: host("h-1", address)}
	}
	unidentified := Enrollment{Devices: []EnrolledDevice{{}}}
	assert.NoError(t, c.enrollable(at("192.0.2.1"), wire.Order{}))
	assert.NoError(t, c.enrollableWithoutUUID(at("192.0.2.1"), state.Pin{}, unidentified))
	refused := func(err error) {
		t.Helper()
		r, ok := reason.AsRefusal(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, reason.DuplicateHost, r.Reason)
		assert.Contains(t, r.Message, "c/ns/h-2")
	}
	refused(c.enrollableWithoutUUID(at("192.0.2.2"), state.Pin{}, unidentified))
	hosts.catalog.pins.put(state.Pin{Host: "c/ns/h-2", Devices: devicesOf(host("h-2", "192.0.2.2")), Choice: choiceOf(host("h-2", "192.0.2.2"))})
	refused(c.enrollable(at("192.0.2.2"), wire.Order{}))
}

// namesAnother is a view in which the Machine of each Node names another BareMetalHost each time when it is asked.
type namesAnother struct {
	oneHost
	asked *int
}

func (namesAnother) Healthy(remediate.Target) bool { return false }

func (namesAnother) TargetOf(string) (t remediate.Target, known bool) { return t, false }

func (v namesAnother) TargetOn(node string) (remediate.Target, bool) {
	*v.asked++
	return remediate.Target{Cluster: "c", Node: node, SystemUUID: mine, BareMetalHost: fmt.Sprint("ns/h-", *v.asked)}, true
}

// Whoever may write a Machine may name another BareMetalHost in it while a person enrolls one: the rules for BareMetalHosts bind the one that
// is enrolled. // I10
func TestMachineNamesAnotherHostDuringAnEnrolment(t *testing.T) {
	_, store := openFreezes(t)
	hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}, opt: Options{LockOut: must.Do(power.NewLockOut(t.Context(), store, ""))(t)}}
	hosts.listed.Store(new(Inventory(content{asked: func() {}})))
	c := hosts.NewCluster(ClusterOptions{Name: "c", View: namesAnother{asked: new(int)}, Secrets: noSecrets{}})
	s := must.Do(c.subjectToEnroll(t.Context(), wire.Order{Node: "n"}))(t)
	assert.Equal(t, "c/"+s.BareMetalHost, s.Host.Name)
}

// A run that another instance began may be about a Machine without a Node: then only what its BMC reported says which machine it is. The
// instance that takes it over may have read no BMC yet, and may be on that very machine. // I13
func TestRunOfAMachineWithoutANodeIsOnTheOwnHost(t *testing.T) {
	hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}}
	hosts.own = &ownHost{Own: Own{UUIDs: []string{mine}}, catalog: hosts.catalog}
	hosts.listed.Store(new(Inventory(content{asked: func() {}})))
	c := hosts.NewCluster(ClusterOptions{Name: "c", View: oneHost{}})
	run := remediate.Run{Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: "m", BareMetalHost: "ns/h", ByHardware: true, ReportedUUID: mine}}
	code, why := c.OffLimits(run)
	assert.Equal(t, reason.OwnHost, code)
	assert.Contains(t, why, "the host that this daemon runs on")
	run.Target.ReportedUUID = theirs
	code, _ = c.OffLimits(run)
	assert.Empty(t, code)
}
