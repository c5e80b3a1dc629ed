#!/bin/sh
# Writes a version where files name it: stamp.sh VERSION ROOT. In the source it is that of packaging/project (make golden), in a package
# that of the package. The chart and a tag of an image have no ~, which orders a version of a package before another one.
set -eu
version=$(echo "$1" | tr '~' '-')
cd "$2"
sed -i -E "s/^(version|appVersion): .*/\1: $version/" configs/chart/Chart.yaml
sed -i -E "s,(localhost/fenced:)[0-9][0-9A-Za-z.+-]*,\1$version," docs/install.md packaging/image/fenced.container packaging/image/ironic-sidecar.yaml
sed -i -E "s,(image: \"fenced:)[^\"]*,\1$version," configs/kustomize/daemon/daemon.yaml
