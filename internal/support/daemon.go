package support

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
)

const (
	// maxTargets bounds the nodes and Machines that are explained.
	maxTargets = 20
	// maxRuns bounds the runs with their steps.
	maxRuns = 50
)

// askDaemon adds what the daemon answers to the role of the caller. If it answers nothing, it is
// asked once. The error is why it has none of these parts.
func (c *collector) askDaemon(ctx context.Context) error {
	status, err := within(ctx, c.Client.Status)
	c.addOr("status.json", status.Body, err)
	if err != nil {
		for _, name := range []string{"bmcs.json", "runs.json", "explain", "timeline"} {
			c.missing(name, errors.New("see status.json"))
		}
		return err
	}
	bmcs, err := within(ctx, func(ctx context.Context) (api.Reply[api.BMCs], error) { return c.Client.BMCs(ctx, c.Cluster) })
	c.addOr("bmcs.json", bmcs.Body, err)
	c.runs(ctx)
	targets := troubled(status.Value, c.Cluster)
	for _, t := range targets[:min(len(targets), maxTargets)] {
		c.explain(ctx, t)
	}
	if more := len(targets) - maxTargets; more > 0 {
		c.missing("explain, timeline", fmt.Errorf("of %d more nodes and Machines: at most %d are asked for; status.json names all", more, maxTargets))
	}
	return nil
}

// runs adds the newest runs, open and ended.
func (c *collector) runs(ctx context.Context) {
	all, err := within(ctx, func(ctx context.Context) (api.Reply[api.Timeline], error) {
		return c.Client.Runs(ctx, c.Cluster, time.Time{})
	})
	if err != nil {
		c.missing("runs.json", err)
		return
	}
	list, note := all.Value.Runs, ""
	if more := len(list) - maxRuns; more > 0 {
		list, note = list[more:], fmt.Sprintf("%d older runs are left out", more)
	}
	text, err := json.Marshal(api.Timeline{Runs: list})
	if err != nil {
		c.missing("runs.json", err)
		return
	}
	c.add("runs.json", append(text, '\n'), note)
}

// target is a Node, or a Machine "namespace/name" that has none.
type target struct{ cluster, of string }

// troubled are the targets of open runs, then those that something forbids to remediate, then those
// that deviate; each once.
func troubled(s api.Status, cluster string) (list []target) {
	seen := map[target]bool{}
	add := func(in, node, machine string) {
		t := target{in, node}
		if node == "" {
			t.of = machine
		}
		if t.of != "" && !seen[t] && (cluster == "" || cluster == in) {
			seen[t] = true
			list = append(list, t)
		}
	}
	for _, r := range s.Runs {
		add(r.Cluster, r.Node, r.Machine)
	}
	for _, b := range s.Blocked {
		add(b.Cluster, b.Node, b.Machine)
	}
	for _, cl := range s.Clusters {
		for _, d := range cl.Deviating {
			add(cl.Name, d.Node, d.Machine)
		}
	}
	return list
}

// explain adds every gate of one target, and what happened to it.
func (c *collector) explain(ctx context.Context, t target) {
	file := fileName(t.cluster + "/" + strings.ReplaceAll(t.of, "/", "_") + ".json")
	e, err := within(ctx, func(ctx context.Context) (api.Reply[api.Explanation], error) {
		return c.Client.Explain(ctx, t.cluster, t.of)
	})
	c.addOr("explain/"+file, e.Body, err)
	if strings.Contains(t.of, "/") {
		return // the runs of a Machine without a Node are in runs.json
	}
	r, err := within(ctx, func(ctx context.Context) (api.Reply[api.Timeline], error) {
		return c.Client.NodeTimeline(ctx, t.cluster, t.of)
	})
	c.addOr("timeline/"+file, r.Body, err)
}

// fileName makes a name of the cluster one of a file in the archive.
func fileName(name string) string {
	name = strings.ReplaceAll(name, "..", "_")
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("/._-", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}
