#!/usr/bin/env bash
# Load generators of others against a server of their own, each with its usual settings and few requests.
# usage: tests/clients/load/run.sh PROGRAM CLIENT ..    clients: aiperf
# RELSERVE_CLIENTS_MODEL serves another model than the built-in one: a folder or a file as `--model` takes it.
set -euo pipefail
cd "$(dirname "$0")"
program=$(realpath "$1")
shift

work=$(mktemp -d)
. ../../server.sh
printf '[model]\ndemo_functions = "all"\n' >"$work/relserve.toml"
serve "$program" --config "$work/relserve.toml" \
  ${RELSERVE_CLIENTS_MODEL:+--model "$RELSERVE_CLIENTS_MODEL" --model-name relserve-demo}
for row in $(seq 20); do
  printf '{"prompt": "Is review %s good? Text: a wonderful film.", "text": "Is review %s good? Text: a wonderful film."}\n' "$row" "$row"
done >"$work/prompts.jsonl"

aiperf() {
  .venv-aiperf/bin/aiperf profile --model relserve-demo --url "$address" --api-key "$key" --endpoint-type chat --streaming \
    --input-file "$work/prompts.jsonl" --custom-dataset-type single_turn --tokenizer ../../../models/demo --use-server-token-count \
    --request-count 20 --concurrency 4 --artifact-dir "$work/aiperf" --ui simple
  python3 - "$work/aiperf/profile_export_aiperf.json" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
counted = found["request_count"]["avg"]
failed = (found.get("error_request_count") or {"avg": 0})["avg"]
print(f"aiperf: {counted:.0f} requests, {failed:.0f} failed")
sys.exit((counted, failed) != (20, 0))
PY
}

failed=0
for client in "$@"; do
  environment=.venv-$client
  if ! cmp -s "requirements-$client.txt" "$environment/installed.txt"; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check -r "requirements-$client.txt"
    cp "requirements-$client.txt" "$environment/installed.txt"
  fi
  if "$client"; then echo "passed: $client"; else echo "FAILED: $client" && failed=1; fi
done
exit "$failed"
