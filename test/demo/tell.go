package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// meaning is what each step is for, in the words of somebody who watches.
var meaning = map[string]string{
	"PowerOff":    "1/6 PowerOff: make sure of the BMC's identity, send Off, read Off twice, see no heartbeat for 15 s",
	"DeleteNode":  "2/6 DeleteNode: the host is proven off; save the Node, delete it: its pods may start elsewhere now",
	"PowerOn":     "3/6 PowerOn: pods are gone; power the host on and read On",
	"AwaitNode":   "4/6 AwaitNode: the host boots and registers a new Node",
	"RestoreNode": "5/6 RestoreNode: give the new Node the labels, annotations, taints and cordon of the old one",
	"Reprovision": "6/6 Reprovision: the power cycle did not help; delete the Machine",
	"Done":        "Done: the Node is Ready and has all it had",
}

// teller prints what happens, with the time since the hang.
type teller struct {
	start  time.Time
	client *api.Client
	node   string
}

func (t teller) say(format string, args ...any) { t.at(time.Now(), format, args...) }

func (t teller) at(when time.Time, format string, args ...any) {
	fmt.Printf("%7.2fs  %s\n", when.Sub(t.start).Seconds(), fmt.Sprintf(format, args...))
}

// follow prints the daemon's events about the node until its run ends.
func (t teller) follow(ctx context.Context) error {
	for e, err := range t.client.Events(ctx, 0) {
		if err != nil {
			return fmt.Errorf("follow fenced's events: %w", err)
		}
		if e.Node != t.node {
			continue
		}
		switch e.Type {
		case "Started":
			t.at(e.At, "fenced decides: %s", e.Message)
			t.at(e.At, "%s", meaning[e.Step])
		case "Step":
			t.at(e.At, "%s", meaning[e.Step])
			switch e.Step {
			case "Done":
				return nil
			case "Held", "Aborted", "Reprovisioned":
				return fmt.Errorf("the run ended as %s (%s): %s", e.Step, e.Reason, e.Message)
			}
		case "Action":
			t.at(e.At, "         %s", e.Message)
		case "Failed", "Refused":
			t.at(e.At, "         %s %s: %s", e.Type, e.Reason, e.Message)
		}
	}
	return fmt.Errorf("the run did not end in time: %w", ctx.Err())
}

// figures is the final table. All times count from the moment at which the
// check's timeout was over: the first at which fencing was asked for.
func figures(s *scene.Scene, w *scene.Worker, r wire.RunRecord, lost *corev1.Node, c choice) error {
	var due time.Time
	for _, c := range lost.Status.Conditions {
		if c.Type == corev1.NodeReady {
			due = c.LastTransitionTime.Add(unhealthy)
		}
	}
	deleted, err := s.Cluster.NodeDeletions(w.Name)
	if err != nil {
		return err
	}
	stay := map[string]time.Duration{}
	var proven time.Time
	for _, v := range r.Steps {
		stay[v.Step] += v.Ended.Sub(v.Started)
		if v.Step == "PowerOff" {
			proven = v.Ended
		}
	}
	total := r.Ended.Sub(due)
	fmt.Println("\nFrom the end of the check's timeout:")
	row := func(what string, d time.Duration) { fmt.Printf("  %-58s %9s\n", what, d.Round(time.Millisecond)) }
	row("decision latency: first byte to the BMC", w.FirstAsked().Sub(due))
	row("host proven off (15 s of it: no heartbeat since)", proven.Sub(due))
	row(c.counts, deleted[0].Done.Sub(due))
	row("whole run, Node Ready and restored", total)
	row("whole run without the boot", total-stay["AwaitNode"])
	fmt.Printf("\n%s is Ready as a new Node with its labels, annotations, taints and cordon; it was deleted once, while off.\n", w.Name)
	return nil
}
