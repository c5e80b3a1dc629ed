package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// BenchmarkDecide judges whole clusters with one check, 1 % of it sick.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []int{1_000, 5_000} {
		s := policy.Snapshot{Checks: []policy.Check{powerCheck("c")}, Nodes: map[string]*policy.Node{}}
		for i := range size {
			name := fmt.Sprintf("n-%d", i)
			s.Machines = append(s.Machines, policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-" + name, NodeName: name})
			ready := policy.Condition{Type: "Ready", Status: "True", LastTransition: epoch.Add(-time.Hour)}
			if i%100 == 0 {
				ready.Status = "Unknown"
			}
			s.Nodes[name] = &policy.Node{Name: name, Conditions: []policy.Condition{ready}}
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policy.Decide(s, epoch)
			}
		})
	}
}
