package policy_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/policy"
)

var benchSizes = []int{1_000, 10_000, 100_000}

// benchWorld is a cluster of so many hosts, 1 % of them sick: four pools with a
// check each, one check over all, and a budget.
func benchWorld(size int) policy.Snapshot {
	s := policy.Snapshot{Nodes: make(map[string]*policy.Node, size), Rules: policy.Rules{ZoneKey: "topology.kubernetes.io/zone"}}
	for i := range 4 {
		c := powerCheck(fmt.Sprintf("pool-%d", i))
		c.Selector, c.MaxUnhealthy = labels.SelectorFromSet(labels.Set{"pool": fmt.Sprint(i)}), new(intstr.FromString("40%"))
		s.Checks = append(s.Checks, c)
	}
	all := powerCheck("all")
	all.Kind, all.APIVersion, all.Namespace = policy.FencePolicyKind, policy.FencedAPI, ""
	all.Selector, all.SelectsNodes, all.Source = labels.Everything(), true, "p.yaml:1"
	s.Checks = append(s.Checks, all)
	s.Budgets = []policy.DisruptionBudget{{Name: "pool-0", Selector: labels.SelectorFromSet(labels.Set{"pool": "0"}), MaxUnavailable: intstr.FromString("10%")}}
	for i := range size {
		n := benchNode(i, "True", epoch.Add(-time.Hour))
		if i%100 == 50 {
			n = benchNode(i, "Unknown", epoch.Add(-time.Hour))
		}
		s.Nodes[n.Name] = n
		s.Machines = append(s.Machines, policy.Machine{
			APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-" + n.Name, NodeName: n.Name, UID: fmt.Sprint("machine-", i),
			Labels: map[string]string{"pool": fmt.Sprint(i % 4)}, Phase: "Running", LastUpdated: epoch,
		})
	}
	return s
}

// benchNode is a Node with as much to it as one of a real cluster has.
func benchNode(i int, ready string, since time.Time) *policy.Node {
	n := &policy.Node{Name: fmt.Sprintf("node-%06d", i), UID: fmt.Sprint("node-", i), SystemUUID: fmt.Sprintf("%032x", i+1)}
	own := map[string]string{"pool": fmt.Sprint(i % 4), "topology.kubernetes.io/zone": fmt.Sprint(i % 16)}
	for k := range 10 {
		own[fmt.Sprintf("kubernetes.io/label-%d", k)] = "some value"
	}
	n.Labels = policy.LabelsOf(own)
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		n.Conditions = append(n.Conditions, policy.ConditionsOf([]policy.Condition{{Type: kind, Status: "False", LastTransition: epoch}})...)
	}
	n.Conditions = append(n.Conditions, policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: ready, LastTransition: since}})...)
	return n
}

// filled is a ledger with a cluster of so many hosts.
func filled(size int) *policy.Ledger {
	s := benchWorld(size)
	l := policy.NewLedger(s.Rules)
	l.Apply(epoch, changesOf(s)...)
	return l
}

// perEvent measures one event on clusters of every size. The objects are made
// before the clock starts: decoding them is not the ledger's.
func perEvent(b *testing.B, events func(i int) policy.Change, do func(l *policy.Ledger, i int, c policy.Change)) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := filled(size)
			ready := make([]policy.Change, 1000)
			for i := range ready {
				ready[i] = events(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				do(l, i, ready[i%len(ready)])
			}
		})
	}
}

// BenchmarkLedgerNodeUpdate is a heartbeat: a new version of a Node in which
// nothing has changed. docs/performance.md allows 20 us.
func BenchmarkLedgerNodeUpdate(b *testing.B) {
	perEvent(b, func(i int) policy.Change {
		return changeOf(benchNode(i/100*100, "True", epoch.Add(-time.Hour)))
	}, func(l *policy.Ledger, _ int, c policy.Change) { l.Apply(epoch, c) })
}

// BenchmarkLedgerVerdictChange is a Node that falls ill, or recovers, with what
// the engine asks after it: what is to be done now, and when to look again.
func BenchmarkLedgerVerdictChange(b *testing.B) {
	perEvent(b, func(i int) policy.Change {
		return changeOf(benchNode(i/2, []string{"Unknown", "True"}[i%2], epoch))
	}, func(l *policy.Ledger, _ int, c policy.Change) {
		l.Apply(epoch, c)
	})
}

