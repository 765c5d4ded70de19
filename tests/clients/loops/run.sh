#!/usr/bin/env bash
# Loops of SDKs over columns of 48, 16 and 6 rows, three tenants at once, on a server that takes each loop for a relQuery
# and on one that takes each request for itself: one table of the seconds until whole loops have their last rows.
# usage: tests/clients/loops/run.sh PROGRAM MODEL [CLIENT ..]
#   MODEL: a GGUF file or a folder, or a name that `relserve pull` lists, which is fetched into target/loops, once
#   clients: asyncio langchain daft ray lotus
#
# What it prints can be kept as it is: tests/clients/loops/run.sh .. >docs/measurements/loops-DATE.txt (what goes on is
# told beside it). Each client is installed in the version of its requirements-FAMILY.txt, here or in tests/clients/openai,
# into an environment of its own, and skipped with a line where it cannot be had; lotus needs what tests/vllm/install.sh
# installs. The servers take turns, ROUNDS times each (3). Eight rows run at a time, so that the loops of one small machine
# queue up as those of many people do before a GPU.
set -euo pipefail
program=$(realpath "$1") model=$2
[ ! -e "$model" ] || model=$(realpath "$model")
cd "$(dirname "$0")/../../.."
clients=("${@:3}")
[ "${#clients[@]}" -gt 0 ] || clients=(asyncio langchain daft ray lotus)
rounds=${ROUNDS:-3}
sizes=(48 16 6)
requests=$((${sizes[*]/#/+}))
. tests/clients/environment.sh
# No client tells its makers about these runs.
export DO_NOT_TRACK=1 LITELLM_LOCAL_MODEL_COST_MAP=True RAY_USAGE_STATS_ENABLED=0 PYTHONWARNINGS=ignore

if [ ! -e "$model" ]; then
  said=$("$program" pull "$model" --data-dir target/loops) || { echo "skipped: $model is no file and could not be fetched" >&2; exit 3; }
  model=${said##*--model }
fi

family() { # CLIENT: the folder and the name of its list
  case $1 in
    asyncio) echo tests/clients/openai openai ;;
    langchain | daft | lotus) echo tests/clients/openai "$1" ;;
    ray) echo tests/clients/loops ray ;;
    *) echo "no client: $1" >&2; exit 2 ;;
  esac
}

once() { # CLIENT PYTHON IDLE_MS_MAX: one server's loops, a line each
  (
    export work=$(mktemp -d)
    printf '[scheduler]\npolicy = "relserve"\nsequences_max = 8\n[coalesce]\nidle_ms_max = %s\n' "$3" >"$work/relserve.toml"
    . tests/server.sh
    serve "$program" --config "$work/relserve.toml" --model "$model"
    # Who reads what this prints has the last word on its status: nothing here ends the shell by itself.
    loops=()
    for rows in "${sizes[@]}"; do
      made=$("$program" key create "$rows rows" --tenant "t$rows" --data-dir "$work/data") || exit
      made=$(sed -n 's/^API key: //p' <<<"$made")
      [ -n "$made" ] || { echo "\`key create\` told no key" >&2; exit 1; }
      loops+=("$rows=$made")
    done
    "$2" tests/clients/loops/loops.py "$address" "$1" "${loops[@]}" && exit
    echo "the server's log ends:" >&2
    tail -n 20 "$work/log" >&2
    exit 1
  )
}

load=$(cut -d ' ' -f 1 /proc/loadavg)
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
: >"$kept/lines"
failed=0 notes=() measured=()
for client in "${clients[@]}"; do
  found=$(family "$client")
  read -r folder name <<<"$found"
  if ! environment "$folder" "$name"; then
    notes+=("skipped: $client (its packages could not be installed)")
    continue
  fi
  python=$folder/.venv-$name/bin/python
  is_whole=true
  : >"$kept/own"
  for round in $(seq "$rounds"); do
    for joins in true false; do
      if [ "$joins" = true ]; then idle=2000; else idle=0; fi
      echo "$client, round $round of $rounds, joins: $joins" >&2
      # A client may print more than the lines of loops.py.
      once "$client" "$python" "$idle" |
        sed -nE "s/^\{(\"(rows|joined)\": .*)/{\"client\": \"$client\", \"joins\": $joins, \1/p" >>"$kept/own" || is_whole=false
    done
  done
  if $is_whole; then
    cat "$kept/own" >>"$kept/lines"
    measured+=("$(tr '\n' ' ' <"$folder/requirements-$name.txt" | sed 's/ *$//')")
  else
    notes+=("FAILED: $client (what failed is told beside this table)")
    failed=1
  fi
done

processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
echo "# tests/clients/loops/run.sh relserve $(basename "$model") ${clients[*]}"
echo "# $("$program" --version) of commit $(git rev-parse --short HEAD), $(date -u +%F); $(nproc) cores, ${processor:-$(uname -m)}; load before: $load"
echo "# Three tenants' loops of ${sizes[*]} rows begin at once, 8 rows run at a time: seconds until a loop has its last row, medians of $rounds"
echo "# rounds. joined: coalesce.idle_ms_max = 2000, its default; apart: 0, each request is a relQuery. policy = \"relserve\"."
echo "# Of $requests requests $((requests - ${#sizes[@]})) can join at most: a loop's first has nothing to join. An answer has 32 tokens at most."
for list in "${measured[@]}"; do echo "# $list"; done
echo
python3 tests/clients/loops/table.py <"$kept/lines"
[ "${#notes[@]}" -eq 0 ] || printf '\n%s\n' "${notes[@]}"
exit "$failed"
