package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fenced/fenced/test/rig"
)

// MetalPool is the pool of a worker that names none, and what Metal selects.
const MetalPool = "metal"

// poolLabel is on every Machine and on its Node, for the selectors of checks.
const poolLabel = "scene/pool"

// Options describe the environment.
type Options struct {
	Workers []Spec
	// Machines is the kind of the workers' Machines; OpenShift's if empty.
	Machines Machines
	// CRDs are the sets that the Machines and the checks need; rig's own choice
	// if nil.
	CRDs []rig.CRDs
	// Apart puts the Nodes on a separate API server, without any CRDs.
	Apart bool
	// Tokens: a management API of its own has a controller manager, too, which makes tokens of ServiceAccounts.
	Tokens bool
	// Checks are OpenShift's MachineHealthChecks; if nil and the Machines are OpenShift's,
	// Metal("2s").
	Checks []rig.Check
	// ClusterChecks are the MachineHealthChecks of the Cluster API, in the Cluster
	// ClusterName.
	ClusterChecks []rig.CAPICheck
	// NodeChecks are NodeHealthChecks.
	NodeChecks []rig.NodeCheck
	// Policies are the files of policies.d, by name.
	Policies map[string]string
	// Mode is the mode of the cluster; evaluate if empty. fenced has the rights for it.
	Mode string
	// Metal3Requests: fenced carries out Metal3Remediations.
	Metal3Requests bool
	// Set are keys of fenced.yaml, KEY=VALUE, in addition to those of a scene.
	Set []string
	// Programs were built by Build.
	Programs Programs
	// GracePeriod is the time without a heartbeat after which the controller
	// manager sets a Node to Unknown.
	GracePeriod time.Duration
	// BootDelay is the time from power to a running kubelet; 1 s if zero.
	BootDelay time.Duration
	// LeaseEvery is the time between two heartbeats of a kubelet; 1 s if zero.
	LeaseEvery time.Duration
	// LeaseDuration is what a Lease of a kubelet says of itself; 40 s if zero.
	LeaseDuration time.Duration
	// BMCSessions is how many sessions an IPMI BMC has; 4 if zero.
	BMCSessions int
	// Progress receives the progress of a first build; io.Discard if nil.
	Progress io.Writer
	// StandIn serves the API in place of the real programs; see rig.Options.
	StandIn func(audit io.Writer) (rig.API, error)
	// Assets are directories with programs of the control plane; see rig.Options.
	Assets []string
	// Pool lends the control planes; the scene starts its own if nil. When Stop is called, no program
	// outside of the scene may know their addresses.
	Pool *rig.Pool
}

// Metal is the check of all bare-metal workers: it asks for a power cycle when
// Ready is Unknown or False for as long as timeout.
func Metal(timeout string) rig.Check {
	return rig.Check{
		Name: "workers", Strategy: rig.BareMetalStrategy, Match: Pool(MetalPool), Conditions: rig.NotReadyFor(timeout),
	}
}

// Pool is the selector of the Machines, and of the Nodes, of one pool.
func Pool(name string) map[string]string { return map[string]string{poolLabel: name} }

// Scene is a control plane with workers, on which a fenced can run.
type Scene struct {
	// Cluster is the workload API, with the Nodes.
	Cluster *rig.ControlPlane
	// Management is the API with Machines, checks and hosts. It is Cluster, unless
	// Options.Apart is set.
	Management *rig.ControlPlane
	Workers    []*Worker

	opts Options
	dir  string
	keep bool            // whether to keep the content of dir
	life context.Context // ends with Stop
	stop context.CancelFunc
	wg   sync.WaitGroup // kubelets, and the provider of the Cluster API

	clusterAPI *rig.ClusterAPI // nil unless the Machines are ManagedClusterAPI

	mu      sync.Mutex
	daemons []*Daemon
}

// New starts the control plane and the workers, waits until each Node is Ready,
// adds its labels and taints, and creates the Machines, hosts and checks. No
// fenced runs yet. After an error everything is stopped, and the logs are kept.
func New(ctx context.Context, o Options) (*Scene, error) {
	if o.Checks == nil && o.Machines == OpenShift {
		o.Checks = []rig.Check{Metal("2s")}
	}
	s := &Scene{opts: o}
	var err error
	if s.dir, err = os.MkdirTemp("", "fenced-scene-"); err != nil {
		return nil, fmt.Errorf("make the directory of the scene: %w", err)
	}
	s.life, s.stop = context.WithCancel(context.Background()) // the scene outlives ctx, until Stop
	if err := s.build(ctx, s.life); err != nil {
		logs := s.KeepLogs()
		s.Stop()
		return nil, fmt.Errorf("set the scene: %w\nthe logs are kept in %s", err, logs)
	}
	return s, nil
}

