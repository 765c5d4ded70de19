#!/usr/bin/env bash
# Known cells asked by wrk on connections that send the next request once they have the reply: what its clients and this
# server do together in a second, and the latencies. `loadgen edge` is the bench with limits; this is another's client.
# usage: tests/edge/wrk.sh PROGRAM [CONNECTIONS [SECONDS]]    wrk must be there (Debian: apt-get install wrk)
# It ends with 2 where a reply was no answer.
set -euo pipefail
program=$(realpath "$1") connections=${2:-16} seconds=${3:-10}
cd "$(dirname "$0")"
command -v wrk >/dev/null || { echo "skipped: wrk is not installed" >&2; exit 3; }

work=$(mktemp -d)
. ../server.sh
serve "$program"
cat >"$work/cells.lua" <<LUA
wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer $key"
wrk.headers["Content-Type"] = "application/json"
local number = 0
function request()
  number = (number + 1) % 100
  local text = "A wonderful film, which I saw " .. number .. " times."
  return wrk.format(nil, nil, nil,
    '{"calls": [{"function": "classify", "args": ["' .. text .. '", ["positive", "negative"]]}]}')
end
LUA
# Once, so that the answers are known.
wrk --threads 1 --connections 1 --duration 2s --script "$work/cells.lua" "$address/v1/cells" >/dev/null
wrk --threads 1 --connections "$connections" --duration "${seconds}s" --latency --script "$work/cells.lua" "$address/v1/cells" |
  tee "$work/report"
! grep -q "Non-2xx\|Socket errors" "$work/report" || exit 2
