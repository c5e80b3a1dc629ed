#!/bin/sh
# Prints a value of packaging/project: project.sh version|date|maintainer|security|url. "check" fails while there are placeholders. "move URL" writes
# another url, in all files that git tracks, and takes it for the real one.
set -eu
file=$(dirname "$0")/project
value=$(sed -n "s/^$1: //p" "$file")
case $1 in
check)
	! grep -nE '^[a-z]*:.*\.invalid|^placeholder: ' "$file" >&2 || { echo "project.sh: these are placeholders; write the real ones into packaging/project and SECURITY.md, and the url with project.sh move" >&2; exit 1; }
	exit 0
	;;
move)
	old=$("$0" url)
	cd "$(dirname "$0")/.."
	git grep -lF "$old" | xargs sed -i "s,$old,$2,g"
	sed -i '/^placeholder: url$/d' packaging/project
	exit 0
	;;
esac
[ -n "$value" ] || { echo "project.sh: packaging/project has no $1" >&2; exit 1; }
echo "$value"
