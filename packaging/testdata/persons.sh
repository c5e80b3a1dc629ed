#!/bin/bash
# Anna, Bert and root give an order that needs two persons, to the installed daemon in its sandbox, which asks fenced-login who they are.
set -eu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer >&2' ERR
. /share/kit.sh

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig
systemctl start fenced
group=$(stat -c %g /run/fenced/fenced.sock)

# login UID USER COMMAND...: as USER, in a session that began with the login of UID. Before it, pam_loginuid writes that
# file; after it, sudo and su change the user and nothing else.
login() (
	echo "$1" >/proc/self/loginuid
	exec setpriv --reuid="$2" --regid="$2" --groups="$group" "${@:3}"
)

resume() { # resume UID USER: the order that needs two persons; its exit status is in $code
	code=0
	login "$1" "$2" fencectl resume --reason "they agree" >/tmp/answer 2>&1 || code=$?
}

# says CODE UID USER: the daemon's answer to the order, - for none but that it was carried out
says() {
	local code
	resume "$2" "$3"
	while grep -q 'fenced-login gives no answer' /tmp/answer; do # a busy machine starts it too late for an order
		resume "$2" "$3"
	done
	if [ "$1" = - ]; then
		[ $code = 0 ]
	else
		[ $code = 3 ] && grep -q "($1)" /tmp/answer
	fi
}

none=4294967295
anna=$(id -u anna)
bert=$(id -u bert)

says PersonUnknown $none root
says PersonUnknown 0 root
says PersonUnknown $none fenced
says PersonUnknown 0 anna
echo "ok nobody knows who is root, or the daemon"

# A unit that root starts as Bert belongs to no login.
cat >/run/systemd/system/bert.service <<'END'
[Service]
Type=oneshot
User=bert
SupplementaryGroups=fenced-view
ExecStart=/usr/bin/fencectl resume --reason "they agree"
StandardError=truncate:/tmp/answer
END
systemctl daemon-reload
says SecondPersonNeeded "$anna" anna
not systemctl start bert 2>/tmp/started
grep -q '(PersonUnknown)' /tmp/answer
grep -q 'its process belongs to no login' /tmp/answer
echo "ok a service is nobody"

says SecondPersonNeeded "$anna" anna
says SecondPersonNeeded "$anna" root
says SecondPersonNeeded "$anna" fenced
says SecondPersonNeeded "$anna" bert
says PersonUnknown $none root
echo "ok sudo makes no second person"

says - "$bert" root
both="anna (uid $anna) and bert (uid $bert) as root (uid 0)"
for _ in $(seq 600); do # the daemon answers before the entry is on the disk: what an order brings back waits for no record
	fencectl audit show >/tmp/answer
	grep -q "$both" /tmp/answer && break
	sleep 0.1
done
grep -q "$both" /tmp/answer
echo "ok two people are two persons"

main() { # main SERVICE: its process. A signal to process 0, which no service has, would be one to this script.
	local pid
	pid=$(systemctl show --value -p MainPID "$1")
	[ "$pid" != 0 ] && echo "$pid"
}
asked() { says PersonUnknown $none root; } # fenced-login runs now, and for a minute
sock=$(systemctl show --value -p Listen fenced-login.socket | cut -d' ' -f1)
inside() { nsenter --target "$(main fenced)" --mount setpriv --reuid=fenced --regid=fenced --clear-groups "$@"; } # as the daemon
inside test ! -e /proc/1
[ "$(stat -c '%U %G %a' "$sock")" = "fenced fenced 600" ]
asked
user=$(stat -c %U "/proc/$(main fenced-login)")
[ "$user" != root ] && [ "$user" != fenced ]
echo "ok the daemon sees no process of others, and who does is nobody"

# A daemon that was taken over: what it leaves where systemd, as root, gives the socket to its user would be its own.
shadow=$(stat -c '%U %G %a' /etc/shadow)
not inside ln -sfn /etc/shadow "$sock" 2>/tmp/answer
systemctl restart fenced-login.socket
[ "$(stat -c '%U %G %a' /etc/shadow)" = "$shadow" ]
[ "$(stat -c %U "$(dirname "$sock")")" = root ]
echo "ok the daemon cannot lead systemd to another file"

# unknown: Anna's login cannot be told. Then her order is refused with the reason, and counts for nobody; one that needs no second
# person is carried out.
unknown() {
	resume "$anna" anna
	[ $code = 3 ]
	grep -q '(PersonUnknown)' /tmp/answer
	grep -q 'fenced-login gives no answer' /tmp/answer
	login "$anna" anna fencectl pause --reason "nobody asks who I am" >/tmp/answer 2>&1
	fencectl status -o json >/tmp/answer 2>&1 || grep -Eq '"paused": ?true' /tmp/answer
}
asked
pid=$(main fenced-login)
kill -STOP "$pid"
unknown
kill -CONT "$pid"
echo "ok who is not told of counts as nobody: it hangs"

systemctl stop fenced-login.socket fenced-login.service
unknown
systemctl start fenced-login.socket
says SecondPersonNeeded "$anna" anna
says - "$bert" bert
echo "ok who is not told of counts as nobody: it is stopped"

systemctl stop fenced
systemctl stop fenced-login.service # it would end by itself, in a minute
within 400 not systemctl is-active --quiet fenced-login.socket
[ ! -e "$sock" ]
systemctl start fenced
systemctl is-active --quiet fenced-login.socket
echo "ok it comes and goes with the daemon"
