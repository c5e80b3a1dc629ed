package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// seenThrough is a watch with its changes passed through a function.
type seenThrough struct {
	admit.Watch
	change func([]policy.Change) []policy.Change
}

func (s seenThrough) Changes() []policy.Change { return s.change(s.Watch.Changes()) }

// through lets the engine see the world by a function.
func through(change func([]policy.Change) []policy.Change) func(*engine.Options) {
	return func(o *engine.Options) { o.Clusters[0].Watch = seenThrough{o.Clusters[0].Watch, change} }
}

// eachMachine changes what is seen of every Machine.
func eachMachine(change func(*policy.Change, *policy.Machine)) func(*engine.Options) {
	return through(func(list []policy.Change) []policy.Change {
		for i := range list {
			if m, ok := list[i].Value.(*policy.Machine); ok {
				change(&list[i], m)
			}
		}
		return list
	})
}

// lookingAt is the world with its fresh looks passed through a function.
type lookingAt struct {
	engine.Kube
	change func(*run.Fresh)
}

func (l lookingAt) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	f := l.Kube.Look(ctx, r, backups)
	l.change(&f)
	return f
}

// crowd adds silent Nodes to the world. The inventory has a host for each whose
// password is in a Secret, and counts who asks for it.
type crowd struct {
	engine.Kube
	hosts.Inventory
	size int
	mu   sync.Mutex
	told bool
	// asked counts look-ups by Node, secrets those that went on to the Secret.
	asked   map[string]int
	secrets int
	hangs   bool // look-ups of Secrets
}

func inCrowd(w *world, size int) *crowd {
	return &crowd{Kube: w, Inventory: w, size: size, asked: map[string]int{}}
}

func (c *crowd) options(o *engine.Options) {
	through(c.add)(o)
	o.Clusters[0].Kube, o.Hosts = c, c
}

func (c *crowd) add(list []policy.Change) []policy.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.size {
		if c.told {
			break
		}
		name := fmt.Sprintf("silent-%03d", i)
		list = append(list, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: &policy.Node{
			Name: name, UID: name, Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: time.Now()}}}})
	}
	c.told = true
	return list
}

func (c *crowd) Find(_ context.Context, _, node string) (bmc.Host, bool, error) {
	if strings.Contains(node, "/") { // a Machine's, which has no entry
		return bmc.Host{}, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[node]++
	return bmc.Host{Name: "c/" + node, Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Secret: "ns/" + node}}}}}, true, nil
}

func (c *crowd) Credentials(ctx context.Context, _, _ string) (string, bmc.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets++
	if c.hangs {
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
	}
	return "", bmc.Secret{}, errors.New("no such Secret")
}

func (c *crowd) counted() (nodes, secrets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked), c.secrets
}
