#!/bin/sh
# Prints the time of everything that is packed, in seconds since 1970: SOURCE_DATE_EPOCH, or else midnight of the newest change that the
# spec names, which rpm takes also where somebody rebuilds the source RPM.
set -eu
[ -z "${SOURCE_DATE_EPOCH:-}" ] || { echo "$SOURCE_DATE_EPOCH"; exit 0; }
day=$(sed -n '/^%changelog/{n;s/^\* \(.* [0-9]\{4\}\) .*/\1/p;}' "$(dirname "$0")/rpm/fenced.spec")
TZ=UTC date -d "$day 00:00" +%s
