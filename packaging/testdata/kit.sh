# What the scripts share that an administrator runs beside the installed daemon.

not() { ! "$@"; } # by itself, ! hides a failure from set -e

within() { # within SECONDS COMMAND...: until it succeeds
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ]
		sleep 0.3 # each try is three programs or more
	done
}

is() { # is "OWNER GROUP MODE" FILE
	local found
	found=$(stat -c '%U %G %a' "$2")
	[ "$found" = "$1" ] || { echo "$2 is: $found, not: $1" >&2; return 1; }
}

# rpm_host tells rpm what an rpm host has, and dpkg put here.
rpm_host() {
	cat >/tmp/host.spec <<-'END'
		Name: host
		Version: 1
		Release: 1
		Summary: What this host has without rpm
		License: Apache-2.0
		BuildArch: noarch
		Provides: systemd = 252, /bin/sh, /usr/bin/sh, /usr/bin/systemctl, /usr/sbin/useradd
		%description
		For this test alone.
		%files
	END
	rpmbuild --quiet --define '_topdir /tmp/host' -bb /tmp/host.spec 2>/tmp/answer
	rpm -i /tmp/host/RPMS/noarch/*.rpm 2>/tmp/answer
}

# leftovers says which files of the package's directories are not in the list of files that it reads.
leftovers() {
	sort >/tmp/listed
	find /usr/share/doc/fenced /usr/share/fenced /usr/share/licenses/fenced /usr/libexec/fenced /usr/share/man/man[58]/fence[cd]* /usr/lib/systemd/system/fenced* \
		/usr/share/zsh/*/_fencectl | sort | comm -23 - /tmp/listed
}

patience=400 # a busy machine may need minutes; only a hang needs more

main() { systemctl show --value -p MainPID fenced; }

# The exit code of fencectl status tells of a run that waits, and of clusters that cannot be seen.
answers() { fencectl status -o json >/tmp/answer 2>&1 || grep -q '"armed"' /tmp/answer; }

# Field FIELD of the newest run of the node.
run() { fencectl timeline worker-1 -o json 2>/tmp/answer | tr -d ' \n' | grep -o "\"$1\":\"[^\"]*\"" | tail -n 1 | cut -d'"' -f4; }

run_is() { [ "$(run "$1")" = "$2" ]; }

# One whose BMC is silent for long waits.
run_open() { run_is result Running || run_is result Waiting; }

# configure gives the files of the tree the owners that an administrator gives them.
configure() {
	systemd-tmpfiles --create fenced.conf
	chgrp fenced /etc/fenced/scene.kubeconfig /etc/fenced/hosts.d/hosts.yaml
	chmod 0640 /etc/fenced/scene.kubeconfig /etc/fenced/hosts.d/hosts.yaml
	install -m 0600 /share/password /root/bmc-password
	rm /share/password
}
