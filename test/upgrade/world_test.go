package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// The two clusters, and the name of the daemon.
const (
	prod     = "prod"
	lab      = "lab"
	instance = "fenced-1"
)

// The hosts of prod, each named for what the story does to it.
const (
	isolated    = "isolated"    // its run is open at PowerOn: proven off, and its Node deleted
	deleting    = "deleting"    // its run is open at DeleteNode: proven off, and its Node still there
	cutting     = "cutting"     // its run is open at PowerOff: Off was sent, and nothing is proven
	restored    = "restored"    // its run is Done
	confirmed   = "confirmed"   // its run is Held: a person confirmed that it is off
	miswired    = "miswired"    // its run is Held: its outlet feeds another machine, and has not come on again
	lying       = "lying"       // its run is Held, and it is frozen: its BMC lied
	forgiven    = "forgiven"    // as lying, and then a person released it and closed its run
	maintained  = "maintained"  // a person holds it
	handed      = "handed"      // a person held it and released it
	quarantined = "quarantined" // fenced once more than the daily limit allows
	locked      = "locked"      // its BMC refuses the account
	own         = "own"         // the daemon runs on it
)

// rack gives each host its place in the rack: UUID and address follow from it.
var rack = []string{isolated, deleting, cutting, restored, confirmed, miswired, lying, forgiven, maintained, handed, quarantined, locked, own}

func uuidOf(i int) string { return fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d%04d", 3100+i) }

func addressOf(i int) string { return fmt.Sprintf("192.0.2.%d", 10+i) }

// world is everything outside of fenced: two clusters, and what was asked of each BMC.
type world struct {
	prod, lab *fake.Cluster
	outlet    *fake.OutletHandle // of miswired

	mu     sync.Mutex
	powers map[string][]answer // of the BMC of each host, oldest first
}

// answer is one thing that a BMC said or was told.
type answer struct {
	at      time.Time
	off     bool // it read Off
	sent    bool // it took a command
	command bmc.Command
}

// newWorld makes both clusters, all well.
func newWorld() *world {
	w := &world{prod: fake.New(prod), lab: fake.New(lab), powers: map[string][]answer{}}
	w.prod.Do(func(s *fake.State) {
		s.PodsOfANode = 3
		for i, name := range rack {
			s.AddHost(fake.Host{Name: name, UUID: uuidOf(i), Zone: "zone-a", Owned: fake.Owned{
				Labels: map[string]string{"rack": "r1", "team": "of-" + name}, Taints: []string{"dedicated=" + name + ":NoSchedule"}, Cordoned: name == isolated,
			}}, machine(name))
			if name != isolated {
				s.Entries[name] = entry(i, name)
			}
		}
		metal(s)
		s.Check = check()
		s.ShowCheck(s.Check)
	})
	w.outlet = w.prod.AddOutlet(miswired)
	w.outlet.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
	w.lab.Do(func(s *fake.State) { s.AddHost(fake.Host{Name: "bench", UUID: uuidOf(90)}, machine("bench")) })
	return w
}

func machine(node string) policy.Machine {
	return policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: fake.Namespace, Name: "machine-" + node, UID: "machine-uid-" + node,
		Phase: "Running", ClusterName: prod}
}

// metal gives the host isolated a BareMetalHost instead of an entry in hosts.d.
func metal(s *fake.State) {
	s.ChangeMetal(isolated, func(h *policy.Host) { h.Address, h.CredentialsName = "ipmi://"+addressOf(0), "bmc-"+isolated })
	s.Secrets["bmc-"+isolated] = fake.Account{User: "fence", Password: bmc.NewSecret("of the Secret")}
	s.ChangeMachine(isolated, func(m *policy.Machine) {
		m.Annotations = map[string]string{"metal3.io/BareMetalHost": fake.Namespace + "/" + isolated}
	})
}

// entry is that of hosts.d: an IPMI BMC, and for one host an outlet behind it.
func entry(i int, name string) bmc.Host {
	h := bmc.Host{Name: prod + "/" + name, IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
		Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: addressOf(i), Port: 623},
		Username: "fence", Password: bmc.NewSecret("of " + name),
	}}}}}
	if name == miswired {
		h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
			Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "192.0.2.200"},
			Username: "fence", Password: bmc.NewSecret("of the PDU"), Parameters: map[string]string{"plug": "7"},
		}}})
	}
	return h
}

func check() *policy.Check {
	return &policy.Check{
		Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: fake.Namespace, Name: "workers",
		Selector: labels.Everything(), Strategy: policy.PowerCycleHosts,
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
	}
}

func (w *world) of(host string) *fake.Handle { return w.prod.Handle(host) }

// run lets time pass in both clusters until ctx ends.
func (w *world) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { w.prod.Run(ctx) })
	both.Go(func() { w.lab.Run(ctx) })
	both.Wait()
}

// open implements bmc.Opener.
func (w *world) open(d bmc.Device) (bmc.Power, error) {
	if d.Driver == bmc.DriverFenceAgent {
		return w.outlet, nil
	}
	for i, name := range rack {
		if d.Endpoint.Host == addressOf(i) {
			return recordingBMC{w.prod.BMC(name), w, name}, nil
		}
	}
	return nil, errors.New("nothing is at " + d.String())
}

// recordingBMC is a BMC of which the world remembers what it said.
type recordingBMC struct {
	bmc.Power
	w    *world
	host string
}

func (n recordingBMC) note(a answer) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.powers[n.host] = append(n.w.powers[n.host], a)
}

// Read implements bmc.Power.
func (n recordingBMC) Read(ctx context.Context) (bmc.Reading, error) {
	r, err := n.Power.Read(ctx)
	n.note(answer{at: time.Now(), off: err == nil && r.State == bmc.Off})
	return r, err
}

// Send implements bmc.Power.
func (n recordingBMC) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	r, err := n.Power.Send(ctx, c)
	n.note(answer{at: time.Now(), sent: err == nil, command: c})
	return r, err
}

// proven says whether the BMC of a host has proven it off in this world: it took an Off,
// and then read Off without a break, for 3 s and until no more than 5 s ago. It is written
// without a look at the product's own proof. // I1
func (w *world) proven(host string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first, last time.Time
	accepted := false
	for _, a := range w.powers[host] {
		switch {
		case a.sent:
			accepted, first, last = a.command == bmc.CommandOff, time.Time{}, time.Time{}
		case !a.off:
			first, last = time.Time{}, time.Time{}
		case first.IsZero():
			first, last = a.at, a.at
		default:
			last = a.at
		}
	}
	return accepted && !first.IsZero() && last.Sub(first) >= 3*time.Second && now.Sub(last) <= 5*time.Second
}

// asked is how often the BMC of a host was asked anything.
func (w *world) asked(host string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.powers[host])
}

// inventory is hosts.d of both clusters: only prod has entries.
type inventory struct{ *world }

// List implements hosts.Inventory.
func (v inventory) List(cluster string) []string {
	if cluster != prod {
		return nil
	}
	return v.prod.List(cluster)
}

// Protected implements hosts.Inventory.
func (inventory) Protected(string, string) bool { return false }

// Find implements hosts.Inventory.
func (v inventory) Find(ctx context.Context, cluster, node string) (bmc.Host, bool, error) {
	if cluster != prod {
		return bmc.Host{}, false, nil
	}
	return v.prod.Find(ctx, cluster, node)
}
