#!/bin/sh
# Puts axe-core, which finds what a page lacks for screen readers and keyboards, into the cache of the tests: axe.sh DIR.
# It is taken from the npm registry, and only this content of this version is accepted. It says nothing if it is there.
set -eu

version=4.14.1
integrity=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ== # of the package, SHA-512

place=$1/axe-core-$version
[ ! -e "$place/axe.min.js" ] || exit 0
mkdir -p "$1"
work=$(mktemp -d "$1/axe.XXXXXX")
trap 'rm -rf "$work"' EXIT
npm pack --silent --cache "$work/npm" --pack-destination "$work" "axe-core@$version" >/dev/null
found=$(openssl dgst -sha512 -binary "$work/axe-core-$version.tgz" | openssl base64 -A)
if [ "$found" != "$integrity" ]; then
	echo "axe.sh: axe-core $version has the SHA-512 $found, not $integrity" >&2
	exit 1
fi
tar -C "$work" -xzf "$work/axe-core-$version.tgz" package/axe.min.js package/LICENSE
mkdir -p "$place"
mv "$work/package/LICENSE" "$place/"
mv "$work/package/axe.min.js" "$place/" # last: it says that all is there
echo "axe.sh: axe-core $version is in $place"
