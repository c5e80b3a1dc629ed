#!/bin/sh
# Prints a directory with a minimal Debian of another release than this machine's: tree.sh SUITE. Trixie has systemd 257, as RHEL 10 has;
# bookworm has 252, as RHEL 9 has. It has rpm too, and, where podman has it, the program that reads Quadlet units. It is made once, by debootstrap, as
# root; a change of this script makes another one.
set -eu

suite=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fenced-test/tree
dir=$cache/$suite-$(cksum <"$0" | cut -d' ' -f1)
if [ ! -e "$dir" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	chmod 755 "$tmp"
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,iproute2,rpm "$suite" "$tmp/out" >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; exit 1; }
	rm -rf "$tmp"/out/var/cache/apt/archives/*.deb
	# Of podman one file: all of it, with what it needs, is as large as the tree.
	[ "$suite" = bookworm ] || chroot "$tmp/out" sh -c 'cd /tmp && apt-get -o APT::Sandbox::User=root download podman && dpkg-deb --fsys-tarfile podman_*.deb | tar -xf - -C / ./usr/libexec/podman/quadlet && rm podman_*.deb' \
		>"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log" >&2; exit 1; }
	# Whoever comes second at the same time finds it there, and that is as good.
	mv -T "$tmp/out" "$dir" 2>/dev/null || [ -e "$dir/usr/lib/systemd/systemd" ]
fi
echo "$dir"
