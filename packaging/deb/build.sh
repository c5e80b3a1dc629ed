#!/bin/bash
# Builds the Debian package: [DEB_TARGET=arm64] [DEB_TARBALL=FILE] build.sh VERSION OUTDIR. DEB_TARBALL is for a tarball, out of which
# packaging/install.sh installs on any Linux. It installs the same files as the RPM, by the same install.sh and
# the same list of files; nfpm packs them. The same tree gives the same bytes. DEB_COMPRESS=none saves the tests time, and so
# does SBOM=FILE, a bill of materials that is made already.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

die() { echo "deb/build.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: build.sh VERSION OUTDIR"
version=$1 out=$(realpath -m "$2")
[[ $version =~ ^[0-9][0-9A-Za-z.+~]*$ ]] || die "the version '$version' is none that dpkg can order; begin with a digit, and use letters, digits and . + ~"
command -v go >/dev/null || die "go is missing"
native=$(go env GOHOSTARCH) target=${DEB_TARGET:-$(go env GOHOSTARCH)}
here=$(cd "$(dirname "$0")" && pwd)
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

# What install.sh takes, from where nobody else builds.
mkdir -p "$top/src/bin"
cd "$here/../.."
cp -R LICENSE THIRD_PARTY_NOTICES README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md configs docs packaging "$top/src/"
packaging/stamp.sh "$version" "$top/src"
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false"
ldflags="-s -w -buildid= -X main.version=$version -X main.revision=$(packaging/revision.sh)"
GOARCH=$target go build -ldflags "$ldflags" -o "$top/src/bin/" ./cmd/...
if [ "$target" != "$native" ]; then # it writes the completions
	go build -ldflags "$ldflags" -o "$top/native/" ./cmd/fencectl
	export FENCECTL=$top/native/fencectl
fi
if [ -n "${SBOM:-}" ]; then cp "$SBOM" "$top/src/bin/sbom.cdx.json"; else packaging/tools/run.sh sbom "$version" "$target" "$PWD" >"$top/src/bin/sbom.cdx.json"; fi
epoch=$(packaging/epoch.sh)
if [ -n "${DEB_TARBALL:-}" ]; then
	name=$(basename "$DEB_TARBALL" .tar.gz)
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX --mtime="@$epoch" --transform "s,^\.,$name,S" --exclude='*_test.go' -C "$top/src" -cf - \
		./bin ./LICENSE ./THIRD_PARTY_NOTICES ./README.md ./CHANGELOG.md ./SECURITY.md ./CONTRIBUTING.md ./configs ./docs \
		./packaging/install.sh ./packaging/systemd ./packaging/local-ipmi | gzip -9n >"$DEB_TARBALL"
fi
root=$top/root
ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions "$top/src/packaging/install.sh" "$root" /usr
install -d -m 0700 "$root/var/lib/fenced"

# What Debian asks of a package beside: who may copy what, what changed, and what of lintian's complaints is meant.
doc=$root/usr/share/doc/fenced
MAINTAINER=$(packaging/project.sh maintainer)
export MAINTAINER
{
	cat "$here/copyright"
	cat THIRD_PARTY_NOTICES
} >"$doc/copyright"
printf 'fenced (%s) unstable; urgency=medium\n\n  * This version. CHANGELOG.md in this directory says what is new.\n\n -- %s  %s\n' \
	"$version" "$MAINTAINER" "$(date -Rd "@$epoch")" | gzip -9n >"$doc/changelog.gz"
install -Dm 0644 "$here/lintian-overrides" "$root/usr/share/lintian/overrides/fenced"
mkdir -p "$out"
packaging/tools/run.sh deb "$version" "$target" "$epoch" "${DEB_COMPRESS:-xz}" "$root" "$PWD/packaging/files" "$here/nfpm.yaml" "$out/fenced_${version}_$target.deb"
