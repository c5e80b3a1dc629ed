package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"
)

var errNotRunning = errors.New("the API server is not running")

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	p, err := c.run("etcd", c.etcdArgs())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.etcd = p
	c.mu.Unlock()
	return c.await(ctx, p, "http://"+c.etcdPort.address()+"/health", nil)
}

func (c *ControlPlane) startManager(ctx context.Context) error {
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager", AdminGroup)
	if err != nil {
		return err
	}
	p, err := c.run("kube-controller-manager", c.controllerManagerArgs(kubeconfig, c.opts))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.manager = p
	c.mu.Unlock()
	return c.await(ctx, p, "https://"+c.managerPort.address()+"/healthz", nil)
}

// StartAPIServer starts the API server, and returns when it is ready. After a stop it has the same port
// and the same data.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	p, err := c.run("kube-apiserver", c.apiServerArgs())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.api = p
	c.mu.Unlock()
	// /readyz needs an administrator's certificate.
	admin, err := c.ca.user("rig", []string{AdminGroup})
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(admin.cert, admin.key)
	if err != nil {
		return fmt.Errorf("load the administrator's certificate: %w", err)
	}
	return c.await(ctx, p, c.URL()+"/readyz", &cert)
}

// StopAPIServer kills the API server: connections are reset, and new ones refused. etcd and the
// controller manager continue. StartAPIServer starts it again.
func (c *ControlPlane) StopAPIServer() {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	roots.AddCert(c.ca.cert)
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}
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
		case <-time.After(50 * time.Millisecond):
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
	_ = resp.Body.Close() // only the status is needed
	return resp.StatusCode == http.StatusOK
}
