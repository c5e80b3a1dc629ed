#!/bin/bash
# Anna, Bert and root give an order that needs two persons, to the installed daemon in its sandbox.
set -eu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer >&2' ERR

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

# says CODE UID USER: the daemon's answer to the order, - for none but that it was carried out
says() {
	local code=0
	login "$2" "$3" fencectl resume --reason "they agree" >/tmp/answer 2>&1 || code=$?
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

mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nProtectProc=invisible\n' >/run/systemd/system/fenced.service.d/hidden.conf
systemctl daemon-reload
systemctl restart fenced
says PersonUnknown "$anna" anna
grep -q "hidden from fenced" /tmp/answer
echo "ok who is hidden counts as nobody"
