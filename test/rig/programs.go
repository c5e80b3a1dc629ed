package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

var errNotRunning = errors.New("the API server is not running")

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	p, err := c.run(&c.etcd, c.bin["etcd"], c.etcdArgs())
	if err != nil {
		return err
	}
	return c.await(ctx, p, "http://"+c.etcdPort.address()+"/health", nil)
}

// StartAPIServer starts the API server, and returns when it is ready. After a stop it has the same port
// and the same data.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	p, err := c.run(&c.api, c.bin["kube-apiserver"], c.apiServerArgs())
	if err != nil {
		return err
	}
	// /readyz needs an administrator's certificate.
	admin, err := c.ca.User("rig", []string{AdminGroup})
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(admin.Cert, admin.Key)
	if err != nil {
		return fmt.Errorf("load the administrator's certificate: %w", err)
	}
	return c.await(ctx, p, c.URL()+"/readyz", &cert)
}

func (c *ControlPlane) startManager(ctx context.Context) error {
	if c.standIn != nil {
		c.watchHeartbeats()
		return nil
	}
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager", AdminGroup)
	if err != nil {
		return err
	}
	p, err := c.run(&c.manager, c.bin["kube-controller-manager"], c.controllerManagerArgs(kubeconfig, c.opts))
	if err != nil {
		return err
	}
	return c.await(ctx, p, "https://"+c.managerPort.address()+"/healthz", nil)
}

// StartScheduler starts a kube-scheduler, and returns when it is ready. Stop ends it. Without it pods
// stay where a test binds them.
func (c *ControlPlane) StartScheduler(ctx context.Context) (err error) {
	bin, err := scheduler.cached(ctx, c.opts.Progress)
	if err != nil {
		return err
	}
	if c.schedulerPort, err = reservePort(); err != nil {
		return err
	}
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler", AdminGroup)
	if err != nil {
		return err
	}
	p, err := c.run(&c.scheduler, bin, []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.schedulerPort.number), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--leader-elect=false", "--profiling=false",
	})
	if err != nil {
		return err
	}
	return c.await(ctx, p, "https://"+c.schedulerPort.address()+"/healthz", nil)
}

// StopAPIServer kills the API server: connections are reset, and new ones refused. etcd and the
// controller manager continue. StartAPIServer starts it again.
func (c *ControlPlane) StopAPIServer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepFromPool()
	c.api.kill()
	c.api = nil
}

// FreezeAPIServer stops the API server, as on a host that hangs: connections stay open and nothing
// answers. ThawAPIServer ends that.
func (c *ControlPlane) FreezeAPIServer() error { return c.withAPIServer((*process).freeze) }

// ThawAPIServer continues a frozen API server. It answers the requests that waited.
func (c *ControlPlane) ThawAPIServer() error { return c.withAPIServer((*process).thaw) }

func (c *ControlPlane) withAPIServer(do func(*process) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api == nil {
		return errNotRunning
	}
	c.keepFromPool()
	return do(c.api)
}

// PIDs returns the process IDs of the running API server and of etcd.
func (c *ControlPlane) PIDs() (apiServer, etcd int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api == nil || c.etcd == nil {
		return 0, 0, errNotRunning
	}
	return c.api.cmd.Process.Pid, c.etcd.cmd.Process.Pid, nil
}

// await requests url until the answer is 200, the process ends, or ctx ends.
func (c *ControlPlane) await(ctx context.Context, p *process, url string, cert *tls.Certificate) error {
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: conf}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	for {
		if ok := answers(ctx, client, url); ok {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while it started (%s)%s", p.name, p.cmd.ProcessState, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be ready: %w%s", p.name, ctx.Err(), p.tail())
		case <-time.After(300 * time.Millisecond): // each answer of an API server that is not ready is a hundred checks
		}
	}
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // only the status is needed, and the connection again
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// auditPolicy logs one line for each write, and for a deletion also the request's
// body (its preconditions). It leaves out reads and heartbeats, because there are too many.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
%s- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
  namespaces: [kube-node-lease]
- level: Request
  verbs: [delete, deletecollection]
- level: Metadata
`

// controllers are the controllers that the controller manager runs. fenced depends on node health,
// taints and the pods of lost Nodes; the others make namespaces, pods, tokens and aggregated rights usable. None of them deletes
// a Node: only the cloud node controller does that.
var controllers = []string{
	"node-lifecycle-controller",
	"taint-eviction-controller",
	"pod-garbage-collector-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"clusterrole-aggregation-controller",
}

func (c *ControlPlane) etcdArgs() []string {
	peer := "http://" + c.peerPort.address()
	return etcdArgs(c.file("etcd"), "http://"+c.etcdPort.address(), peer, "--initial-cluster=default="+peer)
}

func (c *ControlPlane) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=http://" + c.etcdPort.address(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort.number), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		// Node keeps each kubelet to its own Node, RBAC keeps fenced to its role.
		"--authorization-mode=Node,RBAC",
		"--audit-policy-file=" + c.file("audit-policy.yaml"), "--audit-log-path=" + c.file("audit.log"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("sa.crt"), "--service-account-signing-key-file=" + c.file("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/24",
		"--endpoint-reconciler-type=none", // loopback is no valid endpoint, so the reconciler would only log errors
		"--profiling=false",
	}
	if c.opts.NodeRestriction {
		args = append(args, "--enable-admission-plugins=NodeRestriction")
	}
	return args
}

func (c *ControlPlane) controllerManagerArgs(kubeconfig string, o Options) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.managerPort.number), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--leader-elect=false",
		"--controllers=" + strings.Join(controllers, ","),
		"--node-monitor-period=" + (time.Second / 2).String(),
		"--node-monitor-grace-period=" + o.GracePeriod.String(),
		"--node-startup-grace-period=" + max(o.GracePeriod, 10*time.Second).String(),
		"--service-account-private-key-file=" + c.file("sa.key"), "--root-ca-file=" + c.file("ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--profiling=false",
	}
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir.path, name) }

func (c *ControlPlane) writeAuditPolicy() error {
	reads := ""
	if user := c.opts.AuditReads; user != "" {
		reads = fmt.Sprintf("- level: Metadata\n  users: [%s]\n  verbs: [get, list]\n", user)
	}
	return WriteFiles(c.dir.path, map[string]string{"audit-policy.yaml": fmt.Sprintf(auditPolicy, reads)})
}
