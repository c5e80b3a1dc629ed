#!/bin/bash
# Builds an OCI image layout of the static programs: [IMAGE_ARCH="amd64 arm64"] build.sh VERSION OUTDIR. OUTDIR must not be there yet. It
# needs no registry, no base image and no container engine. The same tree gives the same bytes.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

die() { echo "image/build.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: build.sh VERSION OUTDIR"
version=$1 out=$(realpath -m "$2")
[ ! -e "$out" ] || die "$out is there already; remove it, or name another directory"
command -v go >/dev/null || die "go is missing"
cd "$(dirname "$0")/../.."
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
epoch=$(packaging/epoch.sh)
licenses=$(sed -n 's/^License: //p' THIRD_PARTY_NOTICES)

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace,tzdata -gcflags=all=-dwarf=false"
ldflags="-s -w -buildid= -X main.version=$version -X main.revision=$(packaging/revision.sh)"
layers=()
for arch in ${IMAGE_ARCH:-$(go env GOHOSTARCH)}; do
	root=$top/$arch
	mkdir -p "$root"/usr/{bin,libexec/fenced,share/licenses/fenced,share/fenced} "$root"/{etc/fenced,tmp,run/fenced,var/lib/fenced,proc,sys,dev}
	GOARCH=$arch go build -ldflags "$ldflags" -o "$root/usr/libexec/fenced/fenced" ./cmd/fenced
	GOARCH=$arch go build -ldflags "$ldflags" -o "$root/usr/bin/fencectl" ./cmd/fencectl
	ln -s ../libexec/fenced/fenced "$root/usr/bin/fenced"
	packaging/tools/run.sh sbom "$version" "$arch" "$PWD" >"$root/usr/share/fenced/sbom.cdx.json"
	cp LICENSE THIRD_PARTY_NOTICES "$root/usr/share/licenses/fenced/"
	# The names of the package; the numbers are the image's own, and nobody else's on a host.
	printf '%s\n' 'root:x:0:0::/:/' 'fenced:x:65532:65532:Bare-metal fencing daemon:/var/lib/fenced:/' >"$root/etc/passwd"
	printf '%s\n' 'root:x:0:' 'fenced:x:65532:' 'fenced-view:x:65533:' >"$root/etc/group"
	chmod 0700 "$root/var/lib/fenced"
	chmod 2755 "$root/run/fenced"
	chmod 1777 "$root/tmp"
	layer() { tar --format=ustar --sort=name --numeric-owner --mtime="@$epoch" -C "$root" "$@"; }
	layer --owner=0 --group=0 --exclude=./var/lib/fenced --exclude=./run/fenced -cf "$top/$arch.tar" .
	layer --owner=65532 --group=65532 -rf "$top/$arch.tar" ./var/lib/fenced
	layer --owner=65532 --group=65533 -rf "$top/$arch.tar" ./run/fenced
	layers+=("$arch=$top/$arch.tar")
done
packaging/tools/run.sh image "$version" "$epoch" "$licenses" "$out" "${layers[@]}"
