#!/bin/sh
# Runs the program of this machine's platform.
case "$(uname -m)" in
x86_64) platform=linux-amd64 ;;
aarch64) platform=linux-arm64 ;;
*) echo "load: there is no program for $(uname -m): run this on x86_64 or aarch64" >&2; exit 1 ;;
esac
exec "$(dirname "$0")/bin/load-$platform" "$@"
