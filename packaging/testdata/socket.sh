#!/bin/bash
# The control socket that systemd keeps for the daemon.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced.socket fenced >&2; cat /tmp/answer /tmp/log >&2' ERR
. /share/kit.sh

sock=/run/fenced/fenced.sock

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig
systemctl preset fenced.service fenced.socket 2>/tmp/answer
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\n' >/run/systemd/system/fenced.service.d/log.conf
: >/tmp/log
systemctl daemon-reload
not systemctl is-enabled --quiet fenced.socket
not systemctl is-active --quiet fenced.socket
echo "ok disabled as installed"

systemctl enable --now fenced.socket 2>/tmp/answer
not systemctl is-active --quiet fenced
answers
within $patience systemctl is-active --quiet fenced # it answers before it says that it is ready
echo "ok a call starts the daemon"

old=$(main)
kill -9 "$old"
answers # it waits in the socket until the next daemon is there
[ "$(main)" != "$old" ]
echo "ok a call is answered after kill -9"

old=$(main)
systemctl restart fenced &
for _ in $(seq 100); do
	answers
done
wait $!
answers
[ "$(main)" != "$old" ]
[ -S $sock ] # the daemon that ended left it
echo "ok no call fails while the daemon restarts"

# What a daemon that was taken over leaves where systemd, as root, gives the socket away would be its own.
shadow=$(stat -c '%U %G %a' /etc/shadow)
not nsenter --target "$(main)" --mount setpriv --reuid=fenced --regid=fenced --clear-groups ln -sfn /etc/shadow $sock 2>/tmp/answer
systemctl stop fenced.socket fenced
systemctl start fenced.socket fenced
answers
[ "$(stat -c '%U %G %a' /etc/shadow)" = "$shadow" ]
[ "$(stat -c '%U %G %a' /run/fenced)" = "root root 755" ]
echo "ok the daemon cannot lead systemd to another file"

[ "$(stat -c '%U %G %a' $sock)" = "fenced fenced-view 660" ]
not grep -q '"level":"warn".*socket' /tmp/log
code=0
setpriv --reuid=nobody --regid=nogroup --clear-groups fencectl status >/tmp/answer 2>&1 || code=$?
[ $code = 4 ]
echo "ok the group and nobody else has the socket"

systemctl stop fenced.socket fenced
mkdir -p /run/systemd/system/fenced.socket.d
printf '[Socket]\nListenStream=\nListenStream=/run/other.sock\n' >/run/systemd/system/fenced.socket.d/path.conf
systemctl daemon-reload
systemctl start fenced.socket
fencectl --socket /run/other.sock status -o json >/tmp/answer 2>&1 || grep -q '"armed"' /tmp/answer
within 60 grep -q 'make ListenStream= of fenced.socket the same.*"passed":"/run/other.sock"' /tmp/log
echo "ok another path is told"

systemctl stop fenced.socket fenced
rm -r /run/systemd/system/fenced.socket.d
systemctl daemon-reload
systemctl start fenced.socket
answers
systemctl stop fenced.socket fenced
[ ! -e $sock ]
code=0
fencectl status >/tmp/answer 2>&1 || code=$?
[ $code = 5 ] # nobody answers
not systemctl is-active --quiet fenced
echo "ok stopped means stopped"

systemctl start fenced
answers
[ "$(stat -c '%U %G %a' /run/fenced)" = "fenced fenced-view 2755" ]
[ "$(stat -c '%U %G %a' $sock)" = "fenced fenced-view 660" ]
echo "ok without the unit the daemon makes its socket again"
