#!/bin/bash
# Signs the files of a release, and writes their provenance and their sums: seal.sh DIR VERSION COMMIT [KEY]. KEY is what gpg knows the key by;
# without it nothing is signed. rpm checks the signatures of RPMs, and SHA256SUMS.asc is that of the list of sums, which is of all others.
set -euo pipefail
export LC_ALL=C

die() { echo "seal.sh: $*" >&2; exit 1; }

[ $# -eq 3 ] || [ $# -eq 4 ] || die "usage: seal.sh DIR VERSION COMMIT [KEY]"
dir=$(realpath "$1") key=${4:-}
here=$(dirname "$(realpath "$0")")
[ -z "$key" ] || "$here/rpm/sign.sh" "$key" "$dir"/*.rpm
"$here/tools/run.sh" provenance "$2" "$3" "$dir"/fenced* >"$dir/provenance.intoto.json"
cd "$dir"
sha256sum -- fenced* provenance.intoto.json >SHA256SUMS
[ -z "$key" ] || gpg --batch --yes --local-user "$key" --armor --detach-sign SHA256SUMS
