package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	freeport "github.com/fenced/fenced/test/port"
)

// ClusterAPINamespace is where the manager of the Cluster API has its Lease.
const ClusterAPINamespace = "capi-system"

// clusterAPIUser is the service account of the manager's manifests. The rig runs no Pods, so the
// manager has a certificate in that name.
const clusterAPIUser = "system:serviceaccount:" + ClusterAPINamespace + ":capi-manager"

// ClusterAPI is the Cluster API of a control plane: its CRDs in all their versions, its webhooks and
// its real manager. Providers are not part of it; for infrastructure and control plane see Provider.
type ClusterAPI struct {
	on      *ControlPlane
	bin     string // that of ClusterAPIBinary
	webhook string // its address

	mu      sync.Mutex
	manager *process
}

// StartClusterAPI installs the Cluster API and starts its manager, with the rights and the flags of its
// own manifests. It returns when the manager is the leader and its webhooks are asked.
func (c *ControlPlane) StartClusterAPI(ctx context.Context) (_ *ClusterAPI, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	a := &ClusterAPI{on: c}
	defer func() {
		if err != nil {
			a.Stop()
		}
	}()
	if a.bin, err = ClusterAPIBinary(ctx, c.opts.Progress); err != nil {
		return nil, err
	}
	if a.webhook, err = freeport.Free("tcp", "127.0.0.1"); err != nil {
		return nil, err
	}
	if err := a.install(ctx); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	if err := a.installWebhooks(ctx); err != nil {
		return nil, err
	}
	return a, wait(ctx, "the manager of the Cluster API to lead", func() (bool, error) { return a.leads(ctx) })
}

func (a *ClusterAPI) start(ctx context.Context) error {
	kubeconfig, err := a.on.Kubeconfig(clusterAPIUser, "system:serviceaccounts", "system:serviceaccounts:"+ClusterAPINamespace, "system:authenticated")
	if err != nil {
		return err
	}
	health, err := freeport.Free("tcp", "127.0.0.1")
	if err != nil {
		return err
	}
	_, webhookPort, err := net.SplitHostPort(a.webhook)
	if err != nil {
		return fmt.Errorf("start the manager of the Cluster API: %w", err)
	}
	p, err := startProcess(a.on.dir.path, filepath.Join(a.bin, clusterAPIManager), []string{
		"--kubeconfig=" + kubeconfig,
		// A manager that cannot renew its Lease in time ends: an API server may be that busy.
		"--leader-elect", "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m",
		"--webhook-port=" + webhookPort,
		"--webhook-cert-dir=" + a.on.dir.path, "--webhook-cert-name=server.crt", "--webhook-key-name=server.key",
		"--health-addr=" + health,
		"--diagnostics-address=0", "--insecure-diagnostics", // nothing listens
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.manager = p
	a.mu.Unlock()
	return a.on.await(ctx, p, "http://"+health+"/readyz", nil)
}

// leads reports whether the manager holds its Lease. Only then do its controllers run.
func (a *ClusterAPI) leads(ctx context.Context) (bool, error) {
	if err := a.Died(); err != nil {
		return false, err
	}
	lease, err := a.on.client.CoordinationV1().Leases(ClusterAPINamespace).Get(ctx, "controller-leader-election-capi", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "", nil
}

// Stop ends the manager. It may be called twice.
func (a *ClusterAPI) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manager.kill()
}

// Died returns the error of a manager that ended by itself, or nil.
func (a *ClusterAPI) Died() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.manager == nil {
		return nil
	}
	return a.manager.died()
}

// ConnectCluster gives the manager the kubeconfig of a Cluster, whose Nodes are on the API server nodes.
func (a *ClusterAPI) ConnectCluster(ctx context.Context, cluster string, nodes *ControlPlane) error {
	path, err := nodes.Kubeconfig("cluster-api", AdminGroup)
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the kubeconfig of Cluster %s: %w", cluster, err)
	}
	secret := object("v1", "Secret", cluster+"-kubeconfig", map[string]string{capiClusterLabel: cluster}, nil)
	secret.Object["type"] = "cluster.x-k8s.io/secret"
	secret.Object["stringData"] = map[string]any{"value": string(kubeconfig)}
	return a.on.apply(ctx, secret)
}
