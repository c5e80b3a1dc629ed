#!/bin/sh
# Installs what `make build` left in bin/: install.sh DESTDIR PREFIX. The RPM is made with it, too. It needs no root
# below a DESTDIR, and creates no user: systemd-sysusers and systemd-tmpfiles do, from the files installed here.
# ZSH_COMPLETIONS names where zsh looks. FENCECTL names a fencectl that runs on this machine when bin/ was built for another.
set -eu
umask 022
dest=$1 prefix=${2:-/usr}
cd "$(dirname "$0")/.."
fencectl=${FENCECTL:-bin/fencectl}

put() { # put MODE SOURCE TARGET
	mkdir -p "$dest${3%/*}"
	install -m "$1" "$2" "$dest$3"
}

put 0755 bin/fenced "$prefix/libexec/fenced/fenced"
put 0755 bin/fenced-login "$prefix/libexec/fenced/fenced-login"
put 0755 bin/fencectl "$prefix/bin/fencectl"
ln -sf ../libexec/fenced/fenced "$dest$prefix/bin/fenced" # a link: see the comment in fenced.service
for unit in fenced.service fenced.socket fenced-login.service fenced-login.socket fenced-pause.service fenced-resume.service; do
	put 0644 "packaging/systemd/$unit" "$prefix/lib/systemd/system/$unit"
	[ "$prefix" = /usr ] || sed -i "s|=/usr/libexec/|=$prefix/libexec/|" "$dest$prefix/lib/systemd/system/$unit"
done
put 0644 packaging/systemd/90-fenced.preset "$prefix/lib/systemd/system-preset/90-fenced.preset"
put 0644 packaging/systemd/fenced.sysusers "$prefix/lib/sysusers.d/fenced.conf"
put 0644 packaging/systemd/fenced.tmpfiles "$prefix/lib/tmpfiles.d/fenced.conf"

# An administrator's file is never written over.
config=/etc/fenced/fenced.yaml
[ ! -e "$dest$config" ] || config=$config.new
put 0640 configs/fenced.yaml "$config"
for d in conf.d hosts.d policies.d credentials; do
	install -d -m 0750 "$dest/etc/fenced/$d"
done
chmod 0750 "$dest/etc/fenced"

for page in fenced.8 fencectl.8 fenced.yaml.5 fenced-policy.5; do
	put 0644 "docs/man/$page" "$prefix/share/man/man${page##*.}/$page"
	gzip -9nf "$dest$prefix/share/man/man${page##*.}/$page"
done
put 0644 LICENSE "$prefix/share/licenses/fenced/LICENSE"
put 0644 THIRD_PARTY_NOTICES "$prefix/share/licenses/fenced/THIRD_PARTY_NOTICES"
doc=$prefix/share/doc/fenced
# All of them, for they link to each other, and to configs.
for f in README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md docs/*.md docs/*.svg docs/*.png docs/adr/*.md docs/systems/*.md docs/quickstart/*.md; do
	put 0644 "$f" "$doc/$f"
done
ln -sf ../../licenses/fenced/LICENSE "$dest$doc/LICENSE"
# What somebody applies or copies is no document: hosts without documents have it, too.
share=$prefix/share/fenced
ln -sfn ../../fenced "$dest$doc/configs"
put 0644 bin/sbom.cdx.json "$share/sbom.cdx.json"
for f in fenced.yaml rbac.yaml rbac-medik8s.yaml crds/fenced.io_fencedremediations.yaml crds/fenced.io_fencedremediationtemplates.yaml crds/rbac.yaml kubernetes/evaluate.yaml kubernetes/observe.yaml kubernetes/protect-nodes.yaml kubernetes/release-pods.yaml kubernetes/respond.yaml kubernetes/templates.yaml \
	hosts.d/example.yaml policies.d/example.yaml policies.d/fencepolicy.yaml samples/cluster-api.yaml samples/fencepolicy.yaml samples/medik8s.yaml samples/openshift.yaml fenced-policy.schema.json prometheus/fenced.rules.yaml grafana/fenced.json; do
	put 0644 "configs/$f" "$share/$f"
done
(cd configs && find chart kustomize -type f) | while read -r f; do
	put 0644 "configs/$f" "$share/$f"
done
for f in fenced-local-ipmi.conf 60-fenced-ipmi.rules; do
	put 0644 "packaging/local-ipmi/$f" "$share/local-ipmi/$f"
done
for f in fenced-credentials.conf fenced-networks.conf fenced-webhook.service fenced-webhook.sh fenced-mail.service fenced-mail.sh; do
	put 0644 "packaging/systemd/examples/$f" "$share/systemd/$f"
done

complete() { # complete SHELL TARGET
	mkdir -p "$dest${2%/*}"
	"$fencectl" completion "$1" >"$dest$2"
	chmod 0644 "$dest$2"
}
complete bash "$prefix/share/bash-completion/completions/fencectl"
complete zsh "${ZSH_COMPLETIONS:-$prefix/share/zsh/site-functions}/_fencectl" # Debian looks elsewhere
complete fish "$prefix/share/fish/vendor_completions.d/fencectl.fish"

[ -n "$dest" ] || echo "install.sh: now run: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload" >&2
