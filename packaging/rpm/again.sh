#!/bin/sh
# Builds the RPM and the source RPM once more, compressed as they are shipped, and compares them byte for byte with those in DIR:
# again.sh VERSION DIR. Signed ones are not compared: each signature has its own time.
set -eu

[ $# -eq 2 ] || { echo "usage: again.sh VERSION DIR" >&2; exit 2; }
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
RPM_SIGN_KEY='' "$(dirname "$0")/build.sh" "$1" "$top" >/dev/null
for rpm in "$top"/*.rpm; do
	name=${rpm##*/}
	if rpm -qp --qf '%{SIGPGP:pgpsig}%{SIGGPG:pgpsig}%{RSAHEADER:pgpsig}%{DSAHEADER:pgpsig}' "$2/$name" | grep -q 'Key ID'; then
		echo "again.sh: $2/$name is signed and not compared"
	else
		cmp "$2/$name" "$rpm"
		echo "again.sh: built twice, the same bytes: $2/$name"
	fi
done
