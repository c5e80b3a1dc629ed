package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/remediate"
)

// Server is one API server of a cluster.
type Server struct {
	Name       string
	Kubeconfig string
	apart      bool // a management API of its own
	guard      func(path string) error
	Log        *zap.Logger
	clock      offset
	discovery  discovery

	mu   sync.Mutex
	conn *Conn
}

// NewServer is a server that is not connected yet. guard checks the kubeconfig before each reading; nil refuses none.
func NewServer(name, kubeconfig string, apart bool, guard func(path string) error, log *zap.Logger) *Server {
	return &Server{Name: name, Kubeconfig: kubeconfig, apart: apart, guard: guard, Log: log.With(zap.String("api", name)), discovery: discovery{reads: NewSharedReads()}}
}

// API returns the current connections.
func (s *Server) API() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// IsApart reports whether this is a management API of its own.
func (s *Server) IsApart() bool { return s.apart }

// Skew returns the API server's clock minus this host's; known is false until it was measured.
func (s *Server) Skew(now time.Time) (skew time.Duration, known bool) { return s.clock.current(now) }

// Address is the URL of the API server, as the kubeconfig has it now. It may hold a password.
func (s *Server) Address() (string, error) {
	base, err := load(s.Kubeconfig)
	if err != nil {
		return "", err
	}
	return base.Host, nil
}

// Unverified says whether the kubeconfig asks for no look at the certificate of its server.
func (s *Server) Unverified() (bool, error) {
	base, err := load(s.Kubeconfig)
	if err != nil {
		return false, err
	}
	return base.Insecure, nil
}

// Connect makes clients from the current kubeconfig.
func (s *Server) Connect() error {
	if s.guard != nil {
		if err := s.guard(s.Kubeconfig); err != nil {
			return fmt.Errorf("read kubeconfig %s: %w", s.Kubeconfig, err)
		}
	}
	cl, err := connect(s.Kubeconfig, &s.clock)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = cl
	return nil
}

// UntilReplaced returns when ctx ends or the kubeconfig was replaced by a usable one.
func (s *Server) UntilReplaced(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if stamp, err := stampOf(s.Kubeconfig); err != nil || stamp == s.API().file {
			continue // it may be in the middle of being replaced; check again
		}
		if err := s.Connect(); err != nil {
			s.Log.Warn("the changed kubeconfig cannot be used; the old one stays in use", zap.Error(err))
			continue
		}
		s.Log.Info("the kubeconfig was read again")
		return
	}
}

// Servers are the API servers of one cluster: the workload API, and the management API. They are the same
// if there is only one.
type Servers struct {
	Work, Manage *Server
	// Served returns where a resource of the Cluster API was found last.
	Served func(resource string) schema.GroupVersionResource
}

// Of returns the API server with the objects of an API version.
func (s *Servers) Of(apiVersion string) *Server {
	switch GroupOf(apiVersion) {
	case ClusterGroup, HostGroup:
		return s.Manage
	}
	return s.Work
}

// Machines returns the resource of a target's Machine. Records of older runs have
// no API version; they are of OpenShift.
func (s *Servers) Machines(t remediate.Target) dynamic.ResourceInterface {
	if GroupOf(t.MachineAPI) == ClusterGroup {
		return s.ClusterResource("machines", t.Namespace)
	}
	return s.Work.API().Dynamic.Resource(MachineGVR).Namespace(t.Namespace)
}

// Machine reads the Machine of a target with an uncached read.
func (s *Servers) Machine(ctx context.Context, t remediate.Target) (*unstructured.Unstructured, error) {
	group := MachineGroup
	if GroupOf(t.MachineAPI) == ClusterGroup {
		group = ClusterGroup
	}
	return ReadCustom(ctx, s.Machines(t), group, t.Namespace, t.Machine)
}

// ClusterResource is a resource of the Cluster API at the version that is served
// now. A run may have started at another.
func (s *Servers) ClusterResource(resource, namespace string) dynamic.ResourceInterface {
	return s.Manage.API().Dynamic.Resource(s.Served(resource)).Namespace(namespace)
}
