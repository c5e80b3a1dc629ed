#!/bin/sh
# Prints a value of packaging/project: project.sh version|date|maintainer|security. "check" fails while there are placeholders.
set -eu
file=$(dirname "$0")/project
if [ "$1" = check ]; then
	! grep -n '^[a-z]*:.*\.invalid' "$file" >&2 || { echo "project.sh: these are placeholders; write the real ones into packaging/project and SECURITY.md" >&2; exit 1; }
	exit 0
fi
value=$(sed -n "s/^$1: //p" "$file")
[ -n "$value" ] || { echo "project.sh: packaging/project has no $1" >&2; exit 1; }
echo "$value"
