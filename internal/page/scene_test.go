package page

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"log"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// daemon answers behind the real socket server and client.
type daemon struct {
	api.Daemon // what is not answered below

	mu       sync.Mutex
	status   wire.Status
	nodes    []wire.Node
	bmcs     []wire.BMC
	runs     []wire.RunRecord
	notes    []wire.Note
	blocked  []wire.Blocked
	explain  wire.Explanation
	err      error
	asked    int    // for the status
	asking   func() // if not nil, is called for each status
	slowLog  bool   // the audit log is never read to its end
	unseen   error  // why the Nodes cannot be listed
	unread   error  // why the runs cannot be read
	happened chan struct{}
}

func (d *daemon) Status(context.Context) (wire.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.asking != nil {
		d.asking()
	}
	st := d.status
	st.Clusters = slices.Clone(st.Clusters) // the server fills in what is absent
	return st, d.err
}

func (d *daemon) Nodes(_ context.Context, f wire.NodesFilter) (wire.Nodes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return wire.Nodes{Nodes: keepIf(d.nodes, func(n wire.Node) bool { return f.Cluster == "" || n.Cluster == f.Cluster })}.Cut(f), cmp.Or(d.err, d.unseen)
}

func (d *daemon) BMCs(_ context.Context, f wire.BMCFilter) (wire.BMCs, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return wire.BMCs{BMCs: keepIf(d.bmcs, func(b wire.BMC) bool { return (f.Cluster == "" || b.Cluster == f.Cluster) && f.Wants(&b) })}, d.err
}

func (d *daemon) OnlyCluster() string { return "" }

func (d *daemon) Resolve(_ wire.Wanted, n wire.Named) (wire.Named, error) { return n, nil }

func (d *daemon) Explain(_ context.Context, cluster, of string) (wire.Explanation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.explain
	e.Cluster, e.Node = cmp.Or(cluster, "prod"), of
	for i := range d.runs {
		if r := &d.runs[i]; r.Node == of && r.Ended.IsZero() {
			e.Run = r
		}
	}
	if of == "nobody" {
		return e, api.NotFound("NoSuchNode", "no Node nobody", "fencectl nodes lists them")
	}
	return e, d.err
}

func (d *daemon) Runs(_ context.Context, f wire.RunFilter) (wire.Timeline, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tl := wire.Timeline{Notes: d.notes, Blocked: keepIf(d.blocked, func(b wire.Blocked) bool { return b.Node == f.Node })}
	tl.Runs = keepIf(d.runs, func(r wire.RunRecord) bool {
		return (f.ID == "" || r.ID == f.ID) && (f.Node == "" || r.Node == f.Node)
	})
	return tl, cmp.Or(d.err, d.unread)
}

func (d *daemon) Audit(ctx context.Context, q audit.Query, entry func(audit.Entry) error, _ func(audit.Break) error) error {
	if d.slowLog {
		<-ctx.Done()
		return ctx.Err()
	}
	return entry(audit.Entry{Seq: 4711, At: q.Since, Run: q.Run, Type: "Action", Step: "DeleteNode", Message: "the Node was deleted"})
}

func (d *daemon) Events(ctx context.Context, _ uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.happened:
				if !yield(wire.Event{Type: "Step"}, nil) {
					return
				}
			}
		}
	}
}

// change changes what the daemon answers, and tells that something happened.
func (d *daemon) change(do func()) {
	d.mu.Lock()
	do()
	d.mu.Unlock()
	select {
	case d.happened <- struct{}{}:
	default:
	}
}

// serve serves the daemon on a socket, until the test ends or stop is called.
func (d *daemon) serve(t testing.TB, socket string) (stop func()) {
	t.Helper()
	ln, err := api.Listen(socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		_ = api.NewServer(d, api.Roles{}, log.New(io.Discard, "", 0)).Serve(ctx, ln)
		close(served)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-served
	})
	t.Cleanup(stop)
	return stop
}

