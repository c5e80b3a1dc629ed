#!/bin/bash
# Makes all files of a release: [RELEASE_KEY=NAME] release.sh OUTDIR. OUTDIR must not be there yet. The same commit gives the same bytes, but
# for signatures, which have their own time: they come last, with the key that gpg knows as NAME. It refuses what is no release: placeholders in
# packaging/project, changes that are not committed, a commit without the tag of its version, no key. RELEASE_TRIAL=1 makes the files
# anyway, for a look; RPM_PAYLOAD and DEB_COMPRESS save time then.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

die() { echo "release.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: release.sh OUTDIR"
out=$(realpath -m "$1")
[ ! -e "$out" ] || die "$out is there already; remove it, or name another directory"
cd "$(dirname "$0")/.."
version=$(packaging/project.sh version) key=${RELEASE_KEY:-}
ask() { git -c safe.directory="$PWD" "$@"; }
commit=$(ask rev-parse HEAD)
if [ -z "${RELEASE_TRIAL:-}" ]; then
	packaging/project.sh check
	[ -z "$(ask status --porcelain)" ] || die "there are changes that are not committed; git status shows them"
	[ "$(ask rev-parse -q --verify "refs/tags/v$version^{commit}")" = "$commit" ] || die "this commit has not the tag v$version; see docs/releasing.md"
	[ -n "$key" ] || die "RELEASE_KEY names no key; gpg --list-secret-keys shows those that gpg has"
fi
[ -z "$key" ] || gpg --list-secret-keys "$key" >/dev/null || die "gpg has no secret key '$key'"
grep -qx "version: $version" configs/chart/Chart.yaml || die "configs/chart has another version; run make golden"
packaging/tools/run.sh notices -check "$PWD"
# The last one leaves its source RPM, whose header names the architecture.
for arch in aarch64 x86_64; do
	RPM_SIGN_KEY='' RPM_TARGET=$arch packaging/rpm/build.sh "$version" "$out"
done
for arch in amd64 arm64; do
	DEB_TARGET=$arch DEB_TARBALL=$out/fenced-$version-linux-$arch.tar.gz packaging/deb/build.sh "$version" "$out"
	packaging/tools/run.sh sbom "$version" "$arch" "$PWD" >"$out/fenced-$version-$arch.cdx.json"
done
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
IMAGE_ARCH="amd64 arm64" packaging/image/build.sh "$version" "$top/image"
tar=(tar --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX --mtime="@$(packaging/epoch.sh)")
"${tar[@]}" -C "$top/image" -cf "$out/fenced-$version-image.oci.tar" .
# As helm package makes it, but for the time of the files, which helm takes from the clock.
"${tar[@]}" --transform 's,^chart,fenced,' -C configs -cf - chart | gzip -9n >"$out/fenced-$version.tgz"
packaging/seal.sh "$out" "$version" "$commit" ${key:+"$key"}
