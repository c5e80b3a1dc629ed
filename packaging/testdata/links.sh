#!/bin/bash
# Root works in the directory of the daemon's user, who left there what is no file of the daemon. Runs as root under the
# systemd of boot.sh.
set -eu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced fenced-pause >&2' ERR

dir=/var/lib/fenced
paused=$dir/paused
state=$dir/state.db

daemon() { runuser -u fenced -- "$@"; } # as the daemon's user

is() { # is "OWNER GROUP MODE" FILE
	local found
	found=$(stat -c '%U %G %a' "$2")
	[ "$found" = "$1" ] || { echo "$2 is: $found, not: $1" >&2; return 1; }
}

absent() { [ ! -e "$1" ] && [ ! -L "$1" ]; }

answers() { fencectl status -o json 2>/dev/null | grep -q '"armed"'; }

status_paused() { fencectl status -o json | grep -Eq '"paused": ?true'; }

within() { # within SECONDS COMMAND...: until it succeeds
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ]
		sleep 0.1
	done
}

# What must stay as it is: one empty file, which bbolt and the pause would fill, and a directory.
mkdir -m 755 /root/dir
: >/root/file
chmod 640 /root/file
untouched() {
	is "root root 640" /root/file
	[ ! -s /root/file ]
	is "root root 755" /root/dir
	[ -z "$(ls -A /root/dir)" ]
}

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig

is "fenced fenced 700" $dir
is "fenced fenced 644" $paused
[ "$(cat $paused)" = "systemctl start fenced-pause" ]
[ "$(systemctl show --value -p Result fenced-pause)" = success ]
systemctl start fenced
within 60 status_paused
echo "ok paused early in the boot, before the daemon ever ran"

systemctl start fenced-resume
absent $paused
echo root >$paused # by hand, or by the units of an earlier version
systemctl start fenced-resume
absent $paused
echo "ok resumed"

kill -STOP "$(systemctl show --value -p MainPID fenced)"
systemctl start fenced-pause
is "fenced fenced 644" $paused
systemctl stop fenced
systemctl start fenced-resume
echo "ok paused while the daemon hangs"

pause_meets() { # pause_meets WHAT: what stands at the name pauses as it is, and goes with the resume
	: >/share/unit-said
	systemctl start fenced-pause
	untouched
	grep -q "^$paused is a link or no regular file: it pauses, and nothing is written to it" /share/unit-said
	systemctl start fenced
	within 60 status_paused
	systemctl stop fenced
	systemctl start fenced-resume
	absent $paused
	untouched
	echo "ok pause: $1"
}

daemon ln -s /root/dir/made $paused
pause_meets "a link to nothing"
daemon ln -s /root/file $paused
pause_meets "a link to root's file"
daemon mkfifo $paused
pause_meets "a pipe"

# The daemon's user can make this one where fs.protected_hardlinks is 0.
ln /root/file $paused
systemctl start fenced-pause
untouched
systemctl start fenced-resume
absent $paused
untouched
echo "ok pause: a hard link"

# An export that only root may read, with one pin.
cat >/root/export <<'END'
{"format":"fenced-export","version":1,"schema":3,"store":"A","at":"2026-01-01T00:00:00Z"}
{"kind":"pin","key":"prod/n","data":"eyJ2IjoxLCJkYXRhIjp7Imhvc3QiOiJwcm9kL24ifX0="}
{"records":1,"sha256":"d4cc08e75e6cc2bfc05a1c02264d2c8c3459d862606fb8c056be2b666f463aca"}
END
chmod 600 /root/export

refuses() { # refuses WORDS ARGS...: fenced fails, says why, and changes nothing of root's
	local words=$1
	shift
	if timeout 300 fenced "$@" >/root/said 2>&1; then
		echo "fenced $* did not fail" >&2
		return 1
	fi
	untouched
	grep -q "$words" /root/said || { cat /root/said >&2; return 1; }
}

import_meets() { # import_meets WHAT WORDS
	refuses "open state file $state: .*$2" --import /root/export
	rm -f $state
	echo "ok import: $1"
}

rm -f $state
daemon ln -s /root/dir/made $state
import_meets "a link to nothing" "refused, because it is a symbolic link"
daemon ln -s /root/file $state
import_meets "a link to root's file" "refused, because it is a symbolic link"
ln /root/file $state # as above
import_meets "a hard link" "it belongs to uid 0, and this process has uid $(id -u fenced)"
daemon mkfifo $state
import_meets "a pipe" "refused, because it is not a regular file"

# A directory of the daemon's user, who put another one of root's in the place of that of the state.
install -d -o fenced -g fenced -m 700 /srv/fenced
daemon ln -s /root/dir /srv/fenced/state
refuses "/srv/fenced/state/state.db: permission denied" --set state.path=/srv/fenced/state/state.db --import /root/export
echo "ok import: another directory"

daemon ln -s /root/file $state
refuses "refused, because it is a symbolic link" --export /root/part
grep -q "the file is not a whole export; remove it" /root/said
rm /root/part $state
echo "ok export: a link to root's file"

TMPDIR=/root fencectl import /root/export >/root/said
grep -q "^imported 1 records" /root/said
is "fenced fenced 600" $state
systemctl start fenced
within 60 answers
systemctl stop fenced
echo "ok imported, and the daemon runs with it"

(cd /root && fenced --export again >/root/said)
grep -q "^exported [1-9][0-9]* records" /root/said
is "root root 600" /root/again
grep -q '"key":"prod/n"' /root/again
is "fenced fenced 600" $state
untouched
echo "ok exported"
