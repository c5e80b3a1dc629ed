#!/bin/bash
# Signs RPMs in place: sign.sh KEY FILE... KEY is what gpg knows the key by; its home is GNUPGHOME, as always. A signature is added to
# the header and changes no byte of what was built, so a build can be compared with another before it is signed.
set -euo pipefail

die() { echo "sign.sh: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "usage: sign.sh KEY FILE..."
key=$1
shift
gpg=$(command -v gpg2 || command -v gpg) || die "gpg is missing; install the package gnupg (Debian) or gnupg2 (Fedora, RHEL)"
command -v rpmsign >/dev/null || die "rpmsign is missing; install the package rpm (Debian) or rpm-sign (Fedora, RHEL)"
"$gpg" --list-secret-keys "$key" >/dev/null 2>&1 || die "gpg has no secret key '$key'; gpg --list-secret-keys shows those that it has"
# Debian's macro names gpg2, which is not there.
rpmsign --define "__gpg $gpg" --define "_gpg_name $key" --addsign "$@" >/dev/null
