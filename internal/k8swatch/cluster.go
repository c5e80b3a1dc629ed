package k8swatch

import (
	"context"
	"io"
	"sync"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Config is how to reach one cluster, and what may be done there.
type Config struct {
	view.Config
	// DeleteControlPlaneMachines allows the deletion of a control-plane Machine if
	// a controller that recreates it owns it.
	DeleteControlPlaneMachines bool
	// ControllerNamespaces are those in which the leader Lease of another remediator counts, beside
	// the ones where they are installed by default.
	ControllerNamespaces []string
	// NeverRestore are patterns of further keys that a Node does not get back; see write/restore.go.
	NeverRestore []string
}

// Cluster joins the view of one cluster, the looks past it, and all writes to it. Create it with
// New; Run keeps the view up to date.
type Cluster struct {
	*view.Cache
	*write.NodeLocks
	*write.Runs
	*write.Checks
	*write.Announcer
	*write.Events
	servers  *client.Servers
	reader   *look.Reader
	requests write.Requests
}

// New reads the kubeconfigs and prepares the view. It makes no requests.
func New(cfg Config, log *zap.Logger) (*Cluster, error) {
	log = log.Named("k8swatch").With(zap.String("cluster", cfg.Name))
	cache, err := view.New(cfg.Config, log)
	if err != nil {
		return nil, err
	}
	servers, shared, leases := cache.Servers(), client.NewSharedReads(), client.NewLeaseClock()
	requests := write.NewRequests(servers, cfg.RequestHolder(), cfg.DecodeRequest)
	c := &Cluster{
		Cache: cache, servers: servers, requests: requests,
		NodeLocks: write.NewNodeLocks(servers.Work, shared, leases, cfg.StoreID, requests.Get),
		Runs:      write.NewRuns(servers, cfg.NeverRestore), Checks: write.NewChecks(servers),
		Announcer: write.NewAnnouncer(servers.Work), Events: write.NewEvents(servers),
	}
	c.reader = &look.Reader{
		Servers: servers, View: cache, Leaders: &look.Leaders{Leases: leases, Namespaces: cfg.ControllerNamespaces, Log: log}, Shared: shared,
		Locks: c.NodeLocks, Request: requests.Get, Restored: c.Restored, IsMarked: write.IsMarked, DeleteControlPlaneMachines: cfg.DeleteControlPlaneMachines,
	}
	return c, nil
}

// Run keeps the view up to date and delivers Events until ctx ends. It survives API outages, CRDs
// that are missing, added or removed, and a kubeconfig that is replaced.
func (c *Cluster) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { c.Cache.Run(ctx) })
	g.Go(func() { c.DeliverEvents(ctx) })
	g.Wait()
	return nil
}

// Look reads what a step of a run needs, past the cache; see look.Reader.
func (c *Cluster) Look(ctx context.Context, run remediate.Run, backups [][]byte) look.Look {
	return c.reader.Look(ctx, run, backups)
}

// Pods lists the pods that are bound to a Node; see look.Reader.
func (c *Cluster) Pods(ctx context.Context, node string) (names []string, more bool, err error) {
	return c.reader.Pods(ctx, node)
}

// ControllerAlive reports whether the controller of checks of this kind is alive; see look.Reader.
func (c *Cluster) ControllerAlive(ctx context.Context, id policy.CheckID) (remediate.Answer, error) {
	return c.reader.ControllerAlive(ctx, id)
}

// Requests writes what fenced tells the remediation requests that it carries out.
type Requests struct {
	write.Requests
	c *Cluster
}

// Requests returns what writes to the requests of the cluster.
func (c *Cluster) Requests() Requests { return Requests{c.requests, c} }

// TemplateAttempts is how many power cycles fenced's own template of a check allows; see write.Handovers.
func (r Requests) TemplateAttempts(ctx context.Context, check *policy.Check, t policy.Template, target remediate.Target) (int, error) {
	return NewHandovers(r.c).TemplateAttempts(ctx, check, t, target)
}

// ClearStale removes the annotation that requests the remediation of a Machine
// whose Node is Ready without it, if no other remediator may have begun. // I22
func (r Requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	if may, err := r.c.reader.MayClear(ctx, t); err != nil || !may {
		return false, err
	}
	err = r.Clear(ctx, t)
	return err == nil, err
}

// What writes to the cluster; see package write.
type (
	Announcement = write.Announcement
	Handovers    = write.Handovers
)

// NewHandovers returns what makes the requests for other remediators in a cluster.
func NewHandovers(c *Cluster) Handovers {
	return write.NewHandovers(c.servers, c.CarriesOut, c.Gate)
}

// CheckKubeconfig says whether a daemon could use a kubeconfig; see client.CheckKubeconfig.
func CheckKubeconfig(kubeconfig string) (secrets []string, err error) {
	return client.CheckKubeconfig(kubeconfig)
}

// LogTo sends to w what client-go logs by itself; see client.LogTo.
func LogTo(w io.Writer) { client.LogTo(w) }
