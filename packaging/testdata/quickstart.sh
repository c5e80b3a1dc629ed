#!/bin/bash
# A new user with the package, who types the commands of a quick start one by one: /share/commands. Each line that the script says has the
# time that the machine took, and the command. sudo is a stand-in, because this user is root already; dnf asks nothing.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; tail -n 60 /tmp/answer >&2' ERR
. /share/kit.sh

rpm_host
mkdir -p /etc/dnf /root/user
printf '[main]\nassumeyes=1\nreposdir=/nowhere\ncachedir=/tmp/dnf\n' >/etc/dnf/dnf.conf
printf '#!/bin/sh\nexec env "$@"\n' >/usr/local/bin/sudo
chmod 0755 /usr/local/bin/sudo
ln -sf /share/kubectl /usr/local/bin/kubectl
export PATH=/usr/local/bin:$PATH KUBECONFIG=
cp /share/*.rpm /share/admin.conf /root/user/
cd /root/user

types() { bash -c "$1" </share/password >/tmp/answer 2>&1; }

# Right after the start fenced has not read the cluster: the page says to repeat the dry run.
repeats() { types "$1" || { grep -q NotSynced /tmp/answer && return 1; cat /tmp/answer >&2; exit 1; }; }

while read -r command; do
	began=${EPOCHREALTIME/./}
	case $command in
	*--dry-run) within $patience repeats "$command" ;;
	*) types "$command" ;;
	esac
	echo "$(((${EPOCHREALTIME/./} - began) / 1000)) $command"
done </share/commands
cp /tmp/answer /share/last
# What was written is the group's to read, and nobody else's.
stat -c '%U %G %a %n' /etc/fenced/fenced.yaml /etc/fenced/prod.kubeconfig /etc/fenced/prod-kubeconfig.sh /etc/fenced/hosts.d/prod.yaml /etc/fenced/credentials/bmc >/share/modes
