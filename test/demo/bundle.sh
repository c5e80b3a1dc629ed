#!/bin/sh
# Packs the demo with a control plane, for a machine without Go: bundle.sh VERSION BIN DIR makes DIR/fenced-demo-VERSION-ARCH.tar.gz of
# the programs in BIN. The control plane is that of KUBEBUILDER_ASSETS, of the cache, or built.
set -eu
umask 022
version=$1 bin=$(cd "$2" && pwd)
mkdir -p "$3"
dir=$(cd "$3" && pwd)
cd "$(dirname "$0")/../.."
name=fenced-demo-$version-$(go env GOARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/$name"
cp "$bin/fenced" "$bin/fencectl" "$bin/demo" LICENSE "$work/$name/"
CGO_ENABLED=0 go run ./test/rig/warm "$work/$name"
cat >"$work/$name/README" <<'EOF'
The demo of fenced: a hung node is fenced on this machine alone, and comes back. It needs no root, and nothing else but Linux.

    CONTROLPLANE=real ./demo           # on the etcd, kube-apiserver and kube-controller-manager of this directory
    ./demo                             # on a Kubernetes API in memory
    KEEP=1 CONTROLPLANE=real ./demo    # leaves all of it running, and prints commands to type

The hosts, their BMCs and their kubelets are simulated. fenced and fencectl are the programs of the packages.
etcd and Kubernetes have the Apache License 2.0, like fenced (LICENSE).
EOF
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$dir/$name.tar.gz" "$name"
echo "$dir/$name.tar.gz"
