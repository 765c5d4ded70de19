#!/usr/bin/env bash
# The Python client's tests against a server of their own: a free loopback port, a temporary data folder, the
# built-in model. usage: tests/python/run.sh RELSERVE_PROGRAM [arguments of `relserve serve`]
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1
shift

wanted=tests/python/requirements.txt
if ! cmp -s "$wanted" .venv/installed.txt; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" .venv/installed.txt
fi

work=$(mktemp -d)
mkfifo "$work/said"
"$program" serve --listen 127.0.0.1:0 --data-dir "$work/data" "$@" >"$work/said" 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# The server says its address and its first key; both are read while it still writes, so nothing is polled.
address= key=
while [ -z "$key" ] && read -r line; do
  case $line in
    *" on http://"*) address=${line##* on } ;;
    "API key: "*) key=${line#API key: } ;;
  esac
done <"$work/said"
if [ -z "$address" ] || [ -z "$key" ]; then
  echo "the server did not start:" >&2
  cat "$work/log" >&2
  exit 1
fi

export RELSERVE_BASE_URL="$address/v1" RELSERVE_API_KEY="$key"
.venv/bin/python -m unittest discover --start-directory tests/python
