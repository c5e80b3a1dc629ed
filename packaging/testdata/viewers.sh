#!/bin/bash
# Vera may look, Nina may not, and Otto could before there was a group for it.
set -eEu
trap 'echo "failed in line $LINENO" >&2; systemctl --no-pager status fenced >&2; cat /tmp/answer /tmp/log >&2' ERR
. /share/kit.sh

as() { setpriv --reuid="$1" --regid="$1" --init-groups "${@:2}" >/tmp/answer 2>&1; } # as USER COMMAND...

# The exit code of fencectl status tells that the clusters cannot be seen.
looks() { as "$1" fencectl status -o json || grep -q '"armed"' /tmp/answer; }

refused() { # refused USER WORDS: who may not even connect
	local code=0
	as "$1" fencectl status || code=$?
	[ $code = 4 ] && grep -q "$2" /tmp/answer
}

keeps() { # keeps USER FILE...: none of them is for the user
	local f
	for f in "${@:2}"; do
		[ -e "$f" ]
		not as "$1" cat "$f"
	done
}

restarted() { # restarted GROUP: who has the socket then
	: >/tmp/log
	systemctl restart fenced
	[ "$(stat -c '%G %a' /run/fenced/fenced.sock)" = "$1 660" ]
}

logged() { within 60 grep -q "$1" /tmp/log; } # the daemon does not wait for its log

# As the package's scripts do.
systemd-tmpfiles --create fenced.conf
chgrp fenced /etc/fenced/nowhere.kubeconfig
chmod 0640 /etc/fenced/nowhere.kubeconfig
install -m 0640 -g fenced /dev/null /etc/fenced/credentials/worker-1
mkdir -p /run/systemd/system/fenced.service.d
printf '[Service]\nStandardError=append:/tmp/log\nPrivateTmp=no\n' >/run/systemd/system/fenced.service.d/log.conf
systemctl daemon-reload
secrets="/etc/fenced/credentials/worker-1 /etc/fenced/nowhere.kubeconfig /etc/fenced/fenced.yaml"

restarted fenced-view
not grep -q '"level":"warn".*group' /tmp/log
looks vera
keeps vera $secrets
as vera fencectl pause --reason "look at this" || [ $? = 4 ]
grep -q "needs role operator" /tmp/answer
as vera fencectl support-bundle -o /tmp/vera.tar.gz # has what she may see, and says what it has not
[ "$(stat -c '%U %a' /tmp/vera.tar.gz)" = "vera 600" ]
tar -xzf /tmp/vera.tar.gz -C /tmp
grep -q '"armed"' /tmp/fenced-support/status.json
grep -q 'configuration/fenced.yaml: not read: .*permission denied' /tmp/fenced-support/MANIFEST
grep -q 'audit.txt: not read: .*permission denied' /tmp/fenced-support/MANIFEST
not grep -rq 'name: prod' /tmp/fenced-support/configuration
fencectl support-bundle -o /tmp/root.tar.gz >/tmp/answer # has it all
tar -xzf /tmp/root.tar.gz -C /tmp
grep -q 'ActiveState=active' /tmp/fenced-support/unit.txt
grep -q 'are as they were written' /tmp/fenced-support/audit.txt
grep -q 'kubeconfig: ' /tmp/fenced-support/configuration/fenced.yaml
echo "ok who is in fenced-view looks, and reads no password"

refused nina "usermod -aG fenced-view"
keeps nina $secrets
echo "ok others cannot connect"

# The shipped examples, installed as they say: events reach a webhook and the program of the mail.
cat >/tmp/hook.py <<'END'
import http.server
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/tmp/hooked", "ab") as f:
            f.write(self.headers["Authorization"].encode() + b" " + body)
        self.send_response(204)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
with open("/tmp/port", "w") as f:
    print(server.server_port, file=f)
