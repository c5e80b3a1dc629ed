#!/bin/sh
# Prints a directory with a Debian kernel (vmlinuz) and its IPMI modules, for the tests in a virtual machine. Fetches the
# package that linux-image-amd64 stands for, once for each version, and installs nothing. Needs apt-get and dpkg-deb.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/fenced-test/guest-kernel
package=$(apt-cache depends --important linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p')
[ -n "$package" ] || { echo "kernel.sh: apt knows no linux-image-amd64; its lists may be empty (apt-get update)" >&2; exit 1; }
version=$(apt-cache show --no-all-versions "$package" | sed -n 's/^Version: //p')
dir=$cache/$package-$version
if [ ! -e "$dir/vmlinuz" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# apt as root fetches as another user, who may not write here; it does so all the same and says it.
	(cd "$tmp" && apt-get -qq download "$package" 2>apt.log) || { cat "$tmp/apt.log" >&2; exit 1; }
	mkdir "$tmp/out"
	dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp" --wildcards './boot/vmlinuz-*' '*/kernel/drivers/char/ipmi/*'
	mv "$tmp"/boot/vmlinuz-* "$tmp/out/vmlinuz"
	find "$tmp" -name 'ipmi_*.ko*' -exec mv {} "$tmp/out/" \;
	for m in "$tmp"/out/*.ko.xz; do
		[ ! -e "$m" ] || xz -d "$m"
	done
	# Whoever comes second at the same time finds it there, and that is as good.
	mv -T "$tmp/out" "$dir" 2>/dev/null || [ -e "$dir/vmlinuz" ]
fi
echo "$dir"
