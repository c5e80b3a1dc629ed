#!/bin/bash
# What administrator.sh does, after a look at the units by a newer systemd than this machine's.
set -eEu
trap 'echo "failed in line $LINENO" >&2; cat /tmp/answer >&2' ERR

systemctl --version | grep -q '^systemd 257'
echo "ok it is systemd 257"

systemd-analyze verify --man=no fenced.service fenced.socket fenced-login.service fenced-login.socket fenced-pause.service fenced-resume.service >/tmp/answer 2>&1
[ ! -s /tmp/answer ]
echo "ok the units are understood"

systemd-analyze security --offline=true --threshold=12 --no-pager fenced.service >/tmp/answer
systemd-analyze security --offline=true --threshold=7 --no-pager fenced-login.service >/tmp/answer
echo "ok the units are confined"

exec /share/administrator.sh
