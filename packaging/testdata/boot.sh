#!/bin/bash
# Boots a real systemd as process 1 of namespaces of its own, over this machine's tree with a throw-away layer of writes,
# and lets it start one unit, whose end is to end it all. Needs root, overlayfs and cgroup v2.
#   usage: [BOOT_NET=host] [BOOT_TREE=DIR] boot.sh DIR UNIT    DIR/tree is laid over the root, with the unit; DIR is /share inside
# BOOT_NET=host keeps this machine's network, for a daemon that must reach what listens here; without it there is only loopback.
# BOOT_TREE boots that tree in the place of this machine's, with the systemd that is in it.
# Ends when that systemd has ended; what DIR/cgroup names is then empty, and the caller's to remove.
set -eu

outside() { # still of this machine: a cgroup, and the namespaces
	v2=/sys/fs/cgroup
	[ -f $v2/cgroup.controllers ] || v2=/sys/fs/cgroup/unified
	[ -f $v2/cgroup.controllers ] || { # a machine that mounts only version 1
		v2=$1/v2
		mkdir "$v2"
		mount -t cgroup2 cgroup2 "$v2"
	}
	mkdir "$v2/fenced-sandbox-$$"
	echo "$v2/fenced-sandbox-$$" >"$1/cgroup"
	net=--net
	[ "${BOOT_NET:-}" != host ] || net=
	# One word or none.
	# shellcheck disable=SC2086
	exec unshare --fork --pid --mount --uts --ipc $net --kill-child "$0" enter "$@"
}

enter() { # process 1; unshare stays outside, so that nobody foreign is in the cgroup
	echo 0 >"$(cat "$1/cgroup")/cgroup.procs"
	exec unshare --cgroup "$0" inside "$@"
}

inside() {
	local share=$1 unit=$2 r=$1/root f d
	mount --make-rprivate /
	mkdir "$share/layer" "$r"
	mount -t tmpfs -o mode=755 tmpfs "$share/layer"
	mkdir "$share/layer/up" "$share/layer/work"
	mount -t overlay -o "lowerdir=${BOOT_TREE:-/},upperdir=$share/layer/up,workdir=$share/layer/work" overlay "$r"
	mount -t proc -o nosuid,nodev,noexec proc "$r/proc"
	mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$r/sys"
	mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$r/sys/fs/cgroup"
	mount -t tmpfs -o nosuid,mode=755 tmpfs "$r/dev"
	mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$r/run"
	mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$r/tmp"
	for f in null zero full random urandom tty; do
		: >"$r/dev/$f"
		mount --bind "/dev/$f" "$r/dev/$f"
	done
	mkdir "$r/dev/pts" "$r/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$r/dev/pts"
	mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$r/dev/shm"
	ln -s pts/ptmx "$r/dev/ptmx"
	ln -s /proc/self/fd "$r/dev/fd"
	mkdir -p "$r/share"
	mount --bind "$share" "$r/share"
	[ "${BOOT_NET:-}" = host ] || ip link set lo up

	# Nothing of this machine is started: its units are gone but for the targets, and only ours is wanted.
	find "$r/etc/systemd/system" -mindepth 1 -delete
	for d in "$r"/usr/lib/systemd/system/*.wants; do
		find "$d" -mindepth 1 ! -name '*.target' -delete
	done
	: >"$r/etc/fstab"
	: >"$r/etc/machine-id"
	rm -rf "$r/etc/init.d"
	cp -R --preserve=mode,links "$share/tree/." "$r/"
	systemd-sysusers --root="$r" >/dev/null 2>&1
	mkdir -p "$r/etc/systemd/system/multi-user.target.wants"
	ln -s /usr/lib/systemd/system/multi-user.target "$r/etc/systemd/system/default.target"
	ln -s "/usr/lib/systemd/system/$unit" "$r/etc/systemd/system/multi-user.target.wants/$unit"

	cd "$r"
	mkdir -p .old
	pivot_root . .old
	umount -l /.old
	rmdir /.old
	echo 4294967295 >/proc/self/loginuid || : # process 1 belongs to no login, whoever tests
	mount --make-rshared / # as on a booted machine; in a container systemd leaves that alone
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=sandbox TERM=dumb LANG=C.UTF-8 \
		/usr/lib/systemd/systemd --system --log-target=console --show-status=no </dev/null
}

case $1 in
enter | inside) "$@" ;;
*) outside "$@" ;;
esac
