package view

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
)

// Config is how to reach one cluster, and what of it is watched.
type Config struct {
	Name string
	// StoreID identifies this installation, all instances with one store, as a holder
	// of Leases on Nodes.
	StoreID string
	// Kubeconfig is the file for the workload API: Nodes, Leases, Pods, and what
	// runs in that cluster. It is read again when it changes.
	Kubeconfig string
	// Guard checks a kubeconfig before each reading and refuses one that others
	// could have written; nil refuses none.
	Guard      func(path string) error
	Namespaces []string // where Machines, checks and BareMetalHosts live; empty = all
	Management ManagementConfig
	// FreshEvery is the interval at which the view is compared with the API, and a
	// kubeconfig with its last content.
	FreshEvery time.Duration
	// Metal3Remediations: fenced carries out the requests of this kind, too.
	Metal3Remediations bool
	// RequestNamespaces are those whose requests may be for any Node.
	RequestNamespaces []string
	// RemediateReadyNodes: a request may ask for the power cycle of a Node that is Ready.
	RemediateReadyNodes bool
	// Checks are the checks from files; the requests of their templates are
	// watched, too.
	Checks []policy.Check
}

// rules are the settings about namespaces.
func (c *Config) rules() *policy.Rules {
	return &policy.Rules{Namespaces: c.Namespaces, ManagementNamespace: c.Management.Namespace, ManagementApart: c.Management.Kubeconfig != "",
		RequestNamespaces: c.RequestNamespaces}
}

// ManagementConfig is where the Cluster API keeps the Machines and the checks of
// the cluster.
type ManagementConfig struct {
	Kubeconfig  string // empty = the workload API
	Namespace   string // empty = Config.Namespaces
	ClusterName string // the Cluster to use; empty = the only one
}

// RequestHolder begins the annotation of the requests that this installation holds for this
// cluster.
func (c Config) RequestHolder() string { return c.StoreID + "/" + c.Name + "/" }

// Cache is the view of one cluster. Create it with New; Run keeps it up to date.
type Cache struct {
	cfg     Config
	changed chan struct{}
	journal journal
	// work is the workload API, manage the management API. They are the same if
	// there is only one API.
	work, manage *side
	servers      client.Servers
	requests     requestKinds
	fresh        freshness
	withheld     bool // the Cluster API's objects are withheld; only Changes uses it
}

// New reads the kubeconfigs and prepares the view. It makes no requests.
func New(cfg Config, log *zap.Logger) (*Cache, error) {
	if cfg.FreshEvery <= 0 {
		return nil, errors.New("the interval of freshness checks must be positive")
	}
	c := newCache(cfg, log)
	for _, s := range c.sides() {
		if s.Kubeconfig == "" { // client-go would use in-cluster configuration, or localhost
			return nil, fmt.Errorf("cluster %q names no kubeconfig", cfg.Name)
		}
		if err := s.Connect(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newCache is a Cache that is not connected yet.
func newCache(cfg Config, log *zap.Logger) *Cache {
	c := &Cache{cfg: cfg, changed: make(chan struct{}, 1)}
	c.work = newSide(c, "workload", cfg.Kubeconfig, false, log)
	c.manage = c.work
	if cfg.Management.Kubeconfig != "" {
		c.manage = newSide(c, "management", cfg.Management.Kubeconfig, true, log)
	}
	c.servers = client.Servers{Work: c.work.Server, Manage: c.manage.Server, Served: c.served}
	c.requests.init()
	c.addStores()
	return c
}

// Servers are the API servers of the cluster, with the connections of the view.
func (c *Cache) Servers() *client.Servers { return &c.servers }

// sides are the API servers of the cluster.
func (c *Cache) sides() []*side {
	if c.manage == c.work {
		return []*side{c.work}
	}
	return []*side{c.work, c.manage}
}

// stores are those of all API servers.
func (c *Cache) stores() (all []*store) {
	for _, s := range c.sides() {
		all = append(all, s.watched()...)
	}
	return all
}

// Run keeps the view up to date until ctx ends. It survives API outages, CRDs
// that are missing, added or removed, and a kubeconfig that is replaced.
func (c *Cache) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the stores record client-go's errors
	c.fresh.markStart(time.Now())
	var g sync.WaitGroup
	for _, s := range c.sides() {
		g.Go(func() { s.run(ctx) })
	}
	g.Go(func() { c.keepRequests(ctx) })
	g.Wait()
}

func (c *Cache) notify() { live.Signal(c.changed) }
