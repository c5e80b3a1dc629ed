#!/bin/sh
# Prints a directory with a minimal Debian of another release than this machine's: tree.sh SUITE. Trixie has systemd 257, as RHEL 10 has;
# bookworm has 252, as RHEL 9 has. It is made once, by debootstrap, as root.
set -eu

suite=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fenced-test/tree
dir=$cache/$suite
if [ ! -e "$dir/usr/lib/systemd/systemd" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	chmod 755 "$tmp"
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,iproute2 "$suite" "$tmp/out" >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; exit 1; }
	rm -rf "$tmp"/out/var/cache/apt/archives/*.deb
	# Whoever comes second at the same time finds it there, and that is as good.
	mv -T "$tmp/out" "$dir" 2>/dev/null || [ -e "$dir/usr/lib/systemd/systemd" ]
fi
echo "$dir"
