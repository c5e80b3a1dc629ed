#!/bin/sh
# Prints the commit of this checkout, with "-modified" where a file that git tracks has other content, or "unknown" where git knows none.
# The packages are built where there is no git; fenced has this in its metric fenced_build_info.
set -eu
cd "$(dirname "$0")/.."
# The command line is the only place from where git takes this permission for a checkout of another user.
commit=$(git -c safe.directory="$PWD" rev-parse --verify --quiet HEAD 2>/dev/null) || { echo unknown; exit 0; }
git -c safe.directory="$PWD" diff --quiet HEAD -- || commit=$commit-modified
echo "$commit"
