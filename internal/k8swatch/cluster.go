package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/policy"
)

// Config is how one cluster is reached.
type Config struct {
	Name string
	// Kubeconfig leads to the workload API: Nodes, Leases, Pods, and what runs in
	// that cluster. It is read again when the file changes.
	Kubeconfig string
	// Guard refuses a kubeconfig that others could have written, before each reading;
	// nil refuses none.
	Guard      func(path string) error
	Namespaces []string // where Machines, checks and BareMetalHosts live; empty = all
	Management ManagementConfig
	// FreshEvery is how often the view is compared with the API, and a kubeconfig
	// with what was read of it.
	FreshEvery time.Duration
	// DeleteControlPlaneMachines: also a control-plane Machine may be deleted, if
	// a controller that recreates it owns it.
	DeleteControlPlaneMachines bool
	// Checks are those from files: the requests of their templates are watched, too.
	Checks []policy.Check
}

// ManagementConfig is where the Cluster API keeps the Machines and the checks
// of the cluster.
type ManagementConfig struct {
	Kubeconfig  string // empty = the workload API has them
	Namespace   string // empty = Config.Namespaces
	ClusterName string // restricts to one Cluster; empty = the only one
}

// Cluster is the view of one cluster and the door for writes to it. Make it
// with New; Run keeps the view.
type Cluster struct {
	cfg     Config
	log     *zap.Logger
	changed chan struct{}
	journal journal
	// work is the workload API, manage the management API: the same one where
	// there is only one.
	work, manage *side
	requests     requestKinds
	fresh        freshness
	announcer    announcer
	barred       bool // of the Cluster API nothing is judged; only Changes knows
}

// New reads the kubeconfigs and prepares the view. It talks to nobody.
func New(cfg Config, log *zap.Logger) (*Cluster, error) {
	if cfg.FreshEvery <= 0 {
		return nil, errors.New("the interval of freshness checks must be positive")
	}
	c := newCluster(cfg, log)
	for _, s := range c.sides() {
		if s.kubeconfig == "" { // client-go would take the pod it runs in, or localhost
			return nil, fmt.Errorf("cluster %q names no kubeconfig", cfg.Name)
		}
		cl, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.clients = cl
	}
	return c, nil
}

// newCluster is a Cluster that is not connected yet.
func newCluster(cfg Config, log *zap.Logger) *Cluster {
	c := &Cluster{cfg: cfg, log: log.Named("k8swatch").With(zap.String("cluster", cfg.Name)), changed: make(chan struct{}, 1)}
	c.requests.init()
	c.work = newSide(c, "workload", cfg.Kubeconfig)
	c.manage = c.work
	if cfg.Management.Kubeconfig != "" {
		c.manage = newSide(c, "management", cfg.Management.Kubeconfig)
	}
	c.addStores()
	return c
}

// sides are the API servers of the cluster.
func (c *Cluster) sides() []*side {
	if c.manage == c.work {
		return []*side{c.work}
	}
	return []*side{c.work, c.manage}
}

// Run keeps the view until ctx ends. It survives outages of the API, CRDs that
// are missing, come or go, and a kubeconfig that is replaced.
func (c *Cluster) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the stores keep what matters of client-go's errors
	c.fresh.begin(time.Now())
	var g sync.WaitGroup
	for _, s := range c.sides() {
		g.Go(func() { s.run(ctx) })
	}
	g.Go(func() { c.keepRequests(ctx) })
	g.Wait()
	return nil
}

// Changed signals, at most once until it is read, that the view changed.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Changes gives every object that came, changed or went since the last call,
// each once, and removals first. After a start that is everything. It is for
// one caller.
func (c *Cluster) Changes() []policy.Change {
	why := c.mixed()
	if (why != "") != c.barred {
		c.barred = why != ""
		c.tellAgain()
	}
	list := c.journal.drain()
	for i := range list {
		if c.barred {
			bar(&list[i], why)
		}
		if check, ok := list[i].Value.(*policy.Check); ok {
			list[i].Value = c.requests.gate(check)
		}
	}
	return list
}

func (c *Cluster) notify() { signal(c.changed) }

// signal tells a channel that holds one message; one that waits is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
