#!/usr/bin/env bash
# Loops of SDKs over columns of 48, 16 and 6 rows, three tenants at once, on one server that takes each loop for a
# relQuery and on one that takes each request for itself: mean seconds of whole loops, and their ratio.
# usage: tests/clients/loops/run.sh PROGRAM MODEL.gguf [CLIENT ..]    clients: asyncio langchain daft ray lotus
#
# Each client is installed from its registry into an environment of its own, and skipped with a line where it cannot
# be had. The servers take turns, three times each. Eight rows run at a time, so that the loops of one small machine queue
# up as those of many people do before a GPU.
set -euo pipefail
cd "$(dirname "$0")/../../.."
program=$1 model=$2
clients=("${@:3}")
[ "${#clients[@]}" -gt 0 ] || clients=(asyncio langchain daft ray lotus)
declare -A packages=([asyncio]=openai [langchain]=langchain-openai [daft]='daft[openai]' [ray]='ray[data] openai' [lotus]=lotus-ai)
rounds=${ROUNDS:-3}

once() { # CLIENT IDLE_MS_MAX: one server's loops, a line each
  (
    export work=$(mktemp -d)
    printf '[scheduler]\npolicy = "relserve"\nsequences_max = 8\n[coalesce]\nidle_ms_max = %s\n' "$2" >"$work/relserve.toml"
    . tests/server.sh
    serve "$program" --config "$work/relserve.toml" --model "$model"
    loops=()
    for rows in 48 16 6; do
      loops+=("$rows=$("$program" key create "$rows rows" --tenant "t$rows" --data-dir "$work/data" | sed -n 's/^API key: //p')")
    done
    "tests/clients/loops/.venv-$1/bin/python" tests/clients/loops/loops.py "$address" "$1" "${loops[@]}"
  )
}

failed=0
for client in "${clients[@]}"; do
  environment=tests/clients/loops/.venv-$client
  if ! [ -e "$environment/installed" ]; then
    rm -rf "$environment" && python3 -m venv "$environment"
    # shellcheck disable=SC2086
    if ! "$environment/bin/pip" install --quiet --disable-pip-version-check ${packages[$client]}; then
      echo "skipped: $client cannot be had"
      continue
    fi
    touch "$environment/installed"
  fi
  lines=$(mktemp)
  for _ in $(seq "$rounds"); do
    for setting in 2000 0; do
      once "$client" "$setting" | sed "s/^{/{\"idle_ms_max\": $setting, /" >>"$lines" || failed=1
    done
  done
  python3 - "$client" "$lines" <<'PY' || failed=1
import json, statistics, sys
client, lines = sys.argv[1], [json.loads(line) for line in open(sys.argv[2])]
def median(setting, rows):
    return statistics.median(one["seconds"] for one in lines if (one["idle_ms_max"], one["rows"]) == (setting, rows))
sizes = sorted({one["rows"] for one in lines})
means = {}
for setting, name in ((2000, "loops"), (0, "requests")):
    seconds = [median(setting, rows) for rows in sizes]
    means[name] = statistics.mean(seconds)
    each = ", ".join(f"{rows} rows {each:.2f} s" for rows, each in zip(sizes, seconds))
    print(f"{client}: as {name}: mean {means[name]:.2f} s ({each})")
print(f"{client}: requests / loops: {means['requests'] / means['loops']:.2f}")
PY
  rm -f "$lines"
done
exit "$failed"
