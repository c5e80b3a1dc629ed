#!/bin/sh
# Looks the code up in the database of known vulnerabilities: vuln.sh PACKAGES; without any it only fetches govulncheck. GOVULNDB names a mirror of the database,
# and GOVULNCHECK a govulncheck that is built already.
# Exit status: 0 nothing is known, 3 something is, 75 the database cannot be reached and nothing was checked, else a failure.
set -eu
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0
db=${GOVULNDB:-https://vuln.go.dev}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -n "${GOVULNCHECK:-}" ] || GOBIN=$tmp go install "$govulncheck" # not go run, which makes every exit status 1
[ $# -gt 0 ] || exit 0
look() {
	status=0
	"${GOVULNCHECK:-$tmp/govulncheck}" -db "$db" "$@" 2>"$tmp/stderr" || status=$?
	# No answer, or one that is not the database's: a proxy forbids it, its server is out of order. Of a mirror the second text
	# is all that govulncheck says then.
	if [ "$status" -eq 1 ] && grep -Eq '^(govulncheck: fetching vulnerabilities: (Get |HTTP GET )|creating client: unrecognized vulndb format)' "$tmp/stderr"; then
		cat "$tmp/stderr" >&2
		echo "vuln: the database $db cannot be reached: NOTHING WAS CHECKED for known vulnerabilities" >&2
		echo "vuln: run make vuln where it can be, or name a mirror of it: GOVULNDB=URL make vuln" >&2
		exit 75
	fi
}

# A module of one line first: govulncheck types the whole code, 20 s of a processor, before it asks the database.
mkdir "$tmp/line"
printf 'module line\n\ngo 1.26\n' >"$tmp/line/go.mod"
echo 'package line' >"$tmp/line/line.go"
look -C "$tmp/line" ./...
look "$@"
cat "$tmp/stderr" >&2
[ "$status" -ne 0 ] || echo "vuln: no vulnerability in $db affects $*"
exit "$status"