func socketOf(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

// scene is a cluster in which something of everything is the case. now is its present.
func scene(now time.Time) *daemon {
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	d := &daemon{happened: make(chan struct{}, 1)}
	states := map[int]string{3: wire.NodeRemediating, 7: wire.NodeHeld, 9: wire.NodeBlocked, 12: wire.NodeUnhealthy, 15: wire.NodeOnHold, 18: wire.NodeUnfenceable, 22: wire.NodeUncovered, 11: wire.NodeWaiting, 24: wire.NodeUnseen}
	for i := range 24 {
		n := wire.Node{Cluster: "prod", Node: fmt.Sprintf("worker-%d", i+1), Zone: fmt.Sprintf("dc-%c", 'a'+i/12), Rack: fmt.Sprintf("r%d", i/6+1),
			State: cmp.Or(states[i+1], wire.NodeHealthy), Checks: []string{"MachineHealthCheck ns/workers"}, BMCs: []string{fmt.Sprintf("ipmi://192.0.2.%d", i+11)}, Fenceable: wire.FenceableYes}
		switch n.State {
		case wire.NodeUncovered:
			n.Checks = nil
		case wire.NodeUnfenceable:
			n.Fenceable, n.Reason, n.Message, n.Next = "no", "BMCUnreachable", "dial udp 192.0.2.28:623: no answer within 15s", "fencectl bmc test worker-18"
		case wire.NodeRemediating, wire.NodeHeld, wire.NodeWaiting:
			n.Run = fmt.Sprintf("mi42k0z%d-4f9a1c", i+1)
		}
		d.nodes = append(d.nodes, n)
	}
	d.runs = []wire.RunRecord{
		{ID: "mi42k0z3-4f9a1c", Cluster: "prod", Node: "worker-3", Machine: "ns/worker-3", Trigger: "check MachineHealthCheck ns/workers: Ready is Unknown for 5m0s", Result: wire.ResultRunning, Started: ago(74), Deadline: now.Add(46 * time.Second),
			OffReads: []wire.OffRead{{At: ago(52), Device: "ipmi://192.0.2.13"}, {At: ago(50), Device: "ipmi://192.0.2.13"}}, Proof: "BMC",
			Steps: []wire.StepRecord{
				{Step: "PowerOff", Attempt: 1, Started: ago(74), Ended: ago(50), Course: []string{"identity of ipmi://192.0.2.13 is that of the Node", "Off sent 18:00:02Z", "read Off twice", "no heartbeat for 15 s"}},
				{Step: "DeleteNode", Attempt: 1, Started: ago(50), Ended: ago(49), Course: []string{"Node deleted"}},
				{Step: "PowerOn", Attempt: 1, Started: ago(49), Ended: ago(40), Course: []string{"On sent", "read On"}},
				{Step: "AwaitNode", Attempt: 1, Started: ago(40)}}},
		{ID: "mi42k0z7-4f9a1c", Cluster: "prod", Node: "worker-7", Machine: "ns/worker-7", Trigger: "by hand", Actor: "anna (uid 1000)", Result: wire.ResultHeld, Reason: "PowerOffFailed", Class: "person", Note: "the BMC reads On after 3 orders", Started: ago(5400),
			LastError: &wire.RunError{At: ago(5200), Reason: "BMCAuth", Message: "the BMC refuses user fenced"},
			Steps:     []wire.StepRecord{{Step: "PowerOff", Attempt: 1, Started: ago(5400), Ended: ago(5200), Note: "PowerOffFailed: the BMC reads On after 3 orders", Course: []string{"Off sent"}}}},
		{ID: "mi42k0z11-4f9a1c", Cluster: "prod", Node: "worker-11", Trigger: "check", Result: wire.ResultWaiting, Reason: "ZoneBreaker", Class: "mended", Note: "2 of 12 Nodes of dc-a are under remediation", Started: ago(600), Steps: []wire.StepRecord{}},
		{ID: "mi3zzzz1-000001", Cluster: "prod", Node: "worker-1", Trigger: "check MachineHealthCheck ns/workers: Ready is Unknown for 5m0s", Result: wire.ResultDone, Proof: "BMC", Started: ago(7200), Ended: ago(6950),
			Steps: []wire.StepRecord{
				{Step: "PowerOff", Attempt: 1, Started: ago(7200), Ended: ago(7176), Course: []string{"Off sent", "read Off twice"}}, {Step: "DeleteNode", Attempt: 1, Started: ago(7176), Ended: ago(7175)},
				{Step: "PowerOn", Attempt: 1, Started: ago(7175), Ended: ago(7160)}, {Step: "AwaitNode", Attempt: 1, Started: ago(7160), Ended: ago(6960)}, {Step: "RestoreNode", Attempt: 1, Started: ago(6960), Ended: ago(6950)}}},
	}
	d.blocked = []wire.Blocked{
		{Cluster: "prod", Node: "worker-9", Machine: "ns/worker-9", Check: "MachineHealthCheck ns/workers", Reason: "RunsInFlight", Class: "transient", Message: "1 run is open, and guards.maxInFlight is 1", Next: "fencectl explain worker-9", Since: ago(70), NextTry: now.Add(20 * time.Second)},
		{Cluster: "prod", Node: "worker-11", Check: "MachineHealthCheck ns/workers", Run: "mi42k0z11-4f9a1c", Reason: "ZoneBreaker", Class: "mended", Message: "2 of 12 Nodes of dc-a are under remediation", Next: "fencectl explain worker-11", Since: ago(600)}}
	d.status = wire.Status{Version: "0.1.0", Armed: true, Blocked: d.blocked, BMCs: wire.BMCCount{Total: 24, NotDependable: 1},
		Clusters: []wire.ClusterStatus{
			{Name: "prod", Mode: "evaluate", Armed: true, Owner: true, ViewAgeSeconds: .3, Nodes: 24, Cover: &wire.NodeCover{Covered: 23, Gaps: []wire.NodeGap{{Reason: "BMCUnreachable", Count: 1, Node: "worker-18", Message: "no answer within 15s", Next: "fencectl bmc test worker-18"}}},
				Checks: []wire.CheckStatus{{Kind: "MachineHealthCheck", Namespace: "ns", Name: "workers", State: "Active", Expected: 20, Healthy: 15, Allowed: true, RemediationsAllowed: 3},
					{Kind: "NodeHealthCheck", Name: "infra", State: "Active", Expected: 3, Healthy: 1, Reason: "ShortCircuit", Limit: "at least 51% must be healthy"}},
				Deviating: []wire.TargetStatus{{Node: "worker-12", Verdict: "Unhealthy", Reason: "NodeCondition", Message: "Ready is Unknown for 40s of 5m0s", Since: ago(40)}},
				Requests:  []wire.RequestStatus{{Kind: "FencedRemediation", Namespace: "ns", Name: "worker-9", Node: "worker-9", Phase: "Pending", Reason: "RunsInFlight", Message: "asked by a NodeHealthCheck", Run: "mi42k0z3-4f9a1c"}},
				Holds:     []wire.HoldStatus{{Node: "worker-15", By: "bert (uid 1001)", Reason: "new disk, ticket 4711", Since: ago(4000), Until: now.Add(time.Hour)}}},
			{Name: "edge", Mode: "observe", ViewAgeSeconds: 94, Problem: "the view of the cluster is 94s old", ProblemReason: "StaleView", Next: "journalctl -u fenced", Hint: "write isolation: outOfServiceTaint", Nodes: 0}},
		Recent: []wire.RecentRun{{ID: "mi3zzzz1-000001", Cluster: "prod", Node: "worker-1", Result: wire.ResultDone, Started: ago(7200), Ended: ago(6950)}}}
	for _, r := range d.runs[:3] {
		step := r.Result
		if r.Result == wire.ResultRunning {
			step = "AwaitNode"
		}
		d.status.Runs = append(d.status.Runs, wire.RunStatus{ID: r.ID, Cluster: r.Cluster, Node: r.Node, Machine: r.Machine, Step: step, Started: r.Started, Deadline: r.Deadline, Reason: r.Reason, Class: r.Class, Note: r.Note, LastError: r.LastError})
	}
	d.status.Runs[1].Next = "fencectl retry worker-7 --reason WHY"
	d.bmcs = []wire.BMC{
		{Cluster: "prod", Node: "worker-18", Host: "worker-18", Source: "hosts.d/workers.yaml:41", Level: 1, Device: "ipmi://192.0.2.28", Driver: "ipmi", Assurance: "strict", State: "failed", Reason: "BMCUnreachable", Problem: "dial udp 192.0.2.28:623: no answer within 15s", Power: "Unknown", LastGood: ago(86000), Checked: ago(20), Failures: 12},
		{Cluster: "prod", Node: "worker-3", Host: "worker-3", Source: "hosts.d/workers.yaml:7", Level: 1, Device: "ipmi://192.0.2.13", Driver: "ipmi", Assurance: "strict", State: "ok", Dependable: true, Power: "On", Identity: "match", UUID: "4c4c4544-0042-3510-8057-b7c04f4a3732", Serial: "B5WJ722", Manufacturer: "Dell Inc.", Model: "PowerEdge R650", Firmware: "7.00.60.00", LastGood: ago(20), Checked: ago(20),
			Findings: []wire.BMCFinding{{Code: "CipherZero", Message: "cipher suite 0 is enabled"}}}}
	d.notes = []wire.Note{{At: ago(5400), Type: "Order", Actor: "anna (uid 1000)", Message: "fence: kernel hangs, ticket 4711"}, {At: ago(60), Type: "Refused", Reason: "RunsInFlight", Message: "1 run is open", Count: 4, Last: ago(10)}}
	d.explain = wire.Explanation{Verdict: "Unhealthy", Refused: "RunsInFlight", Class: "transient", Message: "Ready is Unknown for 5m0s", Gates: []reason.Gate{
		{Name: "mode", Pass: true, Value: "evaluate", Threshold: "evaluate", Source: "fenced.yaml clusters[].mode"},
		{Name: "inFlight", Reason: "RunsInFlight", Value: "1", Threshold: "below 1", Source: "guards.maxInFlight", Until: now.Add(20 * time.Second)},
		{Name: "host", Pass: true, Unchecked: true, Value: "not read yet", Threshold: "reachable"},
		{Name: "cooldown", Pass: true, Waived: true, Value: "2m", Threshold: "10m", Source: "guards.cooldown"}}}
	return d
}
