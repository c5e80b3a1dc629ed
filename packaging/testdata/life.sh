#!/bin/bash
# dnf and the package on a host that fences. The test outside hangs the node once /share/started is there, silences its BMC when the host
# is off, which /share/off tells, and lets it answer again once /share/killed is there. Once /share/stopped is there it makes
# /share/state.db one of a newer schema, and then /share/newer.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; tail -n 30 /tmp/answer /tmp/log >&2' ERR
. /share/kit.sh
. /share/versions

dnf() { command dnf -q -y --disablerepo='*' --repofrompath=local,/share/repo --setopt=local.gpgcheck=0 --setopt=cachedir=/tmp/dnf "$@" >/tmp/answer 2>&1; }

: >/tmp/log
rpm_host

dnf install "fenced-$older"
rpm -V fenced
not systemctl is-enabled --quiet fenced
not systemctl is-enabled --quiet fenced.socket
not systemctl is-active --quiet fenced
is "root fenced 640" /etc/fenced/fenced.yaml
is "fenced fenced 700" /var/lib/fenced
echo "ok installed: nothing enabled, nothing started"

cp -R /share/etc/. /etc/fenced/
configure
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\n' >/run/systemd/system/fenced.service.d/log.conf
systemctl daemon-reload
systemctl enable --now fenced 2>/tmp/answer
within $patience answers
touch /share/started
within $patience test -e /share/off
id=$(run id)
[ -n "$id" ]
run_open
echo "ok the run is open"

old=$(main)
dnf upgrade
[ "$(rpm -q --qf '%{VERSION}' fenced)" = "$newer" ]
within $patience answers
[ "$(main)" != "$old" ]
fencectl status -o json | tr -d ' \n' | grep -qF "\"version\":\"$newer\""
systemctl is-enabled --quiet fenced
run_is id "$id"
run_open
echo "ok upgraded in mid-run: the new daemon has the run"

touch /share/killed
within $patience run_is result Done
run_is id "$id"
echo "ok the same run is done"

state=/var/lib/fenced/state.db
systemctl stop fenced
cp -p $state /root/state.db
cp $state /share/state.db
touch /share/stopped
within $patience test -e /share/newer
cat /share/state.db >$state
sum=$(sha256sum <$state)
dnf downgrade "fenced-$older"
[ "$(rpm -q --qf '%{VERSION}' fenced)" = "$older" ]
: >/tmp/log
not systemctl start fenced 2>/tmp/answer
within $patience grep -q 'install that version again' /tmp/log
systemctl stop fenced
[ "$(sha256sum <$state)" = "$sum" ]
echo "ok downgraded onto a newer state: refused, and the state untouched"

cat /root/state.db >$state
systemctl reset-failed fenced
systemctl start fenced
within $patience answers
run_is id "$id"
echo "ok the newer state is left, and the old one taken up"

dnf remove fenced
[ "$(main)" = 0 ] || [ -z "$(main)" ]
not pgrep -x fenced
[ ! -e /run/fenced-login.sock ]
[ -z "$(find /etc/systemd -lname '*fenced*')" ]
[ -e /etc/fenced/fenced.yaml.rpmsave ]
[ -s $state ]
[ -s /var/lib/fenced/audit.jsonl ]
echo "ok erased: stopped, state and changed configuration kept"
