// Package rig runs a real Kubernetes control plane on loopback, with simulated
// kubelets, for the tests and for the demo. The API is not simulated: etcd,
// kube-apiserver and kube-controller-manager are built from their Go modules
// (test/controlplane) once, kept in the user's cache directory, and run as
// processes that end with this one.
//
//	Binaries  finds or builds the programs; `go run ./test/rig/warm` does only that
//	Start     etcd + API server (RBAC, audit log, TLS) + controller manager, about 5 s;
//	          StartScheduler adds a scheduler
//	StartAll  several at once: a management API and a workload API
//	CRDs      what is installed: OpenShift on bare metal unless Options say otherwise
//	Create*   Machines, MachineSets, checks, BareMetalHosts, Nodes, Leases as real clusters have them;
//	          those named CAPI are of Cluster API, in the format of the one version that is served
//	Kubelet   one simulated host: registers its Node when its BMC is On, renews its Lease, can hang
//	Deletions what was deleted, by whom and when, from the API server's own audit log
//
// As in a real cluster, only the controller manager sets Ready=Unknown (after
// Options.GracePeriod without a heartbeat), deletes the pods of a deleted Node,
// and taints. A Node that is deleted while its kubelet runs does not come back
// before that kubelet is restarted. A scheduler runs only after StartScheduler.
// There is no machine controller and no bare-metal operator: only the test
// replaces Machines and changes the status of BareMetalHosts.
//
// A fenced under test authenticates as FencedUser and has exactly the rights of
// configs/rbac.yaml.
//
// Package rigtest beside this one is the form for *testing.T.
package rig
