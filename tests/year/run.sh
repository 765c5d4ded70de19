#!/usr/bin/env bash
# What a year's rows cost: fills a database of its own (fill.sql), starts the program on it, and prints how long that
# takes, what the routes that read those rows take (the median of five, in ms), what the look-up of a key takes, that old
# usage was merged into months without losing a request, what has expired, and the size on disk.
# Everything is deleted at the end; $TMPDIR says on which disk it lies. sqlite3 or psql, and curl, must be there: it ends
# with 3 and a line that says so where they are not.
#
# usage: [FILLED=yes] tests/year/run.sh PROGRAM ROWS [postgres://... (of an empty database, which is left full)]
# FILLED: the database is one that this has filled with so many rows before.
set -euo pipefail
program=$(realpath "$1") rows=$2 database=${3:-}
cd "$(dirname "$0")"
for needed in curl "$([ -n "$database" ] && echo psql || echo sqlite3)"; do
  command -v "$needed" >/dev/null || { echo "skipped: $needed is not installed" >&2; exit 3; }
done
work=$(mktemp -d)
server=
end() {
  [ -z "$server" ] || { kill -9 "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$work"
}
trap end EXIT

options=(--data-dir "$work")
[ -z "$database" ] || options+=(--database "$database")
# One statement, or a file of them on standard input; one value a line.
sql() {
  if [ -n "$database" ]; then psql -qAt -v ON_ERROR_STOP=1 "$database" "$@"; else sqlite3 -bail "$work/relserve.db" "$@"; fi
}
one() { if [ -n "$database" ]; then sql -c "$1"; else sql "$1"; fi; }
size() {
  if [ -n "$database" ]; then one "SELECT pg_database_size(current_database()) / 1000000"
  else du -cm "$work"/relserve.db* | tail -1 | cut -f1; fi
}
ms() { echo $((($(date +%s%N) - $1) / 1000000)); }

# Starts it; `started` is the time until it says where it is.
start() {
  local began said
  began=$(date +%s%N)
  rm -f "$work/said"
  mkfifo "$work/said"
  "$program" serve --config "$work/year.toml" --listen 127.0.0.1:0 --show-key "${options[@]}" >"$work/said" 2>"$work/log" &
  server=$!
  while read -r said; do
    case $said in *" on http://"*) address=${said##* on }; break ;; esac
  done <"$work/said"
  [ -n "${address:-}" ] || { cat "$work/log" >&2; exit 1; }
  started=$(ms "$began")
}
stop() { kill -9 "$server"; wait "$server" 2>/dev/null || true; server=; }

# Usage is merged in passes; with rounds this short one begins every ten seconds.
printf '[store]\nusage_days_max = 400\nflush_ms = 50\n' >"$work/year.toml"
key() { "$program" key create "$@" --yes "${options[@]}" 2>/dev/null | sed -n 's/^API key: //p'; }
operator=$(key operator --operator)
start
echo "start on an empty database: $started ms"
stop

tenants=$((rows / 8760))
[ "$tenants" -gt 0 ] || { echo "ROWS must be 8760 or more: a row for each of 24 models and routes, 365 days" >&2; exit 2; }
today=$(($(date +%s) / 86400)) now=$(($(date +%s) * 1000)) results=200000 keys=100000
old=$((tenants < 60 ? tenants : 60))
began=$(date +%s%N)
[ -n "${FILLED:-}" ] || sed -e "s/@TENANTS@/$tenants/g; s/@ROWS@/$((tenants * 8760))/g; s/@TODAY@/$today/g; s/@NOW@/$now/g; s/@RESULTS@/$results/g; s/@KEYS@/$keys/g; s/@OLD@/$old/g" \
  fill.sql | sql
echo "filled: $((tenants * 8760)) rows of usage of $tenants tenants, $results answers, $((tenants * 8760 / 100)) entries of audit,"
echo "  $keys keys, $((old * 1440)) rows of usage of long ago, 10000 tickets of 10 rows, in $(ms "$began") ms; $(size) MB"
member=$(key member --tenant "tenant 2")
owner=$(key owner)
fresh=()
for number in 1 2 3 4 5; do fresh+=("$(key "fresh $number" --tenant "tenant 2")"); done
kept() { one "SELECT COUNT(*) FROM token_usage WHERE day < $today - 400"; }
requests() { one "SELECT SUM(requests) FROM token_usage WHERE day < $today - 400"; }
rows_before=$(kept) requests_before=$(requests)
start
echo "start on the full database: $started ms"

# ask NAME KEY PATH [curl's further arguments]: the median of five.
ask() {
  local name=$1 key=$2 path=$3 times
  shift 3
  times=$(for _ in 1 2 3 4 5; do
    curl -sS -o "$work/reply" -w '%{http_code} %{time_total}\n' -H "Authorization: Bearer $key" "$@" "$address$path"
  done | sort -k2 -n)
  if grep -qv '^200 ' <<<"$times"; then
    printf '%-44s refused: %s\n' "$name" "$(tr '\n' ',' <<<"$times")"
    failed=1
    return
  fi
  printf '%-44s %8.1f ms %10d bytes\n' "$name" "$(echo "$times" | sed -n 3p | awk '{print $2 * 1000}')" "$(stat -c %s "$work/reply")"
}
failed=0

# with_keys NAME: the median of a small request with each of the five new keys.
with_keys() {
  local times key
  times=$(for key in "${fresh[@]}"; do
    curl -sS -o "$work/reply" -w '%{http_code} %{time_total}\n' -H "Authorization: Bearer $key" "$address/v1/models"
  done | sort -k2 -n)
  if grep -qv '^200 ' <<<"$times"; then failed=1; fi
  printf '%-44s %8.1f ms\n' "$1" "$(echo "$times" | sed -n 3p | awk '{print $2 * 1000}')"
}
with_keys "a key that is looked up among $(one 'SELECT COUNT(*) FROM api_keys')"
with_keys "the same key, remembered"
ask "usage of a tenant, 1 day" "$member" "/v1/usage?days=1"
ask "usage of a tenant, 30 days" "$member" "/v1/usage?days=30"
ask "usage of a tenant, 365 days" "$member" "/v1/usage?days=365"
ask "usage of all tenants, 1 day, a page" "$operator" "/v1/usage/tenants?days=1"
before=$(grep -o '"before":"[^"]*"' "$work/reply" | cut -d '"' -f 4 || true)
[ -z "$before" ] || ask "usage of all tenants, 1 day, its next page" "$operator" "/v1/usage/tenants?days=1" -G --data-urlencode "before=$before"
ask "usage of all tenants, 30 days, a page" "$operator" "/v1/usage/tenants?days=30"
# next NAME PATH: the page before the one that was read last, where there is one.
next() {
  local before
  before=$(grep -o '"before":[0-9]\+' "$work/reply" | head -1 | cut -d : -f 2 || true)
  [ -z "$before" ] || ask "$1" "$operator" "$2?before=$before"
}
ask "tenants, with keys, answers and budgets, a page" "$operator" "/v1/tenants"
next "tenants, its next page" "/v1/tenants"
ask "audit, the newest" "$operator" "/v1/audit"
ask "audit, from its middle" "$operator" "/v1/audit?before=$((tenants * 8760 / 200))"
ask "keys, a page" "$operator" "/v1/keys"
next "keys, its next page" "/v1/keys"
ask "keys, the largest page" "$operator" "/v1/keys?rows=50000"
ask "batches" "$owner" "/v1/batches"
ask "files" "$owner" "/v1/files"
ask "a ticket" "$owner" "/v1/relqueries/rq-10000"
ask "a relQuery of one row" "$owner" "/v1/relqueries" -H 'Content-Type: application/json' \
  -d '{"template": "Say {w}", "rows": [["x"]], "max_tokens": 1, "cache": false}'

# Two months, or the ends of two with one between: of each tenant, model and route a row for each.
began=$(date +%s%N)
until [ "$(kept)" -le $((old * 24 * 3)) ] || [ "$(ms "$began")" -gt 120000 ]; do sleep 1; done
echo "usage of long ago: $rows_before rows before the start, $(kept) now; requests in them: $requests_before before, $(requests) now"
if [ "$(kept)" -gt $((old * 24 * 3)) ] || [ "$(requests)" != "$requests_before" ]; then
  echo "old usage was not merged, or not whole"
  failed=1
fi

# A server that ends in order deletes first what is past its date.
kill "$server"
wait "$server" || true
server=
echo "tickets that are left: $(one 'SELECT COUNT(*) FROM tickets'), rows of usage: $(one 'SELECT COUNT(*) FROM token_usage'),"
echo "  keys: $(one 'SELECT COUNT(*) FROM api_keys'), of $(one 'SELECT COUNT(*) FROM api_keys WHERE revoked IS NULL AND (expires IS NULL OR expires > '"$now"')') that work; $(size) MB"
exit "$failed"
