#!/bin/sh
# A machine with users of its own, in this mount namespace: sshworld.sh FENCECTL COMMAND... makes it in /home, /run and
# /usr/local/bin, with a key of root's that every user accepts, and runs COMMAND. Nothing of it outlives the namespace.
set -eu
fencectl=$1
shift
umask 022
for dir in /run /home /usr/local/bin; do
	mount -t tmpfs -o mode=0755 tmpfs "$dir"
done
mkdir -m 0755 /run/sshd /run/fenced
install -m 0755 "$fencectl" /usr/local/bin/fencectl
cd /home
echo 'root:x:0:0:root:/home/root:/bin/sh
sshd:x:105:65534::/run/sshd:/usr/sbin/nologin' >passwd
printf 'root:*:1::::::\nsshd:*:1::::::\n' >shadow
printf 'root:x:0:\nnogroup:x:65534:\n' >group
mkdir -p -m 0700 root/.ssh
ssh-keygen -q -t ed25519 -N '' -C '' -f root/.ssh/id_ed25519
ssh-keygen -q -t ed25519 -N '' -C '' -f host_key
ssh-keygen -q -t ed25519 -N '' -C '' -f other_key
uid=4000 members=
user() { # user NAME SHELL [OPTIONS OF ITS KEY]
	uid=$((uid + 1))
	echo "$1:x:$uid:$uid::/home/$1:$2" >>passwd
	echo "$1:*:1::::::" >>shadow
	echo "$1:x:$uid:" >>group
	mkdir -p -m 0700 "$1/.ssh"
	echo "${3:-} $(cat root/.ssh/id_ed25519.pub)" >"$1/.ssh/authorized_keys"
	chown -R "$uid:$uid" "$1"
	[ "$1" = nora ] || members=$members${members:+,}$1
}
user vera /bin/sh                                       # a viewer
user olga /bin/sh                                       # an operator
user otto /bin/bash                                     # another one, whose login prints something
user ada /bin/sh                                        # an admin
user nora /bin/sh                                       # not in the group of the socket
user rita /bin/sh 'restrict,command="fencectl dial-stdio"' # a viewer with a key for nothing else
user mona /bin/bash                                     # her login ends at once, and prints what a terminal would obey
user kim /bin/sh
echo "# no key" >kim/.ssh/authorized_keys
printf 'echo "It is %%s: `date`"\n' otto >otto/.bashrc
printf 'printf "\\033[2Jgo away\\n"; exit 3\n' >mona/.bashrc
echo "fenced-view:x:4900:$members" >>group
for file in passwd shadow group; do
	mount --bind "$file" "/etc/$file"
done
cat >sshd_config <<END
HostKey /home/host_key
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
PrintLastLog no
SetEnv GORACE=atexit_sleep_ms=10
END
export HOME=/home/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
exec "$@"
