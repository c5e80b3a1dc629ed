package policy_test

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/policy"
)

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
			l.Apply(epoch, nodeChange(benchNode(1, []string{"Unknown", "True"}[i%2], epoch)))
			l.Next()
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
