package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is how one cluster is reached.
type Config struct {
	Name       string
	Kubeconfig string   // re-read when the file changes
	Namespaces []string // where Machines, checks and BareMetalHosts live; empty = all
	// FreshEvery is how often the view is compared with the API, and the
	// kubeconfig with what was read of it.
	FreshEvery time.Duration
}

const (
	requestTimeout = 5 * time.Second  // one uncached read or write
	outageAfter    = 60 * time.Second // a longer blindness ends in a quiet period // I16
	qps, burst     = 200, 400
)

// Cluster is the view of one cluster and the door for writes to it. Make it
// with New; Run keeps the view.
type Cluster struct {
	cfg     Config
	log     *zap.Logger
	changed chan struct{}
	listed  chan struct{} // a full list came: keepFresh asks at once
	fresh   freshness

	mu      sync.Mutex
	clients *clients
	stores  []*store
	cached  cachedSnapshot
}

// clients are the connections made from one reading of the kubeconfig.
type clients struct {
	typed   kubernetes.Interface // protobuf
	dynamic dynamic.Interface
	file    fileStamp
}

type fileStamp struct {
	size int64
	mod  time.Time
}

// New reads the kubeconfig and prepares the view. It talks to nobody.
func New(cfg Config, log *zap.Logger) (*Cluster, error) {
	c := &Cluster{cfg: cfg, log: log.Named("k8swatch").With(zap.String("cluster", cfg.Name)),
		changed: make(chan struct{}, 1), listed: make(chan struct{}, 1)}
	if cfg.Kubeconfig == "" { // client-go would take the pod it runs in, or localhost
		return nil, fmt.Errorf("cluster %q names no kubeconfig", cfg.Name)
	}
	if cfg.FreshEvery <= 0 {
		return nil, errors.New("the interval of freshness checks must be positive")
	}
	cl, err := c.connect()
	if err != nil {
		return nil, err
	}
	c.clients, c.stores = cl, c.newStores(cfg.Namespaces)
	return c, nil
}

// connect makes clients from the kubeconfig as it is now.
func (c *Cluster) connect() (*clients, error) {
	stamp, err := stampOf(c.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	base, err := clientcmd.BuildConfigFromFlags("", c.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	base.QPS, base.Burst, base.UserAgent = qps, burst, "fenced"
	base.Wrap(func(rt http.RoundTripper) http.RoundTripper { return guarded{rt} })
	hc, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	// An API server does not redirect; following would hand our token to whoever is named.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	proto := rest.CopyConfig(base)
	proto.ContentType, proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfigAndClient(proto, hc)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	dyn, err := dynamic.NewForConfigAndClient(base, hc)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	return &clients{typed: typed, dynamic: dyn, file: stamp}, nil
}

func stampOf(file string) (fileStamp, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return fileStamp{}, err
	}
	return fileStamp{size: fi.Size(), mod: fi.ModTime()}, nil
}

func (c *Cluster) api() *clients {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clients
}

// Run keeps the view until ctx ends. It survives outages of the API, CRDs that
// are missing, come or go, and a kubeconfig that is replaced.
func (c *Cluster) Run(ctx context.Context) error {
	c.fresh.mu.Lock()
	c.fresh.start = time.Now()
	c.fresh.mu.Unlock()
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		var g sync.WaitGroup
		c.startReflectors(watching, &g)
		g.Go(func() { c.keepFresh(watching, stop) })
		c.untilReplaced(watching)
		stop()
		g.Wait()
	}
	return nil
}

// untilReplaced returns when ctx ends or the kubeconfig was replaced by one
// that can be used.
func (c *Cluster) untilReplaced(ctx context.Context) {
	tick := time.NewTicker(c.cfg.FreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if stamp, err := stampOf(c.cfg.Kubeconfig); err != nil || stamp == c.api().file {
			continue // a file in the middle of being replaced is looked at again
		}
		cl, err := c.connect()
		if err != nil {
			c.log.Warn("the changed kubeconfig cannot be used; the old one stays", zap.Error(err))
			continue
		}
		c.mu.Lock()
		c.clients = cl
		c.mu.Unlock()
		c.log.Info("the kubeconfig was read again")
		return
	}
}

// Changed signals, at most once until it is read, that the view changed.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

func (c *Cluster) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
