package rig

import (
	"context"
	"fmt"
)

// StartScheduler starts a kube-scheduler, and returns when it is ready. Stop ends it. Without it pods
// stay where a test binds them.
func (c *ControlPlane) StartScheduler(ctx context.Context) (err error) {
	if c.schedulerPort, err = reservePort(); err != nil {
		return err
	}
	kubeconfig, err := c.Kubeconfig("system:kube-scheduler", AdminGroup)
	if err != nil {
		return err
	}
	p, err := c.run("kube-scheduler", []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.schedulerPort.number), "--permit-port-sharing",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--leader-elect=false", "--profiling=false",
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.scheduler = p
	c.mu.Unlock()
	return c.await(ctx, p, "https://"+c.schedulerPort.address()+"/healthz", nil)
}
