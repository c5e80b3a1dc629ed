#!/bin/sh
# Prints the time of everything that is packed, in seconds since 1970: SOURCE_DATE_EPOCH, or else midnight of the version's date, which
# rpm takes from the spec also where somebody rebuilds the source RPM.
set -eu
[ -z "${SOURCE_DATE_EPOCH:-}" ] || { echo "$SOURCE_DATE_EPOCH"; exit 0; }
TZ=UTC date -d "$("$(dirname "$0")/project.sh" date) 00:00" +%s