server.serve_forever()
END
python3 /tmp/hook.py 2>/dev/null &
hook=$!
within 60 test -s /tmp/port
cd "$(dirname "$(find /usr/share -name fenced-webhook.service)")"
useradd --system --gid fenced-view --home-dir / --shell /usr/sbin/nologin fenced-events
for name in webhook mail; do
	install -D -m 0755 "fenced-$name.sh" "/usr/local/libexec/fenced-$name"
	install -D -m 0644 "fenced-$name.service" "/etc/systemd/system/fenced-$name.service"
done
install -D -m 0600 /dev/null /etc/fenced-credentials/webhook
printf 'url = "http://127.0.0.1:%s/"\nheader = "Authorization: Bearer s3cret"\n' "$(cat /tmp/port)" >/etc/fenced-credentials/webhook
systemctl daemon-reload
systemctl enable --now fenced-webhook fenced-mail 2>/dev/null
cd /
within 60 grep -q '^Bearer s3cret {"apiVersion":"v1","seq":1,' /tmp/hooked
within 60 test -s /var/lib/fenced-webhook/place
within 60 test -s /var/lib/fenced-mail/place
[ "$(stat -c '%U %a' /var/lib/fenced-mail/place)" = "fenced-events 600" ]
systemctl kill --signal=KILL fenced
within 120 grep -q '"type":"Restarted"' /tmp/hooked
within 60 test -S /run/fenced/fenced.sock
systemctl kill --signal=KILL fenced-webhook
within 60 fencectl log-level info --reason "while nobody reads" >/tmp/answer 2>&1
within 120 grep -q '"type":"Order"' /tmp/hooked
systemctl disable --now fenced-webhook fenced-mail 2>/dev/null
kill "$hook"
userdel fenced-events
echo "ok the examples tell elsewhere what happens"

# Vera holds as many connections as she can get, also with the uids that a user namespace gives her, which keep the group.
cat >/tmp/hold.py <<'END'
import socket, sys, time
held = []
for _ in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/fenced/fenced.sock")
    held.append(s)
    try:
        s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: f\r\n\r\n")
    except BrokenPipeError:
        pass
print("held", flush=True)
time.sleep(900)
END
descriptors() { ls "/proc/$(systemctl show --value -p MainPID fenced)/fd" | wc -l; }
before=$(descriptors)
holders=()
hold() { # hold UID N
	setpriv --reuid="$1" --regid=fenced-view --clear-groups python3 /tmp/hold.py "$2" >>/tmp/held &
	holders+=($!)
}
: >/tmp/held
hold vera 500
for uid in $(seq 100000 100019); do
	hold "$uid" 100
done
all_hold() { [ "$(wc -l </tmp/held)" = 21 ]; }
within 300 all_hold
[ "$(descriptors)" -lt $((before + 100)) ] # a socket and a pidfd each
fencectl pause --reason storm >/tmp/answer 2>&1
kill "${holders[@]}"
echo "ok viewers take no seat of an admin"

groupdel fenced-view
sed -i /fenced-view/d /usr/lib/sysusers.d/*.conf
usermod -aG fenced otto
printf 'control: {roles: {viewer: ["group:fenced"]}}\n' >>/etc/fenced/fenced.yaml
as otto cat /etc/fenced/credentials/worker-1 # so it was
sh -eu /share/prein 2 # the package's, at an upgrade
restarted fenced-view
looks otto
logged '"members":\["otto"\]'
logged 'usermod -aG fenced-view USER && gpasswd -d USER fenced'
echo "ok an installation from before goes on, and is told what to change"

gpasswd -d otto fenced >/dev/null
sed -i /^control/d /etc/fenced/fenced.yaml
restarted fenced-view
looks otto
keeps otto $secrets
echo "ok it is as it should be once that is done"

groupdel fenced-view
restarted fenced
logged "only root may use the control socket"
fencectl status -o json >/tmp/answer 2>&1 || grep -q '"armed"' /tmp/answer
echo "ok without the group root looks, and the daemon goes on"
