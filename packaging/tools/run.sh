#!/bin/sh
# Runs one of the tools: run.sh TOOL ARGUMENT... Paths in the arguments are absolute. What the caller builds with is not what the tools are built with.
set -eu
tool=$1
shift
exec env -u GOOS -u GOARCH GOFLAGS= CGO_ENABLED=0 go -C "$(dirname "$0")" run "./$tool" "$@"
