package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
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
	// NeverRestore are patterns of further keys that a Node does not get back; see write/restore.go.
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

// requestHolder begins the annotation of the requests that this installation holds for this
// cluster.
func (c Config) requestHolder() string { return c.StoreID + "/" + c.Name + "/" }

// severalClusters returns why the Cluster API's objects cannot be evaluated; ""
// if they can. If there are several Clusters, the Nodes that we see belong to
// one. The Machines of the others would seem to have lost their Nodes, or be
// matched with a Node of the same name.
func (c *Cluster) severalClusters() string {
	var names []string
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup && s.Kind == "Cluster" {
			s.mu.Lock()
			for name := range s.items {
				names = append(names, name.namespace+"/"+name.name)
			}
			s.mu.Unlock()
		}
	}
	if len(names) < 2 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("Clusters %s and %s are both on this API, but the Nodes belong to one of them: set management.clusterName", names[0], names[1])
}

// withholdClusterAPI replaces objects of the Cluster API with an error, so that
// they are neither evaluated nor treated as absent.
func withholdClusterAPI(ch *policy.Change, why string) {
	if ch.Value == nil || client.GroupOf(ch.ID.APIVersion) != client.ClusterGroup {
		return
	}
	switch v := ch.Value.(type) {
	case *policy.Machine:
		ch.Value, ch.Err = nil, errors.New(why)
	case *policy.Check:
		barred := *v
		barred.Invalid = why
		ch.Value = &barred
	}
}

// journalClusterAPI journals all objects of the Cluster API again, after the
// reason to withhold them appeared or disappeared.
func (c *Cluster) journalClusterAPI() {
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup {
			s.journalAll()
		}
	}
}

// Requests writes what fenced tells the remediation requests that it carries out.
type Requests struct {
	write.Requests
	c *Cluster
}

// Requests returns what writes to the requests of the cluster.
func (c *Cluster) Requests() Requests { return Requests{c.writesRequests, c} }

// TemplateAttempts is how many power cycles fenced's own template of a check allows; see write.Handovers.
func (r Requests) TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error) {
	return NewHandovers(r.c).TemplateAttempts(ctx, check, t, target)
}

// ClearStale removes the annotation that requests the remediation of a Machine
// whose Node is Ready without it. It does nothing if another remediator may have begun:
// without the annotation that one would leave the host off. // I22
func (r Requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	who, err := r.c.leaders.at(ctx, r.c.work.API(), machineAPINamespace, powerCycleLeader)
	if err != nil || who != "" {
		return false, err
	}
	u, err := r.c.servers.Machine(ctx, t)
	switch {
	case client.IsGone(err, t.Machine), err == nil && string(u.GetUID()) != t.MachineUID:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
	}
	for key := range u.GetAnnotations() {
		if strings.HasPrefix(key, startedMarks) {
			return false, fmt.Errorf("clear the request of Machine %s: its annotation %s says that another remediator has begun; "+
				"let that one finish, or remove its annotations", t.MachineKey(), key)
		}
	}
	n, err := r.c.work.API().Node(ctx, t.Node)
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", t.Node, err)
	}
	if !policyNode(n).Ready() {
		return false, nil
	}
	err = r.Clear(ctx, t)
	return err == nil, err
}

// startedMarks begins the annotations that OpenShift's bare-metal actuator leaves on a
// Machine whose host it has begun to switch.
const startedMarks = "remediation.metal3.io/"

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
