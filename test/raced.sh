#!/usr/bin/env bash
# The tests of the engine that CI runs with the race detector, internal/engine/testdata/race.txt, must execute nearly all that the whole
# package executes: the detector sees only what runs. For what is missing, add the shortest test that executes it.
set -euo pipefail
cd "$(dirname "$0")/.."
list=internal/engine/testdata/race.txt least=95
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
packages=$(go list ./internal/... | grep -vxFf <(go list "$@") | paste -sd,)
go test -count=1 -coverpkg="$packages" -coverprofile="$dir/all" ./internal/engine
go test -count=1 -coverpkg="$packages" -coverprofile="$dir/some" -run "^($(paste -sd'|' "$list"))\$" ./internal/engine
awk -v least=$least '
    FNR == 1 { next }
    FILENAME == ARGV[1] { if ($3 > 0) some[$1] = 1; next }
    $3 > 0 && !($1 in seen) { seen[$1] = 1; all += $2; if ($1 in some) both += $2; else print $1 }
    END { printf "with the race detector: %d of %d statements, %.1f %%\n", both, all, 100 * both / all; exit 100 * both < least * all }' "$dir/some" "$dir/all"
