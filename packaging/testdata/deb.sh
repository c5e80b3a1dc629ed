#!/bin/bash
# dpkg and the Debian package, on a host whose clusters cannot be reached.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer >&2' ERR
. /share/kit.sh
. /share/versions

put() { DEBIAN_FRONTEND=noninteractive dpkg --force-depends -i "/share/$1.deb" >/tmp/answer 2>&1; }

put older
not systemctl is-enabled --quiet fenced
not systemctl is-active --quiet fenced
not systemctl is-enabled --quiet fenced.socket
is "root fenced 750" /etc/fenced/credentials
is "root fenced 640" /etc/fenced/fenced.yaml
is "fenced fenced 700" /var/lib/fenced
echo "ok installed, and nothing is started"

install -m 0640 -g fenced /share/nowhere.kubeconfig /etc/fenced/
install -m 0640 -g fenced /share/fenced.yaml /etc/fenced/
systemctl enable --now fenced 2>/tmp/answer
answers
is "fenced fenced-view 660" /run/fenced/fenced.sock
echo "ok started"

old=$(main)
put newer
[ "$(dpkg-query -W -f '${Version}' fenced)" = "$newer" ]
answers
fencectl status -o json | tr -d ' \n' | grep -qF "\"version\":\"$newer\""
[ "$(main)" != "$old" ]
systemctl is-enabled --quiet fenced
cmp /share/fenced.yaml /etc/fenced/fenced.yaml
is "root fenced 640" /etc/fenced/fenced.yaml
echo "ok upgraded: restarted, and the configuration kept"

dpkg --remove fenced >/tmp/answer 2>&1
[ "$(main)" = 0 ]
not pgrep -x fenced
[ ! -e /run/fenced-login.sock ]
[ -z "$(find /etc/systemd -lname '*fenced*')" ]
cmp /share/fenced.yaml /etc/fenced/fenced.yaml
[ -s /var/lib/fenced/state.db ]
[ ! -e /usr/bin/fencectl ]
echo "ok removed: stopped, state and configuration kept"

dpkg --purge fenced >/tmp/answer 2>&1
[ ! -e /etc/fenced/fenced.yaml ]
[ -s /var/lib/fenced/state.db ]
[ -e /etc/fenced/nowhere.kubeconfig ]
echo "ok purged: state kept"

# The package of a version whose manifests were documents.
put old
[ -e /usr/share/doc/fenced/examples/rbac.yaml ]
[ -e /usr/share/zsh/site-functions/_fencectl ]
install -m 0640 -g fenced /share/fenced.yaml /etc/fenced/
systemctl enable --now fenced 2>/tmp/answer
within $patience answers
old=$(main)
put newer
within $patience answers
[ "$(main)" != "$old" ]
cmp /share/fenced.yaml /etc/fenced/fenced.yaml
[ -e /etc/fenced/nowhere.kubeconfig ]
[ -e /usr/share/fenced/rbac.yaml ]
rest=$(dpkg-query -L fenced | leftovers)
[ -z "$rest" ] || { echo "left: $rest" >&2; false; }
echo "ok upgraded from the old layout: restarted, the configuration kept, and nothing left behind"
