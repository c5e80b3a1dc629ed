#!/usr/bin/env bash
# How much of internal/ one plain fence executes, with the API server and the BMC faked: the number of files and of functions. A stranger
# who wants to know what happens reads these. With a file as argument, what was executed is written there.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -vet=off -count=1 -run '^TestUnknownNodeIsFencedAndComesBack$' -coverpkg=./internal/... -coverprofile="$dir/fence" ./internal/engine >"$dir/out" || { cat "$dir/out"; exit 1; }
go tool cover -func="$dir/fence" | awk '$1 != "total:" && $NF != "0.0%" { split($1, at, ":"); print at[1] ": " $2 }' | sort >"${1:-$dir/list}"
echo "a plain fence executes $(wc -l <"${1:-$dir/list}") functions in $(cut -d: -f1 "${1:-$dir/list}" | sort -u | wc -l) files of internal/"
