#!/bin/sh
# Installs the peers that the tests talk to and that are not Go modules: ipmi_sim (package openipmi), the BMC of pyghmi
# (python3-pyghmi), ipmitool, freeipmi's ipmipower and the fence agents as other clients, qemu as a machine that really
# goes off, openssl as a server of old TLS, rpm to build and to look into packages, rpmlint, lintian and gnupg to check and sign them,
# dnf and createrepo_c to install them from a repository, debootstrap for another systemd, skopeo, umoci and crun to take and run the image, mandoc to check the man pages,
# nft to check firewall rules and to cut links, ip and tc to lay them,
# prometheus with promtool, systemd for its journald, ssh with sshd, curl, strace, and chromium to look at the page of fencectl ui, with axe-core from the npm registry, which finds
# what a page lacks for screen readers (browser/axe.sh). Says nothing and changes nothing when all is there.
set -eu

missing=
need() { # need COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

# Debian keeps some of these out of an ordinary user's PATH.
PATH=$PATH:/usr/sbin:/sbin
need ipmi_sim openipmi
need fakebmc python3-pyghmi
need ipmitool ipmitool
need ipmipower freeipmi-tools
need fence_ipmilan fence-agents
need qemu-system-x86_64 qemu-system-x86
need rpmbuild rpm
need rpmlint rpmlint
need lintian lintian
need gpg gnupg
need dnf dnf
need createrepo_c createrepo-c
need debootstrap debootstrap
need skopeo skopeo
need umoci umoci
need crun crun
need mandoc mandoc
need openssl openssl
need nft nftables
need tc iproute2
need promtool prometheus
need prometheus prometheus
need journalctl systemd
need systemd-cat systemd
need sshd openssh-server
need ssh openssh-client
need curl curl
need strace strace
need chromium chromium
need npm npm
# The firmware that a machine without a disk stays in.
[ -e /usr/share/seabios/bios-256k.bin ] || missing="$missing seabios"
axe() { "$(dirname "$0")/browser/axe.sh" "${XDG_CACHE_HOME:-$HOME/.cache}/fenced-test"; }
if [ -z "$missing" ]; then
	axe
	exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
	echo "deps.sh: missing:$missing; this script knows only apt-get, install them by hand" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "deps.sh: missing:$missing; run this script as root (there is no sudo here)" >&2
		exit 1
	fi
	sudo=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Debian starts the service of a package that it installs, and prometheus and sshd listen on all addresses: the tests start their own.
quiet() {
	[ -d /run/systemd/system ] || return 0
	case $missing in *prometheus*) $sudo systemctl mask --quiet prometheus.service ;; esac
	case $missing in *openssh-server*) $sudo systemctl mask --quiet ssh.service ssh.socket ;; esac
}
install() {
	# The words after $missing's are packages; the split is meant.
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends $missing >"$log" 2>&1
}
quiet
# Try without an update first: on a machine with fresh lists that saves the slower half.
if ! install && ! { $sudo apt-get update >"$log" 2>&1 && install; }; then
	cat "$log" >&2
	echo "deps.sh: could not install:$missing" >&2
	exit 1
fi

echo "deps.sh: installed:$missing"
axe
