#!/bin/bash
# The installed daemon and a journald: what is wrong is found by priority, everything by its fields, and a journald that
# hangs holds up nothing.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced systemd-journald >&2' ERR
. /share/kit.sh

has() { journalctl -q --no-pager -u fenced -o cat "$@" | grep -q .; } # has MATCH...: the journal has such an entry

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig

# Of the network of this boot alone, for sockets made from now on: filling the queue that systemd asks for would take 1,100 programs.
echo 16 >/proc/sys/net/unix/max_dgram_qlen
systemctl start systemd-journald.socket systemd-journald.service
systemctl start fenced
within 120 has -p warning FENCED_CLUSTER=prod
journalctl -q --no-pager -u fenced -p info -o export >/tmp/all
grep -aq '^PRIORITY=6$' /tmp/all
not grep -aq '^MESSAGE={' /tmp/all
echo "ok what is wrong has a priority"

fencectl pause --reason "look at this" >/dev/null
within 60 has -p info FENCED_EVENT=Order
fencectl resume --reason "it was nothing" >/dev/null
not has -p warning FENCED_EVENT=Order
echo "ok what people do is found by its field"

daemon=$(systemctl show --value -p MainPID fenced)
journal=$(systemctl show --value -p MainPID systemd-journald)
kill -STOP "$journal"
for i in $(seq $(($(cat /proc/sys/net/unix/max_dgram_qlen) + 50))); do
	fencectl pause --reason "once more" >/dev/null
	fencectl resume --reason "number $i" >/dev/null
done
sleep 30 # longer than the watchdog waits
[ "$(systemctl show --value -p MainPID fenced)" = "$daemon" ]
fencectl status -o json 2>/dev/null | grep -q '"armed"'
echo "ok a journald that hangs holds up nothing"

kill -CONT "$journal"
last() { journalctl -q --no-pager -u fenced FENCED_EVENT=Order -o cat | grep -q "number $i"; }
within 120 last
[ "$(systemctl show --value -p NRestarts fenced)" = 0 ]
echo "ok it is all there when journald goes on"
