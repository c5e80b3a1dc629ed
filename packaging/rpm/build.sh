#!/bin/bash
# Builds the binary and the source RPM: [RPM_TARGET=aarch64] [RPM_SIGN_KEY=NAME] [RPM_PAYLOAD=w1.zstdio] build.sh VERSION OUTDIR. The same
# tree gives the same bytes, whatever the checkout's path, the user, the umask and the time zone. It takes the files that
# git tracks, with the content they have now, and vendors the modules into the build directory, never into the tree.
# RPM_PAYLOAD is how the binary RPM is compressed; the tests save half a minute with w1.zstdio. SBOM=FILE is a bill of materials that is made
# already: the tests take that of the first package for a second version of the same source.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

die() { echo "build.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: build.sh VERSION OUTDIR"
version=$1 out=$(realpath -m "$2")
[[ $version =~ ^[0-9A-Za-z._+~^]+$ ]] || die "the version '$version' is none that rpm can order; use letters, digits and . _ + ~ ^"
command -v rpmbuild >/dev/null || die "rpmbuild is missing; install the package rpm (Debian) or rpm-build (Fedora, RHEL)"
command -v go >/dev/null || die "go is missing"
cd "$(dirname "$0")/../.."

# The expanded spec goes into the source RPM, so the directory must always have the same name.
top=/var/tmp/fenced-rpmbuild
[ -d "$top" ] || mkdir -m 0700 "$top"
[ -O "$top" ] && [ ! -L "$top" ] || die "$top belongs to another user; remove it"
exec 9<"$top"
flock -w 900 9 || die "another build has held $top for 15 minutes"
clean() { find "$top" -mindepth 1 -delete; }
trap clean EXIT
clean
mkdir -p "$top"/{SOURCES,SPECS,BUILD,RPMS,SRPMS} "$out"

# The command line is the only place from where git takes this permission for a checkout of another user.
tracked() { git -c safe.directory="$PWD" ls-files -z | while IFS= read -r -d '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done; }
src=$top/fenced-$version
mkdir "$src"
tracked | tar --null --files-from=- -cf - | tar -xf - -C "$src"
[ -e "$src/go.mod" ] || die "git knows no files here; run it in a checkout"
packaging/stamp.sh "$version" "$src"
mkdir "$src/sbom"
sbom() { if [ -n "${SBOM:-}" ]; then cat "$SBOM"; else packaging/tools/run.sh sbom "$version" "$1" "$src"; fi; }
sbom amd64 >"$src/sbom/x86_64.cdx.json"
sbom arm64 >"$src/sbom/aarch64.cdx.json"
(cd "$src" && go mod vendor)

# rpm takes midnight of the newest change as the time of everything, also where somebody rebuilds the source RPM; so no other time is taken here.
SOURCE_DATE_EPOCH=$(env -u SOURCE_DATE_EPOCH packaging/epoch.sh)
export SOURCE_DATE_EPOCH
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" -C "$top" -cf - "fenced-$version" |
	gzip -n >"$top/SOURCES/fenced-$version.tar.gz"
# Who rebuilds the source RPM names no version, and has no git.
sed "s/@VERSION@/$version/; s/@REVISION@/$(packaging/revision.sh)/; s/@DAY@/$(date -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')/; s/@MAINTAINER@/$(packaging/project.sh maintainer | sed 's,[/&],\\&,g')/" \
	packaging/rpm/fenced.spec >"$top/SPECS/fenced.spec"
touch -d "@$SOURCE_DATE_EPOCH" "$top"/SPECS/* "$top"/SOURCES/*

rpmbuild --quiet --define "_topdir $top" --define "_binary_payload ${RPM_PAYLOAD:-w6.xzdio}" \
	--target "${RPM_TARGET:-$(uname -m)}" -ba "$top/SPECS/fenced.spec"
find "$top/RPMS" "$top/SRPMS" -name '*.rpm' -exec cp -v {} "$out/" \;
if [ -n "${RPM_SIGN_KEY:-}" ]; then
	find "$top/RPMS" "$top/SRPMS" -name '*.rpm' -printf "$out/%f\0" | xargs -0 packaging/rpm/sign.sh "$RPM_SIGN_KEY"
fi
