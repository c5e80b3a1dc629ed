// The Cluster API whose manager and CRDs the tests run. test/rig builds the manager in a copy of this module, so with the
// versions of its own go.mod and go.sum: here is only its version, in go.sum what it must be. go mod tidy would remove it,
// because no Go file here imports it.
module github.com/fenced/fenced/test/clusterapi

go 1.26.0

require sigs.k8s.io/cluster-api v1.12.1
