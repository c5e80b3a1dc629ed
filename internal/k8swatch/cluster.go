package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
)

// Config is how to reach one cluster.
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
	// DeleteControlPlaneMachines allows the deletion of a control-plane Machine if
	// a controller that recreates it owns it.
	DeleteControlPlaneMachines bool
	// Metal3Remediations: fenced carries out the requests of this kind, too.
	Metal3Remediations bool
	// RequestNamespaces are those whose requests may be for any Node.
	RequestNamespaces []string
	// RemediateReadyNodes: a request may ask for the power cycle of a Node that is Ready.
	RemediateReadyNodes bool
	// ControllerNamespaces are those in which the leader Lease of another remediator counts, beside
	// the ones where they are installed by default.
	ControllerNamespaces []string
	// NeverRestore are patterns of further keys that a Node does not get back; see owned.go.
	NeverRestore []string
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

// Cluster holds the view of one cluster and does all writes to it. Create it with
// New; Run keeps the view up to date.
type Cluster struct {
	cfg     Config
	log     *zap.Logger
	changed chan struct{}
	journal journal
	// work is the workload API, manage the management API. They are the same if
	// there is only one API.
	work, manage   *side
	servers        client.Servers
	requests       requestKinds
	fresh          freshness
	shared         *client.SharedReads // what is the same for all looks of one moment
	leaders        *leaders
	writesRequests write.Requests
	*write.NodeLocks
	*write.Runs
	*write.Checks
	*write.Announcer
	*write.Events
	withheld bool // the Cluster API's objects are withheld; only Changes uses it
}

// New reads the kubeconfigs and prepares the view. It makes no requests.
func New(cfg Config, log *zap.Logger) (*Cluster, error) {
	if cfg.FreshEvery <= 0 {
		return nil, errors.New("the interval of freshness checks must be positive")
	}
	c := newCluster(cfg, log)
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

// newCluster is a Cluster that is not connected yet.
func newCluster(cfg Config, log *zap.Logger) *Cluster {
	c := &Cluster{cfg: cfg, log: log.Named("k8swatch").With(zap.String("cluster", cfg.Name)), changed: make(chan struct{}, 1), shared: client.NewSharedReads()}
	c.leaders = &leaders{leases: client.NewLeaseClock(), namespaces: cfg.ControllerNamespaces, log: c.log}
	c.work = newSide(c, "workload", cfg.Kubeconfig, false)
	c.manage = c.work
	if cfg.Management.Kubeconfig != "" {
		c.manage = newSide(c, "management", cfg.Management.Kubeconfig, true)
	}
	c.servers = client.Servers{Work: c.work.Server, Manage: c.manage.Server, Served: c.served}
	c.Events = write.NewEvents(&c.servers)
	c.writesRequests = write.NewRequests(&c.servers, cfg.requestHolder(), cfg.decodeRequest)
	c.NodeLocks = write.NewNodeLocks(c.work.Server, c.shared, c.leaders.leases, cfg.StoreID, c.writesRequests.Get)
	c.Runs, c.Checks, c.Announcer = write.NewRuns(&c.servers, cfg.NeverRestore), write.NewChecks(&c.servers), write.NewAnnouncer(c.work.Server)
	c.requests.init()
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

// Run keeps the view up to date until ctx ends. It survives API outages, CRDs
// that are missing, added or removed, and a kubeconfig that is replaced.
func (c *Cluster) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the stores record client-go's errors
	c.fresh.markStart(time.Now())
	var g sync.WaitGroup
	for _, s := range c.sides() {
		g.Go(func() { s.run(ctx) })
	}
	g.Go(func() { c.DeliverEvents(ctx) })
	g.Go(func() { c.keepRequests(ctx) })
	g.Wait()
	return nil
}

// Changed signals that the view changed, at most once until it is received.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

// Changes returns every object that was added, changed or deleted since the last
// call, each once, deletions first. The first call returns all objects. Only one
// caller may use it.
func (c *Cluster) Changes() []policy.Change {
	why := c.severalClusters()
	if (why != "") != c.withheld {
		c.withheld = why != ""
		c.journalClusterAPI()
	}
	list := c.journal.drain(func(id policy.ObjectID) bool {
		k := requestKind{c.work, schema.GroupKind{Group: client.GroupOf(id.APIVersion), Kind: id.Kind}}
		if id.OnManagementAPI {
			k.side = c.manage
		}
		return c.requests.counts(k, id.Namespace)
	})
	for i := range list {
		if c.withheld {
			withholdClusterAPI(&list[i], why)
		}
		if check, ok := list[i].Value.(*policy.Check); ok {
			list[i].Value = c.requests.gateCheck(check)
		}
	}
	return list
}

func (c *Cluster) notify() { signal(c.changed) }

// signal sends to a channel with a buffer of one, unless a signal is pending.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// What writes to the cluster; see package write.
type (
	Announcement = write.Announcement
	Handovers    = write.Handovers
)

// NewHandovers returns what makes the requests for other remediators in a cluster.
func NewHandovers(c *Cluster) Handovers {
	return write.NewHandovers(&c.servers, c.cfg.carriesOut, c.requests.gateCheck)
}

// CheckKubeconfig says whether a daemon could use a kubeconfig; see client.CheckKubeconfig.
func CheckKubeconfig(kubeconfig string) (secrets []string, err error) {
	return client.CheckKubeconfig(kubeconfig)
}

// LogTo sends to w what client-go logs by itself; see client.LogTo.
func LogTo(w io.Writer) { client.LogTo(w) }

// requestHolder begins the annotation of the requests that this installation holds for this
// cluster.
func (c Config) requestHolder() string { return c.StoreID + "/" + c.Name + "/" }
