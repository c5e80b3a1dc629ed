#!/bin/bash
# rpm and the package, by a newer systemd and a newer rpm than this machine's, on a host without dpkg, whose clusters cannot be reached.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer >&2' ERR
. /share/kit.sh
. /share/versions

package() { rpm "$@" >/tmp/answer 2>&1; }

# No dpkg any more, and the database of rpm where Fedora has it.
rm -rf /var/lib/dpkg /usr/bin/dpkg* /usr/bin/apt*
mkdir -p /etc/rpm /usr/lib/sysimage/rpm
echo '%_dbpath /usr/lib/sysimage/rpm' >/etc/rpm/macros.fedora
rpm_host
[ -e /usr/lib/sysimage/rpm/rpmdb.sqlite ]

systemctl --version | grep -q '^systemd 257'
rpm --version | grep -q ' 4\.20'
echo "ok it is systemd 257 and rpm 4.20"

package -i /share/fenced-"$older"-1.*.rpm
not systemctl is-enabled --quiet fenced
not systemctl is-active --quiet fenced
not systemctl is-enabled --quiet fenced.socket
is "root fenced 750" /etc/fenced/credentials
is "root fenced 640" /etc/fenced/fenced.yaml
is "fenced fenced 700" /var/lib/fenced
echo "ok installed: nothing enabled, nothing started"

install -m 0640 -g fenced /share/nowhere.kubeconfig /etc/fenced/
cat /share/fenced.yaml >/etc/fenced/fenced.yaml
systemctl enable --now fenced 2>/tmp/answer
within $patience answers
is "fenced fenced-view 660" /run/fenced/fenced.sock
echo "ok started"

old=$(main)
package -U /share/fenced-"$newer"-1.*.rpm
[ "$(rpm -q --qf '%{VERSION}' fenced)" = "$newer" ]
within $patience answers
[ "$(main)" != "$old" ]
fencectl status -o json | tr -d ' \n' | grep -qF "\"version\":\"$newer\""
systemctl is-enabled --quiet fenced
cmp /share/fenced.yaml /etc/fenced/fenced.yaml
is "root fenced 640" /etc/fenced/fenced.yaml
echo "ok upgraded: restarted, and the configuration kept"

package -e fenced
[ "$(main)" = 0 ] || [ -z "$(main)" ]
not pgrep -x fenced
[ ! -e /run/fenced-login.sock ]
[ -z "$(find /etc/systemd -lname '*fenced*')" ]
[ ! -e /usr/bin/fencectl ]
cmp /share/fenced.yaml /etc/fenced/fenced.yaml.rpmsave
[ -s /var/lib/fenced/state.db ]
echo "ok erased: stopped, state and changed configuration kept"

# The package of a version whose manifests were documents.
rm -r /etc/fenced
package -i /share/old/*.rpm
[ -e /usr/share/doc/fenced/examples/rbac.yaml ]
install -m 0640 -g fenced /share/nowhere.kubeconfig /etc/fenced/
cat /share/fenced.yaml >/etc/fenced/fenced.yaml
echo mine >/etc/fenced/hosts.d/mine.yaml.off
systemctl enable --now fenced 2>/tmp/answer
within $patience answers
old=$(main)
package -U /share/fenced-"$newer"-1.*.rpm
within $patience answers
[ "$(main)" != "$old" ]
cmp /share/fenced.yaml /etc/fenced/fenced.yaml
[ -e /etc/fenced/hosts.d/mine.yaml.off ]
[ -e /usr/share/fenced/rbac.yaml ]
rest=$(rpm -ql fenced | leftovers)
[ -z "$rest" ] || { echo "left: $rest" >&2; false; }
rpm -V fenced --nomtime >/tmp/answer || not grep -v ' c /etc/fenced/fenced.yaml$' /tmp/answer
echo "ok upgraded from the old layout: restarted, the configuration kept, and nothing left behind"