func (s *Scene) build(ctx, life context.Context) (err error) {
	if err := s.startAPIs(ctx); err != nil {
		return err
	}
	if err := s.createOwners(ctx); err != nil {
		return err
	}
	for i, spec := range s.opts.Workers {
		w, err := s.start(life, spec, i)
		if err != nil {
			return err
		}
		s.Workers = append(s.Workers, w)
	}
	for _, w := range s.Workers {
		if err := s.enrol(ctx, w); err != nil {
			return err
		}
		if w.Etcd {
			if err := s.runEtcd(ctx, life, w); err != nil {
				return err
			}
		}
	}
	if s.opts.Machines == ManagedClusterAPI {
		if err := s.awaitMachines(ctx); err != nil {
			return err
		}
	}
	if err := s.createChecks(ctx); err != nil {
		return err
	}
	return s.writeConfig()
}

// startAPIs starts one control plane for everything, or two.
func (s *Scene) startAPIs(ctx context.Context) error {
	wanted := []rig.Options{{CRDs: s.opts.CRDs}}
	if s.opts.Apart {
		wanted = append(wanted, rig.Options{CRDs: []rig.CRDs{}})
		wanted[0].NoManager = s.opts.Machines != ManagedClusterAPI && !s.opts.Tokens // it has no Nodes to manage
	}
	for i := range wanted {
		wanted[i].GracePeriod, wanted[i].Progress, wanted[i].Dir = s.opts.GracePeriod, s.opts.Progress, s.dir
		wanted[i].StandIn, wanted[i].Assets = s.opts.StandIn, s.opts.Assets
	}
	start := rig.StartAll
	if s.opts.Pool != nil {
		start = s.opts.Pool.StartAll
	}
	planes, err := start(ctx, wanted...)
	if err != nil {
		return err
	}
	s.Management, s.Cluster = planes[0], planes[len(planes)-1]
	return s.limitRights(ctx)
}

// limitRights leaves fenced the rights that are documented for its mode, and no others.
func (s *Scene) limitRights(ctx context.Context) error {
	if s.opts.Mode != "respond" {
		return nil
	}
	for _, c := range s.planes() {
		if err := c.ApplyConfig(ctx, "kubernetes/respond.yaml"); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scene) Worker(name string) *Worker {
	for _, w := range s.Workers {
		if w.Name == name {
			return w
		}
	}
	panic("scene: no worker is called " + name) // an error in the test
}

// KeepLogs makes Stop keep the logs, configuration and state of the scene, and
// returns their directory.
func (s *Scene) KeepLogs() string {
	s.keep = true
	for _, c := range s.planes() {
		if logs := c.KeepLogs(); filepath.Dir(logs) != s.dir { // of a pool
			_ = os.Symlink(logs, s.path(filepath.Base(logs)))
		}
	}
	return s.dir
}

// Stop ends the daemons, the workers and the control plane, and removes what they
// wrote, unless KeepLogs was called. It may be called twice.
func (s *Scene) Stop() {
	s.mu.Lock()
	running := s.daemons
	s.mu.Unlock()
	for _, d := range running {
		d.Kill()
	}
	s.stop()
	s.wg.Wait()
	for _, w := range s.Workers {
		w.stopBMC()
	}
	if s.clusterAPI != nil {
		s.clusterAPI.Stop()
	}
	for _, c := range s.planes() {
		c.Stop()
	}
	if !s.keep {
		_ = os.RemoveAll(s.dir) // errors are harmless in the temporary directory
	}
}

// Died returns the error of a part that ended unexpectedly, or nil.
func (s *Scene) Died() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range s.planes() {
		errs = append(errs, c.Died())
	}
	if s.clusterAPI != nil {
		errs = append(errs, s.clusterAPI.Died())
	}
	for _, d := range s.daemons {
		select {
		case <-d.done:
			if !d.wanted.Load() {
				errs = append(errs, fmt.Errorf("fenced ended (%s)", d.cmd.ProcessState))
			}
		default:
		}
	}
	return errors.Join(errs...)
}

// planes returns the control planes that run, each once.
func (s *Scene) planes() []*rig.ControlPlane {
	switch {
	case s.Cluster == nil:
		return nil
	case s.Management == s.Cluster:
		return []*rig.ControlPlane{s.Cluster}
	}
	return []*rig.ControlPlane{s.Cluster, s.Management}
}

func (s *Scene) path(name string) string { return filepath.Join(s.dir, name) }
