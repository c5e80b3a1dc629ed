package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
)

// The account of every BMC.
const (
	user     = "fence"
	password = "not-a-secret"
)

const (
	startTime   = 5 * time.Minute       // from the start of a program until it has judged
	startPoll   = 20 * time.Millisecond // also how exactly the start is known
	clusterName = "bench"
)

// What is not here has its default: also the guards that nothing here meets.
const configuration = `clusters:
  - {name: %[1]s, kubeconfig: %[2]s, mode: evaluate}
hosts: hosts.d
policies: policies.d
state: {path: state.db}
control: {socket: %[3]s}
metrics: {listen: ""}
sweep: {interval: 0s} # what is asked of a BMC here is asked by a run
guards:
  quietPeriod: 0s
  maxInFlight: %[4]d
  maxInFlightTotal: %[4]d
  maxInFlightPercent: 100
  startsPerHour: 0
  maxDeletions: %[4]d
  deletionsPerHour: 0
`

// daemon is the fenced under test.
type daemon struct {
	*process
	took time.Duration // until all Nodes were judged
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// startDaemon starts the fenced that ships, and waits until it has judged the
// whole fleet.
func (b *bench) startDaemon(ctx context.Context) (*daemon, error) {
	if err := b.writeConfig(); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := startProcess(b.dir, "fenced", b.programs.Fenced, "--config", b.path("fenced.yaml"))
	if err != nil {
		return nil, err
	}
	d := &daemon{process: p}
	if err := d.await(ctx, b); err != nil {
		p.stop()
		return nil, fmt.Errorf("%w\nthe end of fenced's log:\n%s", err, p.logTail())
	}
	d.took = time.Since(began)
	return d, nil
}

// await polls the control socket until every Node is counted by a check.
func (d *daemon) await(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	client := api.New(b.path("fenced.sock"))
	var last error
	for sleep(ctx, startPoll) {
		if d.ended() {
			return errors.New("start fenced: it ended")
		}
		reply, err := client.Status(ctx)
		if err != nil {
			last = err
			continue
		}
		if last = b.judged(reply.Value); last == nil {
			return nil
		}
	}
	return fmt.Errorf("wait until fenced has judged %d Nodes: %w", b.Nodes, last)
}

// judged is nil when fenced is armed, sees the cluster and counts all targets.
func (b *bench) judged(s wire.Status) error {
	if !s.Armed || len(s.Clusters) != 1 || s.Clusters[0].Problem != "" {
		return fmt.Errorf("not armed and watching: %+v", s)
	}
	healthy := 0
	for _, c := range s.Clusters[0].Checks {
		healthy += c.Healthy
	}
	if nodes := s.Clusters[0].Nodes; nodes != b.Nodes || healthy != b.Nodes {
		return fmt.Errorf("%d Nodes seen, %d of %d targets healthy", nodes, healthy, b.Nodes)
	}
	return nil
}

// writeConfig writes fenced.yaml, hosts.d with a BMC for every metal host, and
// an empty policies.d.
func (b *bench) writeConfig() error {
	kubeconfig, err := b.cluster.Kubeconfig(rig.FencedUser)
	if err != nil {
		return err
	}
	hosts, err := yaml.Marshal(map[string]any{"hosts": b.hosts()})
	if err != nil {
		return fmt.Errorf("encode hosts.d: %w", err)
	}
	text := fmt.Sprintf(configuration, clusterName, kubeconfig, b.path("fenced.sock"), 2*b.Samples+b.Together+1)
	files := map[string][]byte{"fenced.yaml": []byte(text), "hosts.d/hosts.yaml": hosts, "password": []byte(password)}
	for _, dir := range []string{"hosts.d", "policies.d"} {
		if err := os.Mkdir(b.path(dir), 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	for name, data := range files {
		if err := os.WriteFile(b.path(name), data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) hosts() []any {
	var hosts []any
	add := func(node, address string) {
		hosts = append(hosts, map[string]any{
			"node": node, "bmc": map[string]any{"address": address, "username": user, "passwordFile": b.path("password")},
		})
	}
	for i, n := range b.fleet.metal {
		add(n.Name, "ipmi://"+b.metal.targets[i].relay.Addr())
	}
	for i, name := range b.fleet.others {
		add(name, b.metal.decoy.address(i))
	}
	return hosts
}
