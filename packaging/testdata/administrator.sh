#!/bin/bash
# What an administrator does with the installed package, on a host whose clusters cannot be reached.
set -eu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2' ERR
. /share/kit.sh

paused() { fencectl status -o json | grep -Eq '"paused": ?true'; }

running() { fencectl status -o json | grep -Eq '"paused": ?false'; }

another() { # another PID: the daemon answers, and is another process than that
	local now
	now=$(main)
	[ "$now" != 0 ] && [ "$now" != "$1" ] && answers
}

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chown root:root /etc/fenced/nowhere.kubeconfig
chmod 0600 /etc/fenced/nowhere.kubeconfig
not fenced --check-config 2>/tmp/said
grep -q '^fenced: /etc/fenced/nowhere.kubeconfig: the daemon runs as user fenced, who may not read it; run: chgrp fenced ' /tmp/said
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig
fenced --check-config >/tmp/said
echo "ok checked as the user of the daemon"

ip addr add 192.0.2.7/24 dev lo
ip addr add 2001:db8::7/64 dev lo nodad
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\n' >/run/systemd/system/fenced.service.d/log.conf
systemctl daemon-reload
systemctl enable --now fenced
systemctl is-enabled --quiet fenced
systemctl is-active --quiet fenced
running
fenced --check-config >/tmp/said 2>&1 # its own port is no problem
not grep -q metrics.listen /tmp/said
echo "ok enabled and ready"

grep "this host's addresses" /tmp/log >/tmp/said
for a in 127.0.0.1 ::1 192.0.2.7 2001:db8::7; do grep -qF "\"$a\"" /tmp/said; done
not grep -q 'cannot all be read' /tmp/said
echo "ok it knows the addresses of its host, in its sandbox"

systemctl start fenced-pause
within 60 paused
echo "ok paused by the unit"

systemctl start fenced-resume
within 60 running
echo "ok resumed by the unit"

old=$(main)
kill -9 "$old"
within 120 another "$old"
echo "ok back after kill -9"

old=$(main)
kill -STOP "$old"
within 120 another "$old"
echo "ok back after a hang"

systemctl stop fenced
systemctl start fenced-pause
systemctl start fenced
paused
systemctl start fenced-resume
echo "ok paused from the start"

old=$(main)
level() { [ "$(fencectl log-level)" = "$1" ]; }
echo "log: {level: debug}" >/etc/fenced/conf.d/level.yaml
systemctl reload fenced
within 60 level debug
systemctl is-active --quiet fenced
echo "ok reloaded"

echo "no: such" >>/etc/fenced/fenced.yaml
echo "log: {level: error}" >/etc/fenced/conf.d/level.yaml
not systemctl reload fenced 2>/dev/null
level debug
[ "$(main)" = "$old" ]
echo "ok a bad file fails the reload, and changes nothing"

not systemctl restart fenced 2>/dev/null
within 60 systemctl is-failed --quiet fenced
sleep 1 # it stays so
systemctl is-failed --quiet fenced
[ "$(systemctl show --value -p ExecMainStatus fenced)" = 78 ]
echo "ok down with a bad configuration"