// BenchmarkLedgerDeadline is a timeout that ends: the clock of one Node begins,
// and the next instant at which anything is due is its end.
func BenchmarkLedgerDeadline(b *testing.B) {
	now := epoch
	perEvent(b, func(int) policy.Change { return policy.Change{} }, func(l *policy.Ledger, _ int, _ policy.Change) {
		l.Apply(now, changeOf(benchNode(1, "Unknown", now)))
		due, ok := l.Next, !l.Next.IsZero()
		if !ok {
			b.Fatal("no clock runs")
		}
		now = due
		l.Advance(now)
	})
}

// BenchmarkLedgerActing asks what is to be done while 1 % of the hosts is sick.
func BenchmarkLedgerActing(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := filled(size)
			b.ReportAllocs()
			for b.Loop() {
				l.Acting(epoch)
			}
		})
	}
}

// BenchmarkLedgerResync fills a ledger from nothing, and tells what it costs in
// memory beside the objects themselves. Each host is a target of two checks.
func BenchmarkLedgerResync(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchWorld(size)
			all := changesOf(s)
			before := heapInUse()
			var l *policy.Ledger
			b.ReportAllocs()
			for b.Loop() {
				l = policy.NewLedger(s.Rules)
				l.Apply(epoch, all...)
			}
			b.ReportMetric(float64(heapInUse()-before)/float64(2*size), "B/target")
			runtime.KeepAlive(l)
			runtime.KeepAlive(all)
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDecide judges whole clusters: what one event would cost without the
// ledger.
func BenchmarkDecide(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchWorld(size)
			b.ReportAllocs()
			for b.Loop() {
				policy.Decide(s, epoch)
			}
		})
	}
}

// checkWorlds are clusters of 5,000 hosts with very many checks: each of its own hosts,
// fewer that are all of every host, and so many of these that none is evaluated.
var checkWorlds = map[string]struct{ checks, pools int }{
	"10000 apart": {10_000, 10_000},
	"1000 apart":  {1_000, 1_000},
	"20 of all":   {20, 0},
	"1000 of all": {1_000, 0},
}

func checkWorld(checks, pools int) policy.Snapshot {
	s := benchWorld(5_000)
	for i := range s.Machines {
		s.Machines[i].Labels = map[string]string{"pool": fmt.Sprint(i % max(1, pools))}
	}
	s.Checks, s.Budgets = nil, nil
	for i := range checks {
		c := powerCheck(fmt.Sprintf("check-%d", i))
		if c.Selector = labels.Everything(); pools != 0 {
			c.Selector = labels.SelectorFromSet(labels.Set{"pool": fmt.Sprint(i)})
		}
		s.Checks = append(s.Checks, c)
	}
	return s
}

// perCheckWorld measures something in each of the clusters with many checks.
func perCheckWorld(b *testing.B, measure func(b *testing.B, s policy.Snapshot)) {
	for name, w := range checkWorlds {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			measure(b, checkWorld(w.checks, w.pools))
		})
	}
}

// BenchmarkChecksJudge fills a ledger and asks what is to be done, as after a start.
func BenchmarkChecksJudge(b *testing.B) {
	perCheckWorld(b, func(b *testing.B, s policy.Snapshot) {
		all := changesOf(s)
		before := heapInUse()
		var l *policy.Ledger
		for b.Loop() {
			l = policy.NewLedger(s.Rules)
			l.Apply(epoch, all...)
			l.Acting(epoch)
		}
		b.ReportMetric(float64(heapInUse()-before)/(1<<20), "MiB")
		runtime.KeepAlive(l)
		runtime.KeepAlive(all)
	})
}

// BenchmarkChecksNodeUpdate is a Node that falls ill or recovers, and what is asked
// after it, amid many checks.
func BenchmarkChecksNodeUpdate(b *testing.B) {
	perCheckWorld(b, func(b *testing.B, s policy.Snapshot) {
		l := policy.NewLedger(s.Rules)
		l.Apply(epoch, changesOf(s)...)
		for i := 0; b.Loop(); i++ {
			l.Apply(epoch, changeOf(benchNode(1, []string{"Unknown", "True"}[i%2], epoch)))
		}
	})
}

// BenchmarkChecksMachineUpdate is a Machine that gets a new label: every check is asked
// whether it selects it.
func BenchmarkChecksMachineUpdate(b *testing.B) {
	perCheckWorld(b, func(b *testing.B, s policy.Snapshot) {
		l := policy.NewLedger(s.Rules)
		l.Apply(epoch, changesOf(s)...)
		for i := 0; b.Loop(); i++ {
			m := s.Machines[1]
			m.Labels = map[string]string{"pool": m.Labels["pool"], "changed": fmt.Sprint(i)}
			l.Apply(epoch, policy.Change{
				ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Value: &m})
		}
	})
}
