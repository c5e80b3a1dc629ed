#!/bin/bash
# The installed daemon and a node that hangs. The test outside hangs the node once /share/started is there, silences its BMC when the
# host is off, which /share/off tells, and lets it answer again once /share/killed is there.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer /tmp/log >&2' ERR
. /share/kit.sh

password=$(cat /share/password)
configure
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\n' >/run/systemd/system/fenced.service.d/log.conf
systemctl daemon-reload
not grep -rqF -- "$password" /etc /usr/lib/systemd /var/lib/fenced /run/systemd
not runuser -u fenced -- cat /root/bmc-password 2>/tmp/answer
echo "ok no file that the daemon may read has the password"

systemctl enable --now fenced 2>/tmp/answer
within $patience answers
[ "$(cat "/run/credentials/fenced.service/bmc")" = "$password" ]
not grep -qzF -- "$password" "/proc/$(main)/environ" "/proc/$(main)/cmdline"
echo "ok ready with the password from a credential"

touch /share/started
within $patience test -e /share/off
id=$(run id)
[ -n "$id" ]
run_open
echo "ok the run is open"

old=$(main)
level() { [ "$(fencectl log-level)" = "$1" ]; }
mkdir -p /etc/fenced/conf.d
echo "log: {level: debug}" >/etc/fenced/conf.d/level.yaml
systemctl reload fenced
level debug
[ "$(main)" = "$old" ]
run_is id "$id"
run_open
echo "ok the run is open after a reload"

sed -i.good 's/{name: scene, /{name: renamed, /' /etc/fenced/fenced.yaml
sed -i.good 's/cluster: scene/cluster: renamed/' /etc/fenced/hosts.d/hosts.yaml
fenced --check-config >/tmp/said 2>&1
echo "log: {level: error}" >/etc/fenced/conf.d/level.yaml
not systemctl reload fenced 2>/tmp/answer
within $patience grep -q "cluster scene cannot be removed while a run is open in it ($id on worker-1)" /tmp/log
level debug
mv /etc/fenced/fenced.yaml.good /etc/fenced/fenced.yaml
mv /etc/fenced/hosts.d/hosts.yaml.good /etc/fenced/hosts.d/hosts.yaml
rm /etc/fenced/conf.d/level.yaml
systemctl reload fenced
level info # at once: the reload has ended
systemctl is-active --quiet fenced
echo "ok a reload that the daemon refuses fails"

kill -9 "$old"
within $patience answers
[ "$(main)" != "$old" ]
[ "$(systemctl show --value -p NRestarts fenced)" = 1 ]
run_is id "$id"
run_open
touch /share/killed
echo "ok back after kill -9"

within $patience run_is result Done
run_is id "$id"
not grep -qF -- "$password" /tmp/log
not grep -rqF -- "$password" /var/lib/fenced
echo "ok the same run is done"

# As docs/install.md has it; here without a TPM, and on a file system that does not stay.
systemd-creds encrypt --with-key=host --name=bmc - /root/bmc.cred </root/bmc-password
rm /root/bmc-password
not grep -qF -- "$password" /root/bmc.cred
printf '[Service]\nLoadCredential=\nLoadCredentialEncrypted=bmc:/root/bmc.cred\n' >/run/systemd/system/fenced.service.d/zz-encrypted.conf
systemctl daemon-reload
systemctl restart fenced
within $patience answers
[ "$(cat "/run/credentials/fenced.service/bmc")" = "$password" ]
accepted() { fencectl bmc test worker-1 >/tmp/answer 2>&1; }
within $patience accepted
echo "ok restarted with the password from an encrypted credential"
