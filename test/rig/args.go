package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditPolicy logs one line for each write, and for a deletion also the request's
// body (its preconditions). It leaves out reads and heartbeats, because there are too many.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
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
	client, peer := "http://"+c.etcdPort.address(), "http://"+c.peerPort.address()
	return []string{
		"--data-dir=" + c.file("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--socket-reuse-port",
		"--log-level=warn",
		// The data is deleted at the end, and a killed process loses nothing that the kernel has.
		"--unsafe-no-fsync",
	}
}

func (c *ControlPlane) apiServerArgs() []string {
	return []string{
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
	if err := os.WriteFile(c.file("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	return nil
}
