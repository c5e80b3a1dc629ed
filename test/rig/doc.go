// Package rig is a real Kubernetes control plane on loopback, with simulated
// kubelets, for the tests and for the demo. Nothing in it is a fake of the API:
// etcd, kube-apiserver and kube-controller-manager are built from their Go
// modules (test/controlplane) once, kept in the user's cache directory, and run
// as processes that die with this one.
//
//	Binaries  finds or builds the three programs; `go run ./test/rig/warm` does only that
//	Start     etcd + API server (RBAC, audit log, true TLS) + controller manager, about 5 s
//	StartAll  several at once: a management API and a workload API
//	CRDs      what is installed: OpenShift on bare metal unless Options say otherwise
//	Create*   Machines, MachineSets, checks, BareMetalHosts, Nodes, Leases as real clusters have them;
//	          those called CAPI are of Cluster API, in the shape of the one version that is served
//	Kubelet   one simulated host: registers its Node when its BMC says On, renews its Lease, can hang
//	Deletions what the API server's own audit log says was deleted, by whom and when
//
// What is true of a real cluster holds here: only the controller manager sets
// Ready=Unknown (after Options.GracePeriod without a heartbeat), collects the
// pods of a Node that is gone, and taints; a Node deleted under a running
// kubelet does not come back until that kubelet is started again. What is not
// here: a scheduler, a machine controller, a bare-metal operator. No Machine is
// replaced and no BareMetalHost's status moves unless the test moves it.
//
// A fenced under test signs in as FencedUser and has exactly the rights that
// configs/rbac.yaml gives.
//
// Package rigtest beside this one is the form for *testing.T.
package rig
