#!/bin/bash
# Builds the Debian package: [DEB_TARGET=arm64] build.sh VERSION OUTDIR. It installs the same files as the RPM, by the same install.sh.
# The same tree gives the same bytes. DEB_COMPRESS=none saves the tests time.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

die() { echo "deb/build.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: build.sh VERSION OUTDIR"
version=$1 out=$(realpath -m "$2")
[[ $version =~ ^[0-9][0-9A-Za-z.+~]*$ ]] || die "the version '$version' is none that dpkg can order; begin with a digit, and use letters, digits and . + ~"
command -v dpkg-deb >/dev/null || die "dpkg-deb is missing; install the package dpkg"
command -v go >/dev/null || die "go is missing"
native=$(go env GOHOSTARCH) target=${DEB_TARGET:-$(go env GOHOSTARCH)}
here=$(cd "$(dirname "$0")" && pwd)
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

# What install.sh takes, from where nobody else builds.
mkdir -p "$top/src/bin"
cd "$here/../.."
cp -R LICENSE THIRD_PARTY_NOTICES README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md configs docs packaging "$top/src/"
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false"
ldflags="-s -w -buildid= -X main.version=$version"
GOARCH=$target go build -ldflags "$ldflags" -o "$top/src/bin/" ./cmd/...
if [ "$target" != "$native" ]; then # it writes the completions
	go build -ldflags "$ldflags" -o "$top/native/" ./cmd/fencectl
	export FENCECTL=$top/native/fencectl
fi
packaging/tools/run.sh sbom "$version" "$target" "$PWD" >"$top/src/bin/sbom.cdx.json"
root=$top/root
ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions "$top/src/packaging/install.sh" "$root" /usr
install -d -m 0700 "$root/var/lib/fenced"
install -m 0644 LICENSE "$root/usr/share/doc/fenced/copyright"
# dpkg knows no owners by name here: postinst gives the group what is its own.
mkdir "$root/DEBIAN"
install -m 0755 "$here"/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/fenced/fenced.yaml >"$root/DEBIAN/conffiles"
size=$(du -sk --apparent-size "$root" | cut -f1)
sed -e "s/@VERSION@/$version/; s/@ARCH@/$target/; s/@SIZE@/$size/" "$here/control" >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

# The time of everything is that of the newest change, as in the RPM.
day=$(sed -n '/^%changelog/{n;s/^\* \(.* [0-9]\{4\}\) .*/\1/p;}' packaging/rpm/fenced.spec)
SOURCE_DATE_EPOCH=$(date -d "$day 00:00" +%s)
export SOURCE_DATE_EPOCH
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
dpkg-deb --root-owner-group -Z"${DEB_COMPRESS:-xz}" --build "$root" "$out/fenced_${version}_$target.deb"
