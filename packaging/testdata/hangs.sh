#!/bin/bash
# An installed daemon of which the deciding loop hangs, and nothing else, while a run is open. The test outside hangs the node once
# /share/started is there, silences its BMC when the host is off, which /share/off tells, and lets it answer again once /share/killed is there.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; tail -n 30 /tmp/answer /tmp/log >&2' ERR
. /share/kit.sh

points=/var/lib/fenced/failpoints
configure
install -d -o fenced -g fenced -m 0700 /var/lib/fenced $points
echo nothing >$points/only
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\nEnvironment=FENCED_FAILPOINTS=%s\n' $points >/run/systemd/system/fenced.service.d/log.conf
systemctl daemon-reload
systemctl start fenced
within $patience answers
touch /share/started
within $patience test -e /share/off
id=$(run id)
[ -n "$id" ]
run_open
echo "ok the run is open"

old=$(main)
install -o fenced -g fenced -m 0600 /dev/null $points/hang
fencectl hold healthy --for 1h --reason "the loop has to decide" >/tmp/answer 2>&1
within $patience test -e $points/hung
answers
fencectl audit verify >/tmp/answer 2>&1
[ "$(main)" = "$old" ]
[ "$(systemctl show --value -p NRestarts fenced)" = 0 ]
echo "ok the loop hangs, and the daemon answers"

another() { [ "$(main)" != 0 ] && [ "$(main)" != "$old" ] && answers; }
within $patience another
[ "$(systemctl show --value -p NRestarts fenced)" = 1 ]
grep -q '^SIGABRT: abort' /tmp/log # WatchdogSignal=; the stacks that follow tell where it hung
grep -q 'failpoint.hangingWatch.Changes' /tmp/log
run_is id "$id"
run_open
touch /share/killed
echo "ok systemd has killed it, and the next one has the run"

within $patience run_is result Done
run_is id "$id"
[ "$(systemctl show --value -p NRestarts fenced)" = 1 ]
echo "ok the same run is done"
